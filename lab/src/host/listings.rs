//! What the tools of the kernel list on a node, by place: rules in their order, and sorted what has none. Left out is what
//! differs by itself, or says nothing about any packet:
//!
//! - counters, the order in which a hash table lists its elements, the numbers of ports that the kernel gives to listeners;
//! - in tables of nftables which slot of a frontend leads to which target (how many slots each has counts), by which
//!   number sources remember a target, and chains to which nothing leads, with their numbers: they stay for the next frontend
//!   of their kind;
//! - in chains of iptables that tell frontends apart the order of their rules, of which those for one frontend match at most.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::netns::Namespace;
use anyhow::{Context, Result};

/// The lines of each table's chain, set or map.
pub type Listing = BTreeMap<String, Vec<String>>;

/// All that a node's kernel has of rules, and the sockets that listen.
///
/// # Errors
/// A tool fails, or says what nobody expects.
pub fn of(node: &Namespace) -> Result<Listing> {
    let mut listing = nft(&node.run("nft", &["-n", "-s", "list", "ruleset"])?)?;
    hide_numbers(&mut listing);
    drop_unnamed(&mut listing);
    drop_unreached(&mut listing);
    // Of rules of iptables its own tool lists more.
    let is_of = |place: &str, family: &str| place.split(' ').nth(1) == Some(family);
    for (tool, family) in [("iptables", "ip"), ("ip6tables", "ip6")] {
        if listing.keys().any(|place| is_of(place, family)) {
            listing.retain(|place, _| !is_of(place, family));
            listing.extend(rules(tool, &node.run(&format!("{tool}-nft-save"), &[])?));
        }
    }
    let sockets = node.run("ss", &["-H", "-t", "-u", "-l", "-n"])?;
    let sockets: Vec<_> = sockets
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.nth(3)?.rsplit_once(':')?))
        })
        .collect();
    let is_any = |port: &&str| port.parse().is_ok_and(|port: u16| port > NODE_PORT_LAST);
    let any: BTreeSet<_> = sockets.iter().map(|(_, (_, port))| *port).filter(is_any).collect();
    for lines in listing.values_mut() {
        lines.iter_mut().for_each(|line| *line = without_numbers(line, &any));
    }
    for (place, lines) in &mut listing {
        if !place.starts_with("chain ") && !place.contains("tables ") {
            lines.sort();
        }
    }
    let listening = sockets.iter().map(|(protocol, (address, port))| {
        format!("{protocol} {address}:{}", if any.contains(port) { "any" } else { port })
    });
    listing.insert("sockets".to_owned(), sorted(listening));
    Ok(listing)
}

/// All that the kernel of a node in ipvs mode has of rules: virtual servers and their real ones, the sets, the rules, and
/// the addresses of the device that holds them. None of the first two has an order.
///
/// # Errors
/// As [`of`].
pub fn of_ipvs(node: &Namespace) -> Result<Listing> {
    let mut listing = Listing::new();
    for tool in ["iptables", "ip6tables"] {
        listing.extend(rules(tool, &node.run(&format!("{tool}-legacy-save"), &[])?));
    }
    let servers = node.run("ipvsadm", &["-S", "-n"])?;
    listing.insert("ipvs servers".to_owned(), sorted(servers.lines().map(str::to_owned)));
    for line in node.run("ipset", &["save"])?.lines() {
        let name = line.split(' ').nth(1).context("a set without a name")?;
        // Its first seed of hashing, and what it was made for, differ by themselves.
        let line = line.split(" initval ").next().unwrap_or_default().to_owned();
        listing.entry(format!("ipset {name}")).or_default().push(line);
    }
    for (place, lines) in &mut listing {
        if place.starts_with("ipset ") {
            lines.sort();
        }
    }
    let addresses = node.run("ip", &["-o", "address", "show"])?;
    let address = |line: &str| line.split_whitespace().skip(1).take(3).collect::<Vec<_>>().join(" ");
    listing.insert("addresses".to_owned(), sorted(addresses.lines().map(address)));
    Ok(listing)
}

/// Ports above are those that the kernel gives (`net.ipv4.ip_local_port_range`).
const NODE_PORT_LAST: u16 = 32_767;

/// A line with a word in the place of each of some numbers.
fn without_numbers(line: &str, numbers: &BTreeSet<&str>) -> String {
    let words = line.split_inclusive(|c: char| !c.is_ascii_digit());
    words
        .map(|word| {
            let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            let end = &word[number.len()..];
            if numbers.contains(number) { format!("any{end}") } else { word.to_owned() }
        })
        .collect()
}

fn nft(text: &str) -> Result<Listing> {
    let mut listing = Listing::new();
    let (mut table, mut place, mut elements) = (String::new(), String::new(), None::<String>);
    for line in text.lines().map(str::trim) {
        if let Some(text) = &mut elements {
            text.push(' ');
            text.push_str(line);
        } else if let Some(head) = line.strip_suffix(" {") {
            let (kind, name) = head.split_once(' ').context("a block without a name")?;
            if kind == "table" {
                name.clone_into(&mut table);
            } else {
                place = format!("{kind} {table} {name}");
                listing.entry(place.clone()).or_default();
            }
        } else if let Some(first) = line.strip_prefix("elements = {") {
            elements = Some(first.to_owned());
        } else if !line.is_empty() && line != "}" {
            listing.entry(place.clone()).or_default().push(anonymous_sorted(line));
        }
        if let Some(text) = elements.take_if(|text| text.ends_with('}')) {
            let all = text.trim_end_matches('}').split(',').map(|element| element.trim().to_owned());
            listing.entry(place.clone()).or_default().extend(sorted(all));
        }
    }
    Ok(listing)
}

/// Replaces the numbers of slots and of remembered targets.
fn hide_numbers(listing: &mut Listing) {
    let mut remembered = BTreeMap::new();
    for (place, lines) in listing.iter().filter(|(place, _)| place.contains("affinity-targets")) {
        for line in lines {
            if let Some((key, target)) = line.split_once(" : ") {
                remembered.insert((family_of(place), key.to_owned()), target.to_owned());
            }
        }
    }
    for (place, lines) in listing.iter_mut() {
        for line in lines {
            let Some((key, target)) = line.split_once(" : ") else { continue };
            let Some((frontend, number)) = key.rsplit_once(" . ") else { continue };
            let hidden = if place.contains("affinity-targets") {
                format!("{frontend} . any : {target}")
            } else if place.contains("affinity-slots") {
                let known = remembered.get(&(family_of(place), format!("{frontend} . {target}")));
                format!("{frontend} . any : {}", known.map_or(target, String::as_str))
            } else if place.contains("endpoints") {
                let number = number.trim_end_matches(" counter");
                let pool = number.parse::<u32>().map_or(0, |slot| slot / POOL_SLOTS);
                format!("{frontend} . any of {pool} : {target}")
            } else {
                continue;
            };
            *line = hidden;
        }
    }
    for (_, lines) in listing.iter_mut().filter(|(place, _)| !place.starts_with("chain ")) {
        lines.sort();
    }
}

/// Slots of endpoints for sources of different kinds are this far apart.
const POOL_SLOTS: u32 = 1 << 17;

fn family_of(place: &str) -> Option<char> {
    place.chars().next_back()
}

/// Removes the numbers of chains that no frontend has.
fn drop_unnamed(listing: &mut Listing) {
    let mut named = BTreeSet::new();
    for (place, lines) in listing.iter() {
        let Some(chains) = chains_of(place) else { continue };
        let numbers = lines.iter().filter_map(|line| line.rsplit_once(" : "));
        named.extend(numbers.map(|(_, number)| (chains.clone(), number.to_owned())));
    }
    for (place, lines) in listing.iter_mut().filter(|(place, _)| place.contains("chains")) {
        lines.retain(|line| {
            let number = line.split_once(" : goto ").map(|(number, _)| number.to_owned());
            number.is_none_or(|number| named.contains(&(place.clone(), number)))
        });
    }
}

/// Where the numbers are explained that frontends have there: `chains-from4` for `services-from-node4`.
fn chains_of(frontends: &str) -> Option<String> {
    let (table, name) = frontends.strip_prefix("map inet tidegate").and(frontends.rsplit_once(' '))?;
    let stems = [("range-services", "range-"), ("services", ""), ("nodeports", "nodeport-")];
    let (rest, prefix) =
        stems.into_iter().find_map(|(stem, prefix)| Some((name.strip_prefix(stem)?, prefix)))?;
    let from = if rest.starts_with("-from-") { "-from" } else { "" };
    Some(format!("{table} {prefix}chains{from}{}", family_of(name)?))
}

/// Removes chains that no packet reaches.
fn drop_unreached(listing: &mut Listing) {
    let is_reached = |chain: &str, listing: &Listing| {
        let ends = [format!("goto {chain}"), format!("jump {chain}")];
        let mut lines = listing.values().flatten();
        lines.any(|line| ends.iter().any(|end| line.ends_with(end)))
    };
    let unreached: Vec<_> = listing
        .iter()
        .filter(|(place, lines)| {
            let is_base = lines.iter().any(|line| line.starts_with("type ") && line.contains(" hook "));
            let chain = place.strip_prefix("chain inet tidegate").and_then(|name| name.split(' ').nth(1));
            chain.is_some_and(|chain| !is_base && !is_reached(chain, listing))
        })
        .map(|(place, _)| place.clone())
        .collect();
    for place in unreached {
        listing.remove(&place);
    }
}

/// A rule whose anonymous set, if it has one, is sorted.
fn anonymous_sorted(line: &str) -> String {
    let Some(((head, elements), tail)) =
        line.rsplit_once('}').and_then(|(line, tail)| Some((line.split_once('{')?, tail)))
    else {
        return line.to_owned();
    };
    let elements = sorted(elements.split(',').map(|element| element.trim().to_owned()));
    format!("{head}{{ {} }}{tail}", elements.join(", "))
}

/// What the names of the chains end with that tell frontends apart.
const DISPATCH: [&str; 3] = ["-SERVICES", "-NODEPORTS", "-RANGES"];

fn rules(tool: &str, text: &str) -> Listing {
    let mut listing = Listing::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            // Behind the policy are counters.
            let name = chain.split(' ').next().unwrap_or_default();
            let policy = if line.ends_with(" - [0:0]") { line } else { "built in" };
            listing.entry(format!("{tool} {table} {name}")).or_default().push(policy.to_owned());
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let chain = rule.split(' ').next().unwrap_or_default();
            listing.entry(format!("{tool} {table} {chain}")).or_default().push(line.to_owned());
        }
    }
    for (place, rules) in &mut listing {
        if DISPATCH.iter().any(|chain| place.ends_with(chain)) {
            // The last rule for Services leads to node ports, after all others.
            let end = if place.ends_with(DISPATCH[0]) { rules.len().saturating_sub(1) } else { rules.len() };
            rules[..end].sort();
        }
    }
    listing
}

/// The lines in their order by bytes.
pub fn sorted(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort();
    lines
}
