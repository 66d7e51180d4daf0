//! Ruleset layouts with which Tidegate's layout is compared: a chain per Service, as in kube-proxy's nftables
//! mode.
//!
//! ```text
//!   service-ips (one map) ─▶ service-… (a chain each) ─▶ numgen into an anonymous map ─▶ dnat          service-chains
//!                                                                     └─▶ endpoint-… (a chain each)    endpoint-chains
//! ```
//! The names at the right are those of the layouts. The text of the rulesets is written for this benchmark. The
//! chains are those that every packet passes in kube-proxy's mode (checks for the firewall, for Services
//! without endpoints and for undefined ports, masquerading). The text omits everything that would only add
//! cost: no Service has a node port, affinity or source ranges, there is one address family, names have no
//! hash, and no endpoint is on the node, so that the hairpin set is empty.

use std::{fmt::Write, net::Ipv4Addr};

use super::{Layout, served::BenchService};
use crate::fixture_cluster::{PORT, TARGET_PORT};

/// Name of the nftables table of the compared layouts.
pub(super) const TABLE: &str = "peer";

/// Fixed text of the table, in three parts. The elements of `cluster-ips` belong after the first part, those
/// of `service-ips` after the second.
const FRAME: [&str; 3] = [
    "table ip peer {
	set cluster-ips {
		type ipv4_addr
",
    "	}
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
",
    "	}
	map service-nodeports {
		type inet_proto . inet_service : verdict
	}
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
	}
	map no-endpoint-nodeports {
		type inet_proto . inet_service : verdict
	}
	map firewall-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
	}
	set hairpin-connections {
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
	}
	chain filter-prerouting-pre-dnat {
		type filter hook prerouting priority -110
		ct state new jump firewall-check
	}
	chain filter-output-pre-dnat {
		type filter hook output priority -110
		ct state new jump firewall-check
	}
	chain filter-input {
		type filter hook input priority 0
		ct state new jump nodeport-endpoints-check
		ct state new jump service-endpoints-check
	}
	chain filter-forward {
		type filter hook forward priority 0
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}
	chain filter-output {
		type filter hook output priority 0
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}
	chain nat-prerouting {
		type nat hook prerouting priority -100
		jump services
	}
	chain nat-output {
		type nat hook output priority -100
		jump services
	}
	chain nat-postrouting {
		type nat hook postrouting priority 100
		jump masquerading
	}
	chain firewall-check {
		ip daddr . meta l4proto . th dport vmap @firewall-ips
	}
	chain nodeport-endpoints-check {
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @no-endpoint-nodeports
	}
	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}
	chain cluster-ips-check {
		ip daddr @cluster-ips reject
		ip daddr 10.96.0.0/16 drop
	}
	chain services {
		ip daddr @cluster-ips ip saddr != 10.1.1.0/24 jump mark-for-masquerade
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
	}
	chain mark-for-masquerade {
		meta mark set meta mark or 0x4000
	}
	chain masquerading {
		meta mark and 0x4000 != 0 meta mark set meta mark xor 0x4000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}
",
];

/// Renders the full ruleset of a layout for a list of Services.
#[must_use]
pub fn whole(layout: Layout, services: &[BenchService]) -> String {
    let [head, middle, tail] = FRAME;
    let mut text = head.to_owned();
    write_elements(&mut text, services.iter().map(|service| service.address.to_string()));
    text += middle;
    write_elements(&mut text, services.iter().map(dispatch));
    text += tail;
    // Writing to a String cannot fail; the same applies below.
    for service in services {
        for endpoint in endpoint_chains(layout, service) {
            let [hairpin, translate] = endpoint_rules(endpoint);
            let name = endpoint_name(service, endpoint);
            let _ = writeln!(text, "\tchain {name} {{\n\t\t{hairpin}\n\t\t{translate}\n\t}}");
        }
        let _ = writeln!(text, "\tchain {} {{\n\t\t{}\n\t}}", service_name(service), pick(layout, service));
    }
    text + "}\n"
}

/// Renders the commands that add a Service.
pub(super) fn added(layout: Layout, service: &BenchService) -> String {
    let (name, address) = (service_name(service), service.address);
    let mut text = new_endpoints(service, endpoint_chains(layout, service));
    let _ = writeln!(
        text,
        "add chain ip {TABLE} {name}\nadd rule ip {TABLE} {name} {}\n\
         add element ip {TABLE} cluster-ips {{ {address} }}\nadd element ip {TABLE} service-ips {{ {} }}",
        pick(layout, service),
        dispatch(service)
    );
    text
}

/// Renders the commands that change the endpoints of a Service. The commands flush the chains of removed
/// endpoints.
pub(super) fn changed(layout: Layout, before: &BenchService, after: &BenchService) -> String {
    let name = service_name(after);
    let new = endpoint_chains(layout, after).filter(|endpoint| !before.endpoints.contains(endpoint));
    let mut text = new_endpoints(after, new);
    let _ =
        writeln!(text, "flush chain ip {TABLE} {name}\nadd rule ip {TABLE} {name} {}", pick(layout, after));
    for endpoint in gone(layout, before, after) {
        let _ = writeln!(text, "flush chain ip {TABLE} {}", endpoint_name(before, endpoint));
    }
    text
}

/// Renders the commands that delete the chains left empty by a change, in a later transaction.
pub(super) fn swept_after_change(layout: Layout, before: &BenchService, after: &BenchService) -> String {
    let names = gone(layout, before, after).map(|endpoint| endpoint_name(before, endpoint));
    names.map(|name| format!("delete chain ip {TABLE} {name}\n")).collect()
}

/// Renders the commands that remove a Service. The commands flush the chains of the Service.
pub(super) fn removed(layout: Layout, service: &BenchService) -> String {
    let (name, address) = (service_name(service), service.address);
    let mut text = format!(
        "delete element ip {TABLE} service-ips {{ {} }}\ndelete element ip {TABLE} cluster-ips {{ {address} }}\n\
         flush chain ip {TABLE} {name}\n",
        dispatch(service)
    );
    for endpoint in endpoint_chains(layout, service) {
        let _ = writeln!(text, "flush chain ip {TABLE} {}", endpoint_name(service, endpoint));
    }
    text
}

/// Renders the commands that delete the chains left empty by a removal.
pub(super) fn swept_after_removal(layout: Layout, service: &BenchService) -> String {
    let endpoints = endpoint_chains(layout, service).map(|endpoint| endpoint_name(service, endpoint));
    let names = [service_name(service)].into_iter().chain(endpoints);
    names.map(|name| format!("delete chain ip {TABLE} {name}\n")).collect()
}

fn write_elements(text: &mut String, elements: impl Iterator<Item = String>) {
    let elements: Vec<_> = elements.collect();
    if !elements.is_empty() {
        let _ = writeln!(text, "\t\telements = {{ {} }}", elements.join(",\n\t\t\t     "));
    }
}

fn new_endpoints(service: &BenchService, endpoints: impl Iterator<Item = Ipv4Addr>) -> String {
    let mut text = String::new();
    for endpoint in endpoints {
        let (name, [hairpin, translate]) = (endpoint_name(service, endpoint), endpoint_rules(endpoint));
        let _ = writeln!(
            text,
            "add chain ip {TABLE} {name}\nadd rule ip {TABLE} {name} {hairpin}\n\
             add rule ip {TABLE} {name} {translate}"
        );
    }
    text
}

fn gone(layout: Layout, before: &BenchService, after: &BenchService) -> impl Iterator<Item = Ipv4Addr> {
    endpoint_chains(layout, before).filter(|endpoint| !after.endpoints.contains(endpoint))
}

/// Returns the endpoints of a Service that have a chain of their own in this layout.
fn endpoint_chains(layout: Layout, service: &BenchService) -> impl Iterator<Item = Ipv4Addr> {
    let has_chains = match layout {
        Layout::EndpointChains => true,
        Layout::ServiceChains | Layout::Tidegate => false,
    };
    service.endpoints.iter().copied().filter(move |_| has_chains)
}

fn service_name(service: &BenchService) -> String {
    format!("service-{}/tcp/{PORT}", service.name)
}

fn endpoint_name(service: &BenchService, endpoint: Ipv4Addr) -> String {
    format!("endpoint-{}/tcp/{PORT}__{endpoint}/{TARGET_PORT}", service.name)
}

fn endpoint_rules(endpoint: Ipv4Addr) -> [String; 2] {
    [
        format!("ip saddr {endpoint} jump mark-for-masquerade"),
        format!("meta l4proto tcp dnat to {endpoint}:{TARGET_PORT}"),
    ]
}

/// Renders the map element that leads to a Service.
fn dispatch(service: &BenchService) -> String {
    format!("{} . tcp . {PORT} : goto {}", service.address, service_name(service))
}

/// Renders the rule that chooses an endpoint.
fn pick(layout: Layout, service: &BenchService) -> String {
    let numbered = service.endpoints.iter().enumerate();
    let count = service.endpoints.len();
    if layout == Layout::EndpointChains {
        let verdicts =
            numbered.map(|(slot, endpoint)| format!("{slot} : goto {}", endpoint_name(service, *endpoint)));
        return format!("numgen random mod {count} vmap {{ {} }}", verdicts.collect::<Vec<_>>().join(", "));
    }
    let targets = numbered.map(|(slot, endpoint)| format!("{slot} : {endpoint} . {TARGET_PORT}"));
    let targets = targets.collect::<Vec<_>>().join(", ");
    format!("meta l4proto tcp dnat ip to numgen random mod {count} map {{ {targets} }}")
}
