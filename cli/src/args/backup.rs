//! Arguments of `backup` and `store`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file, which must not be there yet; only its owner can read it, because it holds every secret of the cluster
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Include the history of writes, so that they can be undone after a restore too
    #[arg(long)]
    pub history: bool,
}

/// Arguments of `store`.
#[derive(Debug, Args)]
pub struct Store {
    /// What `tidegate-api store` takes: backup, verify, restore or migrate, and their flags
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}
