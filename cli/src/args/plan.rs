//! Arguments of `plan` and `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::primitives::name::Name;

/// Longest id of a plan.
const ID_LENGTH_MAX: usize = 64;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// A file, a directory, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
    /// Take addresses from the Services that hold them, where a pool is made smaller or removed
    #[arg(long)]
    pub evict: bool,
    /// The set that would own these objects, for --prune
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub apply_set: Option<Name>,
    /// Remove the members of the set that the files do not name
    #[arg(long, requires = "apply_set")]
    pub prune: bool,
    /// Refuse to remove more than this many; without it the server's own limit holds
    #[arg(long, value_name = "N", requires = "prune")]
    pub prune_limit: Option<usize>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PlanOutput,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// A file, a directory, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PlanOutput,
}

/// Forms of the output of `plan` and `diff`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// Lines that come and go
    #[default]
    Lines,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Reads the id of a plan, which becomes part of a path.
pub(super) fn parse_id(text: &str) -> Result<String, String> {
    let is_id = !text.is_empty()
        && text.len() <= ID_LENGTH_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id { Ok(text.to_owned()) } else { Err("must be an id as `tidegate plan` prints it".to_owned()) }
}
