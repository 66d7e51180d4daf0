//! Arguments of `create`.

use std::{net::IpAddr, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand, ValueEnum};
use model::primitives::name::{Name, Namespace};

use super::history::Because;
use crate::resource::ServiceName;

/// Subcommands of `create`.
#[derive(Debug, Subcommand)]
pub enum Create {
    /// Create a Service, with an EndpointSet if endpoints are given
    #[command(visible_alias = "svc", after_help = super::help::CREATE_SERVICE_HELP)]
    Service(Box<CreateService>),
    /// Create a Certificate, or renew it, from PEM files
    #[command(visible_alias = "cert", after_help = super::help::CREATE_CERTIFICATE_HELP)]
    Certificate(CreateCertificate),
}

/// Arguments of `create certificate`.
#[derive(Debug, Args)]
pub struct CreateCertificate {
    /// Name of the Certificate
    #[arg(value_name = "NAME", value_parser = Name::parse)]
    pub name: Name,
    /// PEM file with the certificate of the server, followed by those of intermediate CAs
    #[arg(long, value_name = "FILE")]
    pub cert: PathBuf,
    /// PEM file with the private key, without a passphrase
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Replace the certificate and private key of an existing object
    #[arg(long)]
    pub renew: bool,
    /// Namespace of the Certificate
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}

/// Arguments of `create service`.
#[derive(Debug, Args)]
pub struct CreateService {
    /// Name of the Service, or NAMESPACE/NAME
    #[arg(value_name = "NAME", value_parser = ServiceName::parse)]
    pub service: ServiceName,
    /// Port of the Service as PORT[:TARGET][/PROTOCOL]: TARGET is the port of the endpoints, PROTOCOL is tcp (default),
    /// udp or sctp. May be repeated
    #[arg(short, long = "port", value_name = "PORT", required = true, value_delimiter = ',')]
    pub ports: Vec<PortMapping>,
    /// Address of an endpoint. May be repeated
    #[arg(short, long = "endpoint", value_name = "ADDRESS", value_delimiter = ',')]
    pub endpoints: Vec<IpAddr>,
    /// Labels of the Workloads that are endpoints, instead of addresses
    #[arg(
        short = 'l', long, value_name = "KEY=VALUE", conflicts_with = "endpoints", value_delimiter = ',',
        value_parser = parse_label
    )]
    pub selector: Vec<(String, String)>,
    /// Load balancer address: `auto` for the next free one of a pool, or an address of a pool. May be repeated for two
    /// IP families. If omitted, the Service has a cluster IP only
    #[arg(short, long = "address", value_name = "auto|ADDRESS", value_delimiter = ',')]
    pub addresses: Vec<AddressChoice>,
    /// Pool of the load balancer address
    #[arg(long, value_name = "POOL", value_parser = Name::parse, requires = "addresses")]
    pub pool: Option<Name>,
    /// Namespace of the Service
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Preview the result without changing anything; with -o, print the objects without a request
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run, print the objects in this format
    #[arg(short, long, value_enum, requires = "dry_run")]
    pub output: Option<CreateOutput>,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}

/// Output formats of `create --dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CreateOutput {
    /// One List as JSON
    Json,
    /// One YAML document per object
    Yaml,
}

/// Port of a Service with the port of its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// Port of the Service.
    pub port: u16,
    /// Port of the endpoints; `None` for the same port.
    pub target: Option<u16>,
    /// Protocol in the API's spelling.
    pub protocol: &'static str,
}

impl FromStr for PortMapping {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` must be PORT[:TARGET][/PROTOCOL], such as 80:8080 or 53/udp");
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(malformed);
        let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = match protocol.to_ascii_lowercase().as_str() {
            "tcp" => "TCP",
            "udp" => "UDP",
            "sctp" => "SCTP",
            _ => return Err(malformed()),
        };
        let (port, target) = ports.split_once(':').map_or((ports, None), |(a, b)| (a, Some(b)));
        Ok(Self { port: number(port)?, target: target.map(number).transpose()?, protocol })
    }
}

/// Choice of a load balancer address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressChoice {
    /// Next free address of a pool.
    Auto,
    /// Given address of a pool.
    Exact(IpAddr),
}

impl FromStr for AddressChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Exact).map_err(|_| format!("`{text}` must be `auto` or an address"))
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let label = text.split_once('=').filter(|(key, _)| !key.is_empty());
    label
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("`{text}` must be KEY=VALUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_a_target_and_a_protocol() {
        let parsed =
            |text: &str| text.parse::<PortMapping>().map(|port| (port.port, port.target, port.protocol));
        assert_eq!(parsed("80"), Ok((80, None, "TCP")));
        assert_eq!(parsed("80:8080"), Ok((80, Some(8080), "TCP")));
        assert_eq!(parsed("53:5353/UDP"), Ok((53, Some(5353), "UDP")));
        for bad in ["", "0", "80:", ":80", "80/icmp", "65536", "80:0", "http"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
