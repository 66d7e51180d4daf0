//! Arguments of `top`.

use clap::{Args, ValueEnum};
use model::name::Namespace;

use super::TrafficOutput;

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Of what
    #[arg(value_enum, value_name = "WHAT", default_value_t)]
    pub what: What,
    /// Only Services of this namespace
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// What the first Services have most of
    #[arg(long, value_enum, default_value_t)]
    pub sort: Sort,
    /// How many Services
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Print it again whenever it has changed, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Of what there is a `top`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Services, by traffic
    #[default]
    Services,
    /// Nodes, by how long changes take until they have them
    Nodes,
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
