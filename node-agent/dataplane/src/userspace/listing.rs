//! Configuration of a relay as lines of text. No kernel tool lists this configuration, so the format is
//! specific to Tidegate. Does no I/O.
//!
//! ```text
//! listen tcp 10.96.0.1:80 rr affinity 600
//! forward tcp 10.96.0.1:80 to 10.1.1.2:8080 weight 3
//! ```
//! If classes of sources (workloads, the node, all others) have different targets, every listener but the
//! first names its class: `… from node`.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use model::{
    kinds::service::{Protocol, ProxyProtocol},
    primitives::{net::IpFamily, quantity::Weight},
    program::{Destination, Frontend, Target},
};

use super::desired::{Policy, RelayId, SourceClass};

/// Configuration of a listener as shown in a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListenerListing {
    pub(super) policy: Policy,
    /// Targets with a weight above 0.
    pub(super) targets: BTreeMap<Target, Weight>,
    pub(super) affinity_seconds: Option<u32>,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

/// Formats the configuration of a listener: a `listen` line, and a `forward` line per target.
pub(super) fn of(id: RelayId, told: &ListenerListing) -> Vec<String> {
    let ListenerListing { policy, targets, affinity_seconds, proxy_protocol } = told;
    let name = Name(id);
    let mut head = format!("listen {name} {}", word(*policy));
    if let Some(seconds) = affinity_seconds {
        head += &format!(" affinity {seconds}");
    }
    match proxy_protocol {
        None => {}
        Some(ProxyProtocol::V1) => head += " proxy v1",
        Some(ProxyProtocol::V2) => head += " proxy v2",
    }
    let target = |(target, weight): (&Target, &Weight)| {
        let at = match target.port {
            Some(port) => at(target.address, &port.to_string()),
            None => target.address.to_string(),
        };
        format!("forward {name} to {at} weight {}", weight.0)
    };
    [head].into_iter().chain(targets.iter().map(target)).collect()
}

const fn word(policy: Policy) -> &'static str {
    match policy {
        Policy::RoundRobin => "rr",
        Policy::LeastConnections => "lc",
        Policy::SourceHash { with_port: false } => "sh",
        Policy::SourceHash { with_port: true } => "sh port",
    }
}

struct Name(RelayId);

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RelayId { frontend: Frontend { destination, protocol, ports }, class } = self.0;
        let protocol = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        let address = match destination {
            Destination::Address(address) => address,
            Destination::AnyLocal(IpFamily::V4) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            Destination::AnyLocal(IpFamily::V6) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        write!(formatter, "{protocol} {}", at(address, &ports.to_string()))?;
        formatter.write_str(match class {
            SourceClass::Workloads => "",
            SourceClass::Node => " from node",
            SourceClass::Elsewhere => " from elsewhere",
        })
    }
}

fn at(address: IpAddr, ports: &str) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{ports}"),
        IpAddr::V6(v6) => format!("[{v6}]:{ports}"),
    }
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::{Port, PortRange};

    use super::*;

    #[test]
    fn a_listener_says_where_it_is_what_it_does_and_where_it_leads() {
        let port = |number| Port::new(number).unwrap();
        let frontend = Frontend {
            destination: Destination::Address("fd96::1".parse().unwrap()),
            protocol: Protocol::Udp,
            ports: PortRange::new(port(53), port(54)),
        };
        let id = RelayId { frontend, class: SourceClass::Elsewhere };
        let target = |port| Target { address: "fd01::2".parse().unwrap(), port };
        let told = ListenerListing {
            policy: Policy::SourceHash { with_port: true },
            targets: [(target(None), Weight(1)), (target(Some(port(5353))), Weight(3))].into(),
            affinity_seconds: Some(600),
            proxy_protocol: Some(ProxyProtocol::V2),
        };
        assert_eq!(
            of(id, &told),
            [
                "listen udp [fd96::1]:53-54 from elsewhere sh port affinity 600 proxy v2",
                "forward udp [fd96::1]:53-54 from elsewhere to fd01::2 weight 1",
                "forward udp [fd96::1]:53-54 from elsewhere to [fd01::2]:5353 weight 3",
            ]
        );
    }
}
