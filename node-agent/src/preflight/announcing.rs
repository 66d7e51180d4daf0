//! Requirements for announcing load balancer addresses. No proxy mode needs them, so a failure never makes a
//! machine unusable.

use std::{fs, os::fd::OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::{Finding, RequirementState, needs::Kind};
use crate::facts;

/// Value of `rp_filter` for strict reverse path filtering (RFC 3704 §2.2).
const STRICT: &str = "1";

/// Returns the findings about the requirements for announcing addresses, all of them optional.
pub(super) fn findings() -> Vec<Finding> {
    let networks = facts::collect().subnets;
    let names: Vec<_> = networks.keys().filter(|name| *name != "lo").cloned().collect();
    vec![raw_sockets(), interfaces(&networks), reverse_path_filter(&names)]
}

fn finding(need: &str, kind: Kind, outcome: Result<String, String>, purpose: &str, remedy: &str) -> Finding {
    let (state, detail) = match outcome {
        Ok(detail) => (RequirementState::Present, detail),
        Err(detail) => (RequirementState::Missing, detail),
    };
    Finding {
        need: need.to_owned(),
        kind,
        state,
        required: false,
        purpose: purpose.to_owned(),
        detail,
        remedy: (state == RequirementState::Missing).then(|| remedy.to_owned()),
    }
}

fn raw_sockets() -> Finding {
    let opened: Result<OwnedFd, _> =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>);
    finding(
        "CAP_NET_RAW",
        Kind::Capability,
        opened.map(|_closed| String::new()).map_err(|error| error.desc().to_owned()),
        "announces load balancer addresses by ARP and neighbour discovery",
        "run the agent as root, or give it CAP_NET_RAW",
    )
}

fn interfaces(networks: &std::collections::BTreeMap<String, Vec<ipnet::IpNet>>) -> Finding {
    let shown = networks.iter().filter(|(name, _)| *name != "lo").map(|(name, networks)| {
        let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
        format!("{name} {}", networks.join(" "))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    finding(
        "networks",
        Kind::Interface,
        if shown.is_empty() { Err("no interface has a network".to_owned()) } else { Ok(shown) },
        "an address is announced on interfaces whose network contains its pool",
        "assign an address of the pool's network to an interface",
    )
}

fn reverse_path_filter(names: &[String]) -> Finding {
    let is_strict = |name: &str| {
        let value = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        value.is_ok_and(|value| value.trim() == STRICT)
    };
    // The kernel applies the greater of both values.
    let strict: Vec<_> = names.iter().filter(|name| is_strict(name) || is_strict("all")).cloned().collect();
    finding(
        "net.ipv4.conf.*.rp_filter",
        Kind::Sysctl,
        if strict.is_empty() || names.len() < 2 {
            Ok("accepts clients whose replies leave by another interface".to_owned())
        } else {
            Err(format!(
                "strict on {}: packets of clients whose replies leave by another interface are dropped",
                strict.join(", ")
            ))
        },
        "clients of announced addresses may arrive on another interface than their replies leave by",
        "set it to 2 (loose), or to 0",
    )
}
