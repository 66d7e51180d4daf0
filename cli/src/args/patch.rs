//! Arguments of `patch` and `edit`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::primitives::name::Namespace;

use super::history::Because;
use crate::resource::Target;

/// Arguments of `patch`.
#[derive(Debug, Args)]
pub struct Patch {
    /// Kind as accepted by `get`, or KIND/NAME
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Fields to change, as JSON or YAML; null removes a field, and a list replaces the whole list
    #[arg(
        short,
        long,
        value_name = "PATCH",
        required_unless_present = "patch_file",
        conflicts_with = "patch_file"
    )]
    pub patch: Option<String>,
    /// File with the patch, or - for stdin
    #[arg(long, value_name = "FILE")]
    pub patch_file: Option<PathBuf>,
    /// Type of the patch
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t)]
    pub patch_type: PatchType,
    /// Namespace of the object
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}

/// Types of patches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PatchType {
    /// JSON merge patch (RFC 7396)
    #[default]
    Merge,
}

/// Arguments of `edit`.
#[derive(Debug, Args)]
pub struct Edit {
    /// Kind as accepted by `get`, or KIND/NAME
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the object
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}
