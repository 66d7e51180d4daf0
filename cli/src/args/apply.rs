//! Arguments of `apply`.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use model::primitives::name::Name;

use super::{history, parse_timeout, plan};
use crate::import::Format;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// File or directory to apply, http:// or https:// URL of a file, or - for stdin
    #[arg(short, long, value_name = "FILE", required_unless_present = "plan")]
    pub filename: Option<PathBuf>,
    /// Apply a saved plan exactly; fails if one of its objects has changed since
    #[arg(
        long, value_name = "ID", value_parser = plan::parse_id,
        conflicts_with_all = ["filename", "dry_run", "evict", "apply_set", "prune", "prune_limit", "from"]
    )]
    pub plan: Option<String>,
    /// Convert the files from this format first, as `tidegate import --apply` does
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["evict", "apply_set", "prune", "prune_limit", "output"],
        value_parser = PossibleValuesParser::new(Format::ALL.map(Format::as_str)).try_map(|word| word.parse::<Format>()))]
    pub from: Option<Format>,
    /// Wait until every connected node has the change in its kernel, confirmed by read-back
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// With --wait, maximum time to wait. If omitted, a --timeout on the command line is this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout, requires = "wait")]
    pub at_most: Duration,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Allow shrinking or deleting a pool whose addresses are in use, taking them from the Services that hold
    /// them. Without this flag the request is rejected and the error lists the holders
    #[arg(long)]
    pub evict: bool,
    /// Name of the set that owns the applied objects; used by --prune
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub apply_set: Option<Name>,
    /// Delete objects of the set that are missing from the files
    #[arg(long, requires = "apply_set")]
    pub prune: bool,
    /// Fail if more than N objects would be pruned; by default the server's limit applies
    #[arg(long, value_name = "N", requires = "prune")]
    pub prune_limit: Option<usize>,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: history::Because,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ApplyOutput,
}

/// Output formats of `apply`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ApplyOutput {
    /// One line per object
    #[default]
    Lines,
    /// One kind/name per line
    Name,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}
