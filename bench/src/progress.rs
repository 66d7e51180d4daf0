//! Progress reporting of benchmarks.

use anyhow::Result;

/// Receiver of progress messages, line by line.
pub type Say<'a> = &'a mut dyn FnMut(&str) -> Result<()>;
