//! Arguments of `top`.

use clap::{Args, Subcommand, ValueEnum};
use model::primitives::name::Namespace;

use super::{TrafficOutput, help};

/// Of what there is a `top`.
#[derive(Debug, Subcommand)]
pub enum Top {
    /// The Services with most traffic
    #[command(after_help = help::TOP_SERVICES_HELP)]
    Services(Services),
    /// How long changes take until each node has them, the slowest first, and why
    #[command(after_help = help::TOP_NODES_HELP)]
    Nodes(Manner),
}

/// Arguments of `top services`.
#[derive(Debug, Args)]
pub struct Services {
    /// Only Services of this namespace
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// What the first have most of
    #[arg(long, value_enum, default_value_t)]
    pub sort: Sort,
    /// How many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// How it is printed.
    #[command(flatten)]
    pub manner: Manner,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Manner {
    /// Print it again whenever it has changed, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// What the first Services have most of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Connections in a second
    #[default]
    ConnectionRate,
    /// Bytes in a second
    ByteRate,
    /// Connections since the nodes programmed the endpoints
    Connections,
    /// Open connections
    Active,
}

impl Sort {
    /// As the server calls it.
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
