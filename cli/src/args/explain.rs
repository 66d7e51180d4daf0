//! Arguments of `explain`.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, ValueEnum};
use model::primitives::name::{Name, Namespace};

use crate::resource::ServiceName;

pub(super) const EXPLAIN_HELP: &str = "\
Follows the desired state step by step and compares it with the kernels of the nodes, read at the time of
the request. Reports the first failing step and the first difference. Sends no packets.
Exits with code 3 if a step fails.

Examples:
  tidegate explain 198.51.100.7 '->' 203.0.113.10:443/tcp
  tidegate explain 10.1.1.2 '[fd00:96::10]:53/udp' --at node-1
  tidegate explain 203.0.113.10         why the address does or does not respond
  tidegate explain 203.0.113.10:443     one port of it, as a typical client sees it
  tidegate explain 203.0.113.10 --from 198.51.100.7
                                        the packet of a client to its first port
  tidegate explain web -n shop          all paths to the endpoints, on each node
  tidegate explain web --graph=mermaid  chain graph of the Service
  tidegate explain web -o json          complete result
  tidegate explain svc.spec.ports       description of a field of a kind
  tidegate explain dns web.shop         answers of the DNS servers to a name in namespace default
  tidegate explain dns web SRV --from 10.1.1.10
  tidegate explain dns www.example.com --server 127.0.0.1:7443
                                        answer of one DNS server, with its upstream servers and its cache
  tidegate explain http https://www.example.org/api -H 'X-Canary: always'
                                        rule and backends for a request, and why other rules do not apply
  tidegate explain policy shop/web shop/api:8080/tcp
                                        network policies of both workloads for a connection

Quote '->' because the shell interprets >, or omit it.";

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Service (NAME or NAMESPACE/NAME), virtual address, or ADDRESS:PORT[/PROTOCOL] to explain; or source address of a
    /// packet to trace; or `dns`, followed by a name and a record type; or `http`, followed by a URL; or
    /// `policy`, followed by a client and an endpoint
    #[arg(value_name = "SERVICE|ADDRESS|SOURCE")]
    pub what: String,
    /// Destination of the packet, as ADDRESS:PORT or ADDRESS:PORT/PROTOCOL (default: tcp), optionally
    /// preceded by ->
    #[arg(value_name = "->", allow_hyphen_values = true)]
    pub second: Option<String>,
    /// Destination of the packet, if preceded by ->
    #[arg(value_name = "DESTINATION")]
    pub third: Option<String>,
    /// Restrict the result to one node
    #[arg(long, value_name = "NODE", value_parser = Name::parse)]
    pub at: Option<Name>,
    /// Namespace of the Service
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Address of the client of a virtual address. With `dns`, the namespace of its Workload selects the search path; with `http`, endpoints receive
    /// it in X-Forwarded-For
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// Name of the cluster zone, with `dns` [default: cluster.local]
    #[arg(long, value_name = "NAME", value_parser = Name::parse)]
    pub domain: Option<Name>,
    /// Status address (`--status-listen`) of the DNS server to ask instead of the control server, with `dns`: adds the zones that the
    /// client sees, and the upstream servers and the cache for other names
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "domain")]
    pub server: Option<SocketAddr>,
    /// Method of the request, with `http` [default: GET]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Header of the request, with `http`. May be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Use the desired state only; do not read the kernels of the nodes
    #[arg(long)]
    pub desired_only: bool,
    /// Print the chain graph of the Service in Graphviz (dot) or Mermaid format
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, default_missing_value = "dot", require_equals = true)]
    pub graph: Option<GraphForm>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ExplainOutput,
}

/// Graph formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphForm {
    /// Graphviz DOT
    Dot,
    /// Mermaid, as rendered by many Markdown viewers
    Mermaid,
}

/// Output formats of `explain`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ExplainOutput {
    /// Human-readable text
    #[default]
    Text,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}

/// Parsed subject of `explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainSubject {
    /// One packet, given by its source and destination.
    Packet {
        /// Source address of the packet.
        source: IpAddr,
        /// Destination address and port of the packet.
        destination: SocketAddr,
        /// Transport protocol in the API's spelling.
        protocol: &'static str,
    },
    /// Load balancer address; the output lists the node that announces it (owner) and the candidate nodes.
    Address(IpAddr),
    /// Address and port of a Service; a packet from a typical client is traced.
    Frontend {
        /// Destination address and port of the packet.
        destination: SocketAddr,
        /// Transport protocol in the API's spelling.
        protocol: &'static str,
    },
    /// Service, given by name.
    Service(ServiceName),
}

/// Connection of `explain policy`, as the API expects its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConnection {
    /// Client, as `namespace/name` of a Workload or as an address.
    pub source: String,
    /// Endpoint, as `namespace/name` of a Workload or as an address.
    pub destination: String,
    /// Port and protocol; `None` for ICMP echo requests.
    pub port: Option<(u16, &'static str)>,
}

/// Separators accepted between source and destination.
const ARROWS: [&str; 2] = ["->", "→"];

impl Explain {
    /// Returns true for `explain dns NAME`. Without a name, `dns` is a Service.
    #[must_use]
    pub fn is_name(&self) -> bool {
        self.what == "dns" && self.second.is_some()
    }

    /// Returns true for `explain http URL`. Without a URL, `http` is a Service.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.what == "http" && self.second.is_some()
    }

    /// Returns true for `explain policy SOURCE DESTINATION`. With fewer words, `policy` is a Service.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        self.what == "policy" && self.third.is_some()
    }

    /// Parses the connection of `explain policy`. A destination without a port stands for ICMP echo requests.
    ///
    /// # Errors
    /// Returns a usage message if the port or the protocol is invalid.
    pub fn connection(&self) -> Result<PolicyConnection, String> {
        let source = self.second.clone().unwrap_or_default();
        let text = self.third.clone().unwrap_or_default();
        let is_address = text.parse::<IpAddr>().is_ok();
        let Some((end, port)) = text.rsplit_once(':').filter(|_| !is_address) else {
            return Ok(PolicyConnection { source, destination: text, port: None });
        };
        let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
        let number = number.parse().map_err(|_| format!("`{number}` must be a port from 1 to 65535"))?;
        let destination = end.trim_matches(['[', ']']).to_owned();
        Ok(PolicyConnection { source, destination, port: Some((number, transport(protocol)?)) })
    }

    /// Parses the subject from the positional arguments.
    ///
    /// # Errors
    /// Returns a usage message if the arguments are not a Service, an address or a packet.
    pub fn subject(&self) -> Result<ExplainSubject, String> {
        let words = [Some(&self.what), self.second.as_ref(), self.third.as_ref()];
        let joined: Vec<_> = words.into_iter().flatten().map(String::as_str).collect();
        let spaced = ARROWS.iter().fold(joined.join(" "), |text, arrow| text.replace(arrow, " "));
        let words: Vec<_> = spaced.split_whitespace().collect();
        match words.as_slice() {
            [one] => match (one.trim_matches(['[', ']']).parse(), socket_of(one).parse::<SocketAddr>()) {
                (Ok(address), _) => Ok(ExplainSubject::Address(address)),
                (Err(_), Ok(_)) => {
                    let (destination, protocol) = frontend(one)?;
                    Ok(ExplainSubject::Frontend { destination, protocol })
                }
                (Err(_), Err(_)) => service(one),
            },
            [source, destination] => packet(source, destination),
            _ => Err("write a Service, an address, or SOURCE -> ADDRESS:PORT/PROTOCOL".to_owned()),
        }
    }
}

fn service(word: &str) -> Result<ExplainSubject, String> {
    let name = ["svc/", "service/", "services/"].iter().find_map(|prefix| word.strip_prefix(prefix));
    let name = ServiceName::parse(name.unwrap_or(word));
    name.map(ExplainSubject::Service)
        .map_err(|error| format!("`{word}` is neither an address nor a Service: {error}"))
}

fn packet(source: &str, destination: &str) -> Result<ExplainSubject, String> {
    let source = source
        .parse()
        .map_err(|_| format!("`{source}` must be an address without a port, such as 198.51.100.7"))?;
    let (destination, protocol) = frontend(destination)?;
    Ok(ExplainSubject::Packet { source, destination, protocol })
}

/// Returns the part of `ADDRESS:PORT/PROTOCOL` before the protocol.
fn socket_of(text: &str) -> &str {
    text.split_once('/').map_or(text, |(socket, _)| socket)
}

/// Parses `ADDRESS:PORT` or `ADDRESS:PORT/PROTOCOL`; the default protocol is TCP.
fn frontend(text: &str) -> Result<(SocketAddr, &'static str), String> {
    let (socket, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = transport(protocol)?;
    let destination = socket.parse().map_err(|_| {
        format!("`{socket}` must be an address and a port, such as 203.0.113.10:443 or [2001:db8::1]:443")
    })?;
    Ok((destination, protocol))
}

fn transport(protocol: &str) -> Result<&'static str, String> {
    match protocol.to_lowercase().as_str() {
        "tcp" => Ok("TCP"),
        "udp" => Ok("UDP"),
        "sctp" => Ok("SCTP"),
        _ => Err(format!("`{protocol}` must be tcp, udp or sctp")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn subject(line: &str) -> Result<ExplainSubject, String> {
        let words = ["tidegate", "explain"].into_iter().chain(line.split(' '));
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        if let Command::Explain(explain) = cli.command {
            explain.subject()
        } else {
            Err("not an explain command".to_owned())
        }
    }

    #[test]
    fn connections_of_policies_have_workloads_or_addresses() {
        let connection = |line: &str| {
            let words = ["tidegate", "explain", "policy"].into_iter().chain(line.split(' '));
            let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
            let Command::Explain(explain) = cli.command else { return Err("another command".to_owned()) };
            assert!(explain.is_connection(), "{line}");
            let PolicyConnection { source, destination, port } = explain.connection()?;
            Ok((source, destination, port))
        };
        for (line, source, destination, port) in [
            ("shop/web shop/api:80/tcp", "shop/web", "shop/api", Some((80, "TCP"))),
            ("shop/web shop/api:53/udp", "shop/web", "shop/api", Some((53, "UDP"))),
            ("10.1.0.1 10.1.0.2:80", "10.1.0.1", "10.1.0.2", Some((80, "TCP"))),
            ("fd00::1 [fd00::2]:80", "fd00::1", "fd00::2", Some((80, "TCP"))),
            ("fd00::1 fd00::2", "fd00::1", "fd00::2", None),
            ("shop/web shop/api", "shop/web", "shop/api", None),
        ] {
            assert_eq!(connection(line), Ok((source.to_owned(), destination.to_owned(), port)), "{line}");
        }
        for bad in ["shop/web shop/api:http", "shop/web shop/api:80/icmp", "shop/web shop/api:99999"] {
            assert!(connection(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn packets_addresses_and_services_are_told_apart() {
        let packet = ExplainSubject::Packet {
            source: "198.51.100.7".parse().unwrap(),
            destination: "203.0.113.10:443".parse().unwrap(),
            protocol: "TCP",
        };
        for line in [
            "198.51.100.7 -> 203.0.113.10:443/tcp",
            "198.51.100.7 203.0.113.10:443",
            "198.51.100.7->203.0.113.10:443/TCP",
            "198.51.100.7 → 203.0.113.10:443/tcp --at node-1",
            "--at node-1 198.51.100.7 -> 203.0.113.10:443/tcp -o json",
        ] {
            assert_eq!(subject(line), Ok(packet.clone()), "{line}");
        }
        assert_eq!(subject("2001:db8::1"), Ok(ExplainSubject::Address("2001:db8::1".parse().unwrap())));
        for (line, destination, protocol) in
            [("10.96.64.70:80", "10.96.64.70:80", "TCP"), ("[2001:db8::1]:53/udp", "[2001:db8::1]:53", "UDP")]
        {
            let destination = destination.parse().unwrap();
            assert_eq!(subject(line), Ok(ExplainSubject::Frontend { destination, protocol }), "{line}");
        }
        let shop = ExplainSubject::Service(ServiceName::parse("shop/web").unwrap());
        for line in ["shop/web", "svc/shop/web"] {
            assert_eq!(subject(line), Ok(shop.clone()), "{line}");
        }
        let web = ExplainSubject::Service(ServiceName::parse("web").unwrap());
        for line in ["web", "svc/web -n shop", "web --graph", "web --graph=mermaid", "web --at n1 -o yaml"] {
            assert_eq!(subject(line), Ok(web.clone()), "{line}");
        }
        for bad in [
            "198.51.100.7 -> 203.0.113.10",
            "a -> 203.0.113.10:1",
            "1.1.1.1 -> 2.2.2.2:1/icmp",
            "1.1.1.1:5 2.2.2.2:1",
            "1.1.1.1:5/icmp",
            "1.1.1.1:99999",
            "a b c",
        ] {
            assert!(subject(bad).is_err(), "{bad}");
        }
    }
}
