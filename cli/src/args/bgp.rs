//! The arguments of `bgp` and what follows it.

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use model::primitives::name::Name;

use super::{help, parse_address};

/// Events shown when the command line does not say.
const EVENTS_DEFAULT: u32 = 50;
/// Events of one answer.
const EVENTS_MAX: u32 = 5000;

/// What to show of BGP.
#[derive(Debug, Subcommand)]
pub enum Bgp {
    /// The sessions of nodes with routers: where they stand, and why
    #[command(after_help = help::BGP_PEERS_HELP)]
    Peers(BgpPeers),
    /// What became of every prefix: which router was told, since when, with which attributes; or why not
    #[command(after_help = help::BGP_ROUTES_HELP)]
    Routes(BgpRoutes),
    /// What happened to sessions, the newest last
    #[command(after_help = help::BGP_EVENTS_HELP)]
    Events(BgpEvents),
}

/// Arguments of `bgp peers`.
#[derive(Debug, Args)]
pub struct BgpPeers {
    /// Only of this node
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Only with this BgpPeer
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// Only in this state
    #[arg(long, value_name = "STATE", value_enum, ignore_case = true)]
    pub state: Option<SessionState>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: BgpOutput,
}

/// Arguments of `bgp routes`.
#[derive(Debug, Args)]
pub struct BgpRoutes {
    /// Only of this node
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Only what this BgpPeer was told
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// Only this prefix and those inside it, as 192.0.2.0/24; an address is the prefix of it alone
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    pub prefix: Option<IpNet>,
    /// Only what is announced for this load balancer address, also within an aggregate
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub address: Option<IpAddr>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: BgpOutput,
}

/// Arguments of `bgp events`.
#[derive(Debug, Args)]
pub struct BgpEvents {
    /// Only of this node
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Only with this BgpPeer
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// At most this many, the newest
    #[arg(
        long, value_name = "N", default_value_t = EVENTS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(EVENTS_MAX))
    )]
    pub last: u32,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EventsOutput,
}

/// Forms of the output of `bgp peers` and `bgp routes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum BgpOutput {
    /// Columns
    #[default]
    Table,
    /// More columns
    Wide,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// Forms of the output of `bgp events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EventsOutput {
    /// A row per event
    #[default]
    Table,
    /// What the server answered, as JSON
    Json,
    /// What the server answered, as YAML
    Yaml,
}

/// States of a session (RFC 4271 §8.2.2), as the server calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum SessionState {
    /// Nothing is tried
    Idle,
    /// A connection is being made
    Connect,
    /// A connection is waited for
    Active,
    /// OPEN was sent
    OpenSent,
    /// OPEN was received and accepted
    OpenConfirm,
    /// Routes are exchanged
    Established,
}

fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed
        .map(|prefix| prefix.trunc())
        .map_err(|_| "must be a prefix such as 192.0.2.0/24 or 2001:db8::/64".to_owned())
}
