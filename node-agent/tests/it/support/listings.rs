//! Output of the kernel tools, line by line, for comparison. The tools run in the network namespace of the
//! calling thread.
//!
//! Packet counters, interface indices, random choices of the kernel, and the built-in chains of iptables
//! tables are omitted.

use node_agent::dataplane::iptables::Flavour;

use super::{changes::Listing, run};

pub fn add(listing: &mut Listing, place: &str, line: &str) {
    *listing.entry((place.to_owned(), line.to_owned())).or_default() += 1;
}

/// Returns the rules of an nf_tables table by chain, and each element of its sets and maps.
pub fn nft_table(table: &str) -> Listing {
    let mut listing = Listing::new();
    let (mut place, mut elements) = (String::new(), None::<String>);
    let is_there = run("nft", &["list", "tables"]).lines().any(|line| line == format!("table inet {table}"));
    let text =
        if is_there { run("nft", &["-n", "-s", "list", "table", "inet", table]) } else { String::new() };
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_suffix(" {") {
            let (kind, name) = head.split_once(' ').unwrap();
            place = format!("{kind} inet {table} {name}");
        } else if let Some(first) = line.strip_prefix("elements = {") {
            elements = Some(first.to_owned());
        } else if let Some(text) = &mut elements {
            text.push(' ');
            text.push_str(line);
        } else if place.starts_with("chain ") && !line.is_empty() && line != "}" {
            add(&mut listing, &place, line);
        }
        if let Some(text) = elements.take_if(|text| text.ends_with('}')) {
            for element in text.trim_end_matches('}').split(',') {
                add(&mut listing, &place, element.trim());
            }
        }
    }
    listing
}

/// Returns the output of `iptables-save` and `ip6tables-save` for user-defined chains and rules.
pub fn rules(flavour: Flavour) -> Listing {
    let mut listing = Listing::new();
    for tool in ["iptables", "ip6tables"] {
        let text = run(&format!("{tool}-{}-save", flavour.as_str()), &[]);
        let mut place = String::new();
        for line in text.lines() {
            if let Some(table) = line.strip_prefix('*') {
                place = format!("{tool} {table}");
            } else if line.starts_with("-A ") || line.ends_with(" - [0:0]") {
                add(&mut listing, &place, line);
            }
        }
    }
    listing
}

/// Returns the output of the tools for IPVS, ipsets and links, with all IP addresses in the same notation.
pub fn around_ipvs() -> Listing {
    const PLACE: &str = "link tidegate-ipvs";
    let mut listing = Listing::new();
    // Like `ipvsadm-save -n`.
    for line in run("ipvsadm", &["-S", "-n"]).lines() {
        add(&mut listing, "ipvs", line.trim_end());
    }
    for line in run("ipset", &["save"]).lines() {
        let name = line.split(' ').nth(1).unwrap();
        add(&mut listing, &format!("ipset {name}"), line.split(" bucketsize ").next().unwrap());
    }
    let addresses = run("ip", &["-o", "addr", "show", "up"]);
    let ours: Vec<_> = addresses.lines().filter(|line| line.contains(": tidegate-ipvs ")).collect();
    for line in &ours {
        let address = line.split_once(" inet").unwrap().1;
        let address = address.split_once('\\').unwrap().0;
        // The kernel assigns a link-local address to every link that is up.
        if address.contains("fe80:") {
            add(&mut listing, PLACE, "dummy up");
        } else {
            add(&mut listing, PLACE, &format!("inet{}", address.trim_end()));
        }
    }
    listing
}

/// Returns the iptables rules and sysctls that ipvs mode sets in addition to IPVS itself.
pub fn beneath_ipvs() -> Listing {
    let mut listing = rules(Flavour::Legacy);
    let settings = [
        "net.ipv4.vs.conntrack",
        "net.ipv4.vs.expire_nodest_conn",
        "net.ipv4.vs.expire_quiescent_template",
        "net.ipv4.ip_forward",
        "net.ipv4.conf.all.arp_ignore",
        "net.ipv4.conf.all.arp_announce",
    ];
    for line in run("sysctl", &settings).lines() {
        add(&mut listing, "sysctl", line);
    }
    listing
}
