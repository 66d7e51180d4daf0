//! Arguments of `dns`.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use model::primitives::name::{Name, Namespace};

use super::explain::ExplainOutput;

pub(super) const DNS_HELP: &str = "\
The control server computes the answers from its state, as the DNS servers do; no DNS server is asked.
`tidegate explain dns NAME` adds the search path and the reason of each record.

Examples:
  tidegate dns query web.shop.svc.cluster.local
  tidegate dns query web.shop.svc.cluster.local SRV";

const DNS_QUERY_HELP: &str = "\
Prints nothing and exits with code 3 if the name has no records of the type, with the reason on stderr.

Examples:
  tidegate dns query web.shop.svc.cluster.local
  tidegate dns query _http._tcp.web.shop.svc.cluster.local SRV
  tidegate dns query web --from 10.1.1.10     with the search path of this client
  tidegate dns query web -n shop AAAA         with the search path of a namespace";

/// Subcommands of `dns`.
#[derive(Debug, Subcommand)]
pub enum Dns {
    /// Print the records that the DNS servers answer for a name
    #[command(after_help = DNS_QUERY_HELP)]
    Query(DnsQuery),
}

/// Arguments of `dns query`.
#[derive(Debug, Args)]
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
