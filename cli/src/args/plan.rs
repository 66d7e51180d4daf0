//! Arguments of `plan` and `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::primitives::name::Name;

/// Maximum length of a plan id.
const ID_LENGTH_MAX: usize = 64;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// File or directory to plan, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
    /// Allow shrinking or deleting a pool whose addresses are in use, taking them from the Services that hold
    /// them
    #[arg(long)]
    pub evict: bool,
    /// Name of the set that would own the applied objects; used by --prune
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub apply_set: Option<Name>,
    /// Delete objects of the set that are missing from the files
    #[arg(long, requires = "apply_set")]
    pub prune: bool,
    /// Fail if more than N objects would be pruned; by default the server's limit applies
    #[arg(long, value_name = "N", requires = "prune")]
    pub prune_limit: Option<usize>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PlanOutput,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// File or directory to compare, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PlanOutput,
}

/// Output formats of `plan` and `diff`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// Added and removed lines
    #[default]
    Lines,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Validates a plan id, which becomes a URL path segment.
pub(super) fn parse_id(text: &str) -> Result<String, String> {
    let is_id = !text.is_empty()
        && text.len() <= ID_LENGTH_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id {
        Ok(text.to_owned())
    } else {
        Err("must be a plan id as printed by `tidegate plan`".to_owned())
    }
}
