//! Arguments of `top`.

use clap::{Args, Subcommand, ValueEnum};
use model::primitives::name::Namespace;

use super::{TrafficOutput, help};

/// Subcommands of `top`.
#[derive(Debug, Subcommand)]
pub enum Top {
    /// Show the Services with the most traffic
    #[command(after_help = help::TOP_SERVICES_HELP)]
    Services(Services),
    /// Show how long nodes take to apply changes, slowest first, and why
    #[command(after_help = help::TOP_NODES_HELP)]
    Nodes(TopOutput),
}

/// Arguments of `top services`.
#[derive(Debug, Args)]
pub struct Services {
    /// Services of this namespace only
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Sort key
    #[arg(long, value_enum, default_value_t)]
    pub sort: Sort,
    /// Maximum number of Services
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Output format and option to watch.
    #[command(flatten)]
    pub manner: TopOutput,
}

/// Output options of the subcommands of `top`.
#[derive(Debug, Clone, Copy, Args)]
pub struct TopOutput {
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Sort keys of `top services`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// New connections per second
    #[default]
    ConnectionRate,
    /// Bytes per second
    ByteRate,
    /// Total connections since the nodes programmed the endpoints
    Connections,
    /// Open connections
    Active,
}

impl Sort {
    /// Returns the sort key as the API spells it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ConnectionRate => "connectionRate",
            Self::ByteRate => "byteRate",
            Self::Connections => "connections",
            Self::Active => "active",
        }
    }
}
