//! Complete dump of the network configuration of a node, divided into the objects of the agent and all others.

use std::{collections::BTreeMap, fs, path::Path};

use lab::host::netns::Namespace;
use serde_json::Value;

/// Lines by section, such as `routes of IPv4`.
pub(crate) type Sections = BTreeMap<String, Vec<String>>;

/// Network configuration of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    /// Objects of the agent, which are recognized by their names and protocol numbers.
    pub(crate) own: Sections,
    /// All other objects.
    pub(crate) foreign: Sections,
}

/// Protocol numbers of the routes and rules of the agent.
const OWN_PROTOCOLS: [&str; 2] = ["proto 116 ", "proto 174 "];
/// Separator of chain and rule in lines of nf_tables, by whose chains the lines are sorted.
const CHAIN_END: &str = " | ";
/// Names of kernel parameters whose values are measurements, and of one that agents set and leave set, as documented.
const LEFT_OUT: [&str; 3] = ["nf_conntrack_count", "nf_conntrack_buckets", "nf_conntrack_acct"];

/// Reads the configuration of a node.
pub(crate) fn dump(node: &Namespace) -> Dump {
    let mut dump = Dump { own: Sections::new(), foreign: Sections::new() };
    for (section, arguments) in
        [("links", &["-j", "-d", "link"][..]), ("addresses", &["-j", "-d", "address"][..])]
    {
        let listed: Value = serde_json::from_str(&node.run("ip", arguments).unwrap()).unwrap();
        for mut link in listed.as_array().cloned().unwrap_or_default() {
            remove_measurements(&mut link);
            let is_own = is_own_link(link["ifname"].as_str().unwrap_or_default());
            dump.add(section, link.to_string(), is_own);
        }
    }
    for family in ["-4", "-6"] {
        let lines = node.run("ip", &["-d", family, "route", "show", "table", "all"]).unwrap();
        dump.add_all(&format!("routes of {family}"), &lines, |line| {
            is_own_route(line) || line.split(" dev ").nth(1).is_some_and(is_own_link)
        });
        let lines = node.run("ip", &["-d", family, "rule"]).unwrap();
        dump.add_all(&format!("rules of {family}"), &lines, is_own_route);
        let lines = node.run("ip", &[family, "neigh", "show", "nud", "permanent"]).unwrap();
        dump.add_all(&format!("neighbors of {family}"), &lines, |line| {
            line.split(" dev ").nth(1).is_some_and(is_own_link)
        });
    }
    let listed = node.run("bridge", &["fdb"]).unwrap();
    // Memberships of multicast groups belong to sockets.
    let is_entered =
        |line: &&str| line.contains("permanent") && !line.starts_with("33:33:") && !line.starts_with("01:");
    let lines: Vec<_> = listed.lines().filter(is_entered).collect();
    dump.add_all("forwarding", &lines.join("\n"), |line| line.split(" dev ").nth(1).is_some_and(is_own_link));
    let mut sets: Vec<_> = node.run("ipset", &["save"]).unwrap().lines().map(str::to_owned).collect();
    sets.sort();
    dump.add_all("sets", &sets.join("\n"), |_| false);
    for tool in ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"] {
        let lines = by_chain(&node.run(&format!("{tool}-save"), &[]).unwrap());
        dump.add_all(tool, &lines, |line| line.contains("TG-"));
    }
    add_nftables(&mut dump, &node.run("nft", &["-s", "-n", "list", "ruleset"]).unwrap());
    for lines in [&mut dump.own, &mut dump.foreign].into_iter().filter_map(|part| part.get_mut("nftables")) {
        lines.sort_by_cached_key(|line| line.split(CHAIN_END).next().map(str::to_owned));
    }
    let parameters = node.inside(parameters);
    dump.add_all("parameters", &parameters.join("\n"), |line| line.split('/').any(is_own_link));
    dump
}

impl Dump {
    fn add(&mut self, section: &str, line: String, is_own: bool) {
        let part = if is_own { &mut self.own } else { &mut self.foreign };
        part.entry(section.to_owned()).or_default().push(line);
    }

    fn add_all(&mut self, section: &str, lines: &str, is_own: impl Fn(&str) -> bool) {
        for line in lines.lines() {
            self.add(section, line.trim_end().to_owned(), is_own(line));
        }
    }
}

fn is_own_link(text: &str) -> bool {
    let name = text.split(' ').next().unwrap_or_default();
    name.starts_with("tg-") || name.starts_with("tg") && name.len() == 13
}

fn is_own_route(line: &str) -> bool {
    let line = format!("{line} ");
    OWN_PROTOCOLS.iter().any(|protocol| line.contains(protocol))
}

/// Removes the timers of bridges, which count down, and the state of the device, which follows its creation.
fn remove_measurements(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|name, _| !name.ends_with("_timer") && name != "operstate");
        fields.values_mut().for_each(remove_measurements);
    }
}

/// Returns the lines of a listing of iptables with their tables, without comments and without counters of built-in chains. Chains are
/// sorted, because a program that restores a table changes their order.
fn by_chain(listing: &str) -> String {
    let mut lines = Vec::new();
    let mut table = "";
    for line in listing.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split([' ', ':', '*']).filter(|word| !word.is_empty() && *word != "-A");
        let first = words.next().unwrap_or_default();
        if line.starts_with('*') {
            table = first;
        } else {
            lines.push((table, first, line.split(" [").next().unwrap_or_default()));
        }
    }
    lines.sort_by_key(|(table, chain, _)| (*table, *chain));
    lines.iter().map(|(table, _, line)| format!("{table} {line}\n")).collect()
}

/// Adds the lines of tables, each with its table and chain. Tables of the agent have its name, and its chains in tables of iptables
/// the prefix `TG-`.
fn add_nftables(dump: &mut Dump, listing: &str) {
    let (mut table, mut chain) = ("", "");
    for line in listing.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("table ") {
            (table, chain) = (name.trim_end_matches(" {"), "");
        } else if let Some(name) = line.strip_suffix(" {") {
            chain = name;
        }
        let is_own = table.starts_with("inet tidegate") || chain.contains(" TG-") || line.contains(" TG-");
        dump.add("nftables", format!("{table}: {chain}{CHAIN_END}{line}"), is_own);
        if line == "}" {
            chain = "";
        }
    }
}

/// Returns the kernel parameters of the network namespace of the calling thread that affect packets.
fn parameters() -> Vec<String> {
    let mut lines = Vec::new();
    let root = Path::new("/proc/sys/net");
    for folder in ["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh", "bridge", "netfilter"] {
        read(&root.join(folder), &mut lines);
    }
    for file in ["ipv4/ip_forward", "ipv4/ip_nonlocal_bind", "ipv4/fib_multipath_hash_policy"] {
        read(&root.join(file), &mut lines);
    }
    lines.sort();
    lines
}

fn read(path: &Path, lines: &mut Vec<String>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        return entries.for_each(|entry| read(&entry.path(), lines));
    }
    let is_left_out = path.file_name().is_some_and(|name| LEFT_OUT.iter().any(|one| name == *one));
    // Some parameters have no value.
    if let (false, Ok(value)) = (is_left_out, fs::read_to_string(path)) {
        lines.push(format!("{} {}", path.display(), value.trim()));
    }
}

/// Returns the lines of `after` that `before` does not have, and the missing ones, by section.
pub(crate) fn difference(before: &Sections, after: &Sections) -> Vec<String> {
    let lines = |sections: &Sections| -> Vec<String> {
        sections
            .iter()
            .flat_map(|(name, lines)| lines.iter().map(move |line| format!("{name}: {line}")))
            .collect()
    };
    let (before, after) = (lines(before), lines(after));
    let missing = before.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}"));
    let added = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    let differences: Vec<_> = missing.chain(added).collect();
    if differences.is_empty() && before != after {
        return vec!["the order of lines differs".to_owned()];
    }
    differences
}
