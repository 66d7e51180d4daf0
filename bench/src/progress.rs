//! Progress messages of benchmarks on stderr.

use anyhow::Result;

/// Callback that receives progress messages, line by line.
pub type Say<'a> = &'a mut dyn FnMut(&str) -> Result<()>;
