//! Arguments of `support-bundle`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `support-bundle`.
#[derive(Debug, Args)]
pub struct SupportBundle {
    /// File to write, which must not exist [default: tidegate-support-SECONDS.tar.gz in this directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
