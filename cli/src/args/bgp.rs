//! Arguments of `bgp`.

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use model::primitives::name::Name;

use super::{help, parse_address};

/// Default number of events that `bgp` and `addresses` request.
pub(super) const EVENTS_DEFAULT: u32 = 50;
/// Maximum number of events in one response.
pub(super) const EVENTS_MAX: u32 = 5000;

/// Subcommands of `bgp`.
#[derive(Debug, Clone, Subcommand)]
pub enum Bgp {
    /// List BGP sessions of nodes with their state and reason
    #[command(after_help = help::BGP_PEERS_HELP)]
    Peers(BgpPeers),
    /// List prefixes with their advertisement state per router, attributes and reason
    #[command(after_help = help::BGP_ROUTES_HELP)]
    Routes(BgpRoutes),
    /// List session events, newest last
    #[command(after_help = help::BGP_EVENTS_HELP)]
    Events(BgpEvents),
}

impl Bgp {
    /// Returns true if the output is printed again on each change.
    #[must_use]
    pub const fn is_watch(&self) -> bool {
        match self {
            Self::Peers(BgpPeers { watch, .. })
            | Self::Routes(BgpRoutes { watch, .. })
            | Self::Events(BgpEvents { watch, .. }) => *watch,
        }
    }
}

/// Arguments of `bgp peers`.
#[derive(Debug, Clone, Args)]
pub struct BgpPeers {
    /// Sessions of this node only
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Sessions with this BgpPeer only
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// Sessions in this state only
    #[arg(long, value_name = "STATE", value_enum, ignore_case = true)]
    pub state: Option<SessionState>,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: BgpOutput,
}

/// Arguments of `bgp routes`.
#[derive(Debug, Clone, Args)]
pub struct BgpRoutes {
    /// Routes of this node only
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Routes advertised to this BgpPeer only
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// Routes within this prefix, such as 192.0.2.0/24; a plain address selects its host route
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    pub prefix: Option<IpNet>,
    /// Routes that cover this load balancer address, including aggregates
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub address: Option<IpAddr>,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: BgpOutput,
}

/// Arguments of `bgp events`.
#[derive(Debug, Clone, Args)]
pub struct BgpEvents {
    /// Events of this node's sessions only
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub node: Option<Name>,
    /// Events of sessions with this BgpPeer only
    #[arg(long, value_name = "PEER", value_parser = Name::parse)]
    pub peer: Option<Name>,
    /// Maximum number of events; the newest are shown
    #[arg(
        long, value_name = "N", default_value_t = EVENTS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(EVENTS_MAX))
    )]
    pub last: u32,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: EventsOutput,
}

/// Output formats of `bgp peers` and `bgp routes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum BgpOutput {
    /// Table
    #[default]
    Table,
    /// Table with additional columns
    Wide,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Output formats of `bgp events` and `addresses events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EventsOutput {
    /// One row per event
    #[default]
    Table,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Session states (RFC 4271 §8.2.2) in the API's spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum SessionState {
    /// Not trying to connect
    Idle,
    /// Opening a TCP connection
    Connect,
    /// Waiting for an incoming TCP connection
    Active,
    /// OPEN sent, waiting for the peer's OPEN
    OpenSent,
    /// OPEN received and accepted, waiting for KEEPALIVE
    OpenConfirm,
    /// Exchanging routes
    Established,
}

fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed
        .map(|prefix| prefix.trunc())
        .map_err(|_| "must be a prefix such as 192.0.2.0/24 or 2001:db8::/64".to_owned())
}
