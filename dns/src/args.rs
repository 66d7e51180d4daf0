//! Command-line arguments of `tidegate-dns`.

mod upstream;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Parser;
use daemon::{log::LogArgs, start::WithLog, status::parse_listen};
use ipnet::IpNet;
use model::primitives::{domain_name::DomainName, name::Name};
use replica::ControlArgs;
use settings::Rules;

pub use self::upstream::{UpstreamPolicy, UpstreamServer, UpstreamSetting};

/// Port of DNS servers (RFC 1035 §4.2).
pub const PORT: u16 = 53;
/// Port of DNS over TLS (RFC 7858 §3.1).
pub const TLS_PORT: u16 = 853;
/// Maximum time in seconds for which resolvers may be told to cache a record.
const TTL_MAX: i64 = 3600;
/// Number of seconds of a day, the maximum of the times of the cache.
const DAY_SECS: i64 = 86_400;
/// Maximum size of the cache, for which about 1 GiB of memory is needed.
const CACHE_ENTRIES_MAX: usize = 1_000_000;

/// Rules for the settings file of `tidegate-dns`: each flag that has an environment variable.
pub const RULES: Rules = Rules { positionals: false, keys: None };

/// Answers DNS questions for the names of Services, and forwards other questions
#[derive(Debug, Clone, Parser)]
#[command(name = "tidegate-dns", version = base::build::text(), max_term_width = 110)]
pub struct Args {
    /// Connection to the control servers.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Addresses at which to answer questions over UDP and TCP, separated by commas. With `0.0.0.0` or `::`,
    /// each answer comes from the address that was asked
    #[arg(
        long, env = "TIDEGATE_DNS_LISTEN", hide_env_values = true, value_name = "ADDRESS[:PORT],…", value_delimiter = ',',
        value_parser = parse_server, default_value = "127.0.0.1:53"
    )]
    pub listen: Vec<SocketAddr>,
    /// Addresses at which to answer questions over TLS (DoT), separated by commas; port 853 if none is given
    /// [default: none]
    #[arg(
        long, env = "TIDEGATE_DNS_TLS_LISTEN", hide_env_values = true, value_name = "ADDRESS[:PORT],…",
        value_delimiter = ',', value_parser = parse_tls_server, requires_all = ["tls_cert_file", "tls_key_file"]
    )]
    pub tls_listen: Vec<SocketAddr>,
    /// Certificate chain of --tls-listen, as PEM. A changed file is used within 10 s
    #[arg(
        long,
        env = "TIDEGATE_DNS_TLS_CERT_FILE",
        hide_env_values = true,
        value_name = "FILE",
        requires = "tls_key_file"
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, as PEM
    #[arg(
        long,
        env = "TIDEGATE_DNS_TLS_KEY_FILE",
        hide_env_values = true,
        value_name = "FILE",
        requires = "tls_cert_file"
    )]
    pub tls_key_file: Option<PathBuf>,
    /// Name of the cluster zone. `.local` names are resolved by multicast on many desktops
    #[arg(
        long, env = "TIDEGATE_DNS_DOMAIN", hide_env_values = true, value_name = "NAME", value_parser = Name::parse,
        default_value = "cluster.local"
    )]
    pub domain: Name,
    /// Servers to which questions outside of the zones of the cluster are forwarded, separated by commas. Without any for
    /// a name, such questions are refused. After `ZONE=`, the server is asked for the names in this zone only; a name
    /// belongs to the longest zone that contains it. `tls://ADDRESS[:PORT][#NAME]` is a server that is asked over TLS
    /// (DoT), at port 853 if none is given; its certificate must be valid for NAME, or for the address
    #[arg(
        long, env = "TIDEGATE_DNS_UPSTREAM", hide_env_values = true,
        value_name = "[ZONE=][tls://]ADDRESS[:PORT][#NAME],…", value_delimiter = ',', value_parser = UpstreamSetting::parse
    )]
    pub upstream: Vec<UpstreamSetting>,
    /// Order in which the servers of a zone in --upstream are asked
    #[arg(
        long,
        env = "TIDEGATE_DNS_UPSTREAM_POLICY",
        hide_env_values = true,
        value_name = "POLICY",
        value_enum,
        default_value = "sequential"
    )]
    pub upstream_policy: UpstreamPolicy,
    /// Authorities that sign the certificates of upstream servers over TLS, as PEM [default: those of the operating
    /// system]
    #[arg(long, env = "TIDEGATE_DNS_UPSTREAM_CA_FILE", hide_env_values = true, value_name = "FILE")]
    pub upstream_ca_file: Option<PathBuf>,
    /// Follow the search path of clients with a Workload: the first question for a name gets the answer of the first name
    /// on the path that exists, as an alias
    #[arg(long, env = "TIDEGATE_DNS_AUTOPATH", hide_env_values = true)]
    pub autopath: bool,
    /// Answer names that have several load balancer addresses with those that a node in the failure zone of the client announces,
    /// and those announced by BGP, if there are any
    #[arg(long, env = "TIDEGATE_DNS_NEAREST", hide_env_values = true)]
    pub nearest: bool,
    /// Networks of the clients of the cluster, separated by commas. Other clients get answers from DnsZones only, and
    /// are refused for all other names [default: all]
    #[arg(
        long,
        env = "TIDEGATE_DNS_CLIENT_NETWORK",
        hide_env_values = true,
        value_name = "NETWORK,…",
        value_delimiter = ','
    )]
    pub client_network: Vec<IpNet>,
    /// Maximum number of cached responses of upstream servers with records; 0 disables the cache for them
    #[arg(
        long, env = "TIDEGATE_DNS_CACHE_ENTRIES", hide_env_values = true, value_name = "NUMBER", default_value = "10000",
        value_parser = parse_entries
    )]
    pub cache_entries: usize,
    /// Maximum number of cached responses of upstream servers without records; 0 disables the cache for them
    #[arg(
        long, env = "TIDEGATE_DNS_CACHE_NEGATIVE_ENTRIES", hide_env_values = true, value_name = "NUMBER",
        default_value = "10000", value_parser = parse_entries
    )]
    pub cache_negative_entries: usize,
    /// Maximum time in seconds for which records of upstream servers are cached, if they allow it
    #[arg(
        long, env = "TIDEGATE_DNS_CACHE_TTL", hide_env_values = true, value_name = "SECONDS", default_value = "3600",
        value_parser = clap::value_parser!(u32).range(0..=DAY_SECS)
    )]
    pub cache_ttl: u32,
    /// Maximum time in seconds for which it is cached that upstream servers have no record, if they allow it
    #[arg(
        long, env = "TIDEGATE_DNS_CACHE_TTL_NEGATIVE", hide_env_values = true, value_name = "SECONDS",
        default_value = "300", value_parser = clap::value_parser!(u32).range(0..=DAY_SECS)
    )]
    pub cache_ttl_negative: u32,
    /// Time in seconds for which an expired response is used while the upstream servers fail; 0 disables this
    #[arg(
        long, env = "TIDEGATE_DNS_CACHE_STALE", hide_env_values = true, value_name = "SECONDS", default_value = "86400",
        value_parser = clap::value_parser!(u32).range(0..=DAY_SECS)
    )]
    pub cache_stale: u32,
    /// Addresses at which clients reach this server, returned for `ns.dns` in the cluster zone, separated by commas
    /// [default: the addresses of --listen]
    #[arg(
        long,
        env = "TIDEGATE_DNS_SERVER_ADDRESS",
        hide_env_values = true,
        value_name = "ADDRESS,…",
        value_delimiter = ','
    )]
    pub server_address: Vec<IpAddr>,
    /// Networks whose reverse names belong to the cluster, separated by commas, such as the ranges of cluster IPs: an
    /// address in them that no Service has does not exist instead of being forwarded
    #[arg(
        long,
        env = "TIDEGATE_DNS_REVERSE",
        hide_env_values = true,
        value_name = "NETWORK,…",
        value_delimiter = ','
    )]
    pub reverse: Vec<IpNet>,
    /// Time in seconds for which clients may cache records of Services, at most 3600
    #[arg(
        long, env = "TIDEGATE_DNS_TTL", hide_env_values = true, value_name = "SECONDS", default_value = "5",
        value_parser = clap::value_parser!(u32).range(0..=TTL_MAX)
    )]
    pub ttl: u32,
    /// Time in seconds for which clients may cache records of endpoints of headless Services, at most 3600
    #[arg(
        long, env = "TIDEGATE_DNS_TTL_HEADLESS", hide_env_values = true, value_name = "SECONDS", default_value = "1",
        value_parser = clap::value_parser!(u32).range(0..=TTL_MAX)
    )]
    pub ttl_headless: u32,
    /// Time in seconds for which clients may cache that a record does not exist, at most 3600
    #[arg(
        long, env = "TIDEGATE_DNS_TTL_NEGATIVE", hide_env_values = true, value_name = "SECONDS", default_value = "1",
        value_parser = clap::value_parser!(u32).range(0..=TTL_MAX)
    )]
    pub ttl_negative: u32,
    /// Directory for the last received state, from which questions are answered after a restart until a control
    /// server is reached [default: none]
    #[arg(long, env = "TIDEGATE_STATE_DIR", hide_env_values = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Zones of DnsZones whose static records ExternalDNS may change, separated by commas. Every program on this machine can
    /// change them [default: none]
    #[arg(
        long, env = "TIDEGATE_DNS_EXTERNAL_DNS_ZONE", hide_env_values = true, value_name = "NAME,…", value_delimiter = ',',
        value_parser = DomainName::parse
    )]
    pub external_dns_zone: Vec<DomainName>,
    /// Address of the webhook provider for ExternalDNS; loopback only
    #[arg(
        long, env = "TIDEGATE_DNS_EXTERNAL_DNS_LISTEN", hide_env_values = true, value_name = "ADDRESS:PORT",
        value_parser = parse_loopback, default_value = "127.0.0.1:8888"
    )]
    pub external_dns_listen: SocketAddr,
    /// Address for /healthz, /readyz, /metrics, /names with the busiest names, which `tidegate dns top` shows, and /explain, for
    /// `tidegate explain dns --server`; requests are not authenticated
    #[arg(
        long, env = "TIDEGATE_LISTEN", hide_env_values = true, value_name = "ADDRESS:PORT",
        value_parser = parse_listen, default_value = "127.0.0.1:7443"
    )]
    pub status_listen: SocketAddr,
    /// Name of this server in its reports to the control servers, unique among the DNS servers, such as that of the node
    /// [default: the host name]
    #[arg(
        long, env = "TIDEGATE_DNS_NAME", hide_env_values = true, value_name = "NAME", value_parser = Name::parse
    )]
    pub name: Option<Name>,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
    /// TOML file with settings named like the flags
    #[arg(long, env = "TIDEGATE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl WithLog for Args {
    fn log(&self) -> &LogArgs {
        &self.log
    }
}

/// Parses the address of a DNS server, with or without a port.
fn parse_server(text: &str) -> Result<SocketAddr, String> {
    parse_address(text, PORT)
}

/// Parses the address of a server of DNS over TLS, with or without a port.
fn parse_tls_server(text: &str) -> Result<SocketAddr, String> {
    parse_address(text, TLS_PORT)
}

fn parse_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>().ok();
    let address =
        with_port.or_else(|| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, port)));
    address.ok_or_else(|| {
        format!("must be an address such as 192.0.2.1, 192.0.2.1:{port} or [2001:db8::1]:{port}")
    })
}

fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address = parse_listen(text)?;
    if address.ip().is_loopback() { Ok(address) } else { Err("must be a loopback address".to_owned()) }
}

fn parse_entries(text: &str) -> Result<usize, String> {
    let entries = text.parse().ok().filter(|entries| *entries <= CACHE_ENTRIES_MAX);
    entries.ok_or_else(|| format!("must be a number up to {CACHE_ENTRIES_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_server_is_optional() {
        assert_eq!(parse_server("192.0.2.1"), Ok("192.0.2.1:53".parse().unwrap()));
        assert_eq!(parse_server("[2001:db8::1]:5353"), Ok("[2001:db8::1]:5353".parse().unwrap()));
        assert_eq!(parse_tls_server("192.0.2.1"), Ok("192.0.2.1:853".parse().unwrap()));
        assert!(parse_server("dns.example.com").is_err());
        assert!(parse_loopback("0.0.0.0:8888").is_err());
        assert!(parse_entries("1000000").is_ok() && parse_entries("1000001").is_err());
    }
}
