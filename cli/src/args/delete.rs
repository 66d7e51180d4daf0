//! Arguments of `delete`.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use model::{kinds::selector::LabelSelector, primitives::name::Namespace};

use super::history;

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// Objects to delete: KIND NAME…, or KIND/NAME…; several kinds are separated by commas. With -l or --all only KIND
    #[arg(value_name = "KIND NAME", conflicts_with = "filename", value_parser = NonEmptyStringValueParser::new())]
    pub words: Vec<String>,
    /// Delete the objects that match this label selector
    #[arg(short = 'l', long, conflicts_with = "filename")]
    pub selector: Option<LabelSelector>,
    /// Delete all objects of the kind in the namespace
    #[arg(long, conflicts_with_all = ["filename", "selector"])]
    pub all: bool,
    /// Delete the objects of a file or directory, or of stdin with -
    #[arg(short, long, value_name = "FILE", required_unless_present = "words")]
    pub filename: Option<PathBuf>,
    /// Namespace of the objects; files contain their own
    #[arg(
        short, long, default_value = "default",
        conflicts_with = "filename", value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Allow deleting a pool whose addresses are in use, taking them from the Services that hold them.
    /// Without this flag the request is rejected and the error lists the holders
    #[arg(long)]
    pub evict: bool,
    /// Succeed if an object does not exist
    #[arg(long)]
    pub ignore_not_found: bool,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: history::Because,
}
