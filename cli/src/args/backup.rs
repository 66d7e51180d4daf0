//! Arguments of `backup` and `store`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Backup file to create; it must not exist. Only its owner can read it, because it contains all secrets
    /// of the cluster
    #[arg(value_name = "FILE", required_unless_present = "output")]
    pub file: Option<PathBuf>,
    /// Same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub output: Option<PathBuf>,
    /// Include the history of writes, so that changes can still be undone after a restore
    #[arg(long)]
    pub history: bool,
}

/// Arguments of `store`.
#[derive(Debug, Args)]
pub struct Store {
    /// Arguments of `tidegate-api store`: backup, verify, restore or migrate, and their flags
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}
