//! How a benchmark tells how far it is.

use anyhow::Result;

/// Where progress is told, line by line.
pub type Say<'a> = &'a mut dyn FnMut(&str) -> Result<()>;
