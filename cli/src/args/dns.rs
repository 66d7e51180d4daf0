//! Arguments of `dns`.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand};
use model::primitives::name::{Name, Namespace};

use super::{TrafficOutput, explain::ExplainOutput};

pub(super) const DNS_HELP: &str = "\
`dns query` prints the answer that the control server computes from its state, as the DNS servers do.
`tidegate explain dns NAME` adds the search path and the reason of each record. `dns top` asks the DNS servers
for the names that clients use. `dns servers` lists them with their problems.

Examples:
  tidegate dns query web.shop.svc.cluster.local
  tidegate dns query web.shop.svc.cluster.local SRV
  tidegate dns top
  tidegate dns servers";

const DNS_TOP_HELP: &str = "\
The numbers are those of the last one to two minutes. NO NAME counts answers that the name does not exist
(NXDOMAIN): usually the search path of clients, for which `--autopath` of tidegate-dns or `ndots:2` are the
remedies. FAILED counts errors (SERVFAIL, REFUSED): usually an upstream server, or a client outside of
`--client-network`. `tidegate explain dns NAME` gives the reason.

Each DNS server counts a limited number of names; a number that may be too high is marked with ~. Control
servers are not asked: the addresses are those of `--status-listen`, which is loopback by default.

Exits with code 3 if a DNS server did not respond, and with 4 if none did.

Examples:
  tidegate dns top                                       the DNS server of this machine
  tidegate dns top --server 10.0.0.1:7443,10.0.0.2:7443  those of several nodes
  tidegate dns top --failures --limit 5                  names that fail or do not exist
  tidegate dns top -o json                              with the maximum errors of the numbers";

const DNS_SERVERS_HELP: &str = "\
Lists the DNS servers that have reported to the control server within the last hour. FAILED and QUESTIONS/S are those
of the last one to two minutes. A server without a report for 15 seconds is a problem; so is an upstream
server that does not respond.

Exits with code 3 if a DNS server has a problem.

Examples:
  tidegate dns servers
  tidegate dns servers -o yaml     with the busiest names of each server";

const DNS_QUERY_HELP: &str = "\
Prints nothing and exits with code 3 if the name has no records of the type, with the reason on stderr.

Examples:
  tidegate dns query web.shop.svc.cluster.local
  tidegate dns query _http._tcp.web.shop.svc.cluster.local SRV
  tidegate dns query web --from 10.1.1.10     with the search path of this client
  tidegate dns query web -n shop AAAA         with the search path of a namespace";

/// Subcommands of `dns`.
#[derive(Debug, Clone, Subcommand)]
pub enum Dns {
    /// Print the records that the DNS servers answer for a name
    #[command(after_help = DNS_QUERY_HELP)]
    Query(DnsQuery),
    /// Show the names that clients ask for most often, and those that fail
    #[command(after_help = DNS_TOP_HELP)]
    Top(DnsTop),
    /// List the DNS servers with their zones, upstream servers and problems
    #[command(after_help = DNS_SERVERS_HELP)]
    Servers(DnsServers),
}

impl Dns {
    /// Returns true if the output is printed again on each change.
    #[must_use]
    pub const fn is_watch(&self) -> bool {
        match self {
            Self::Query(_) => false,
            Self::Top(DnsTop { watch, .. }) | Self::Servers(DnsServers { watch, .. }) => *watch,
        }
    }
}

/// Arguments of `dns servers`.
#[derive(Debug, Clone, Args)]
pub struct DnsServers {
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Arguments of `dns top`.
#[derive(Debug, Clone, Args)]
pub struct DnsTop {
    /// Status addresses of the DNS servers, separated by commas
    #[arg(long, value_name = "ADDRESS:PORT,…", value_delimiter = ',', default_value = "127.0.0.1:7443")]
    pub server: Vec<SocketAddr>,
    /// Names that fail or do not exist only, most failures first
    #[arg(long)]
    pub failures: bool,
    /// Maximum number of names
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub limit: u16,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: TrafficOutput,
}

/// Arguments of `dns query`.
#[derive(Debug, Clone, Args)]
pub struct DnsQuery {
    /// Name, complete unless --from or --namespace gives a search path
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Type of the records: A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT, MX or ANY
    #[arg(value_name = "TYPE", default_value = "A")]
    pub record_type: String,
    /// Address of the client; the namespace of its Workload selects the search path
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// Namespace of the search path, for a client that is no Workload
    #[arg(short, long, value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Name of the cluster zone, as the setting of the DNS servers [default: cluster.local]
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub domain: Option<Name>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ExplainOutput,
}
