//! Arguments of `authority`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::security::{SecurityOutput, parse_life};

/// Text after the help of `authority`.
pub(super) const HELP: &str = "\
After a rotation, the former authority stays trusted until all connected agents have renewed their
certificates. Give clients with a --ca-file the new certificates (GET /v1/ca) in this time.

Examples:
  tidegate authority show
  tidegate authority rotate --transition 7d
  tidegate authority retire";

/// Subcommands of `authority`.
#[derive(Debug, Subcommand)]
pub enum Authority {
    /// Show the authority, and during a rotation the former one with the nodes that still depend on it
    Show(SecurityOutput),
    /// Create a new authority; the former one stays trusted for a time
    Rotate(AuthorityRotate),
    /// End a rotation: the former authority is no longer trusted
    Retire(AuthorityRetire),
}

/// Arguments of `authority rotate`.
#[derive(Debug, Args)]
pub struct AuthorityRotate {
    /// Time for which the former authority stays trusted, such as 7d [default: as long as agents can renew certificates]
    #[arg(long, value_name = "TIME", value_parser = parse_life)]
    pub transition: Option<Duration>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: super::StatusOutput,
}

/// Arguments of `authority retire`.
#[derive(Debug, Args)]
pub struct AuthorityRetire {
    /// Retire the authority although nodes have certificates of it; they need new join tokens
    #[arg(long)]
    pub force: bool,
}
