//! Normalized dump of the kernel state of a node, by chain, set or map, for comparison of two states. Rules keep
//! their order; unordered items are sorted. The dump omits everything that has no effect on any packet:
//!
//! - counters, the element order of hash tables, and the port numbers that the kernel assigned to listening
//!   sockets;
//! - in nftables tables: the order of the slots of a frontend (map elements with a target, one of which is
//!   chosen at random for each connection), but not the number of slots per target; the numbers that identify
//!   targets in affinity maps; chains that nothing refers to, with their numbers, which the agent keeps for
//!   later frontends;
//! - in iptables chains that select rules by frontend: the order of rules, because at most the rules of one
//!   frontend match.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::netns::Namespace;
use anyhow::{Context, Result};

/// Lines of a kernel dump by the name of their chain, set or map.
pub type Listing = BTreeMap<String, Vec<String>>;

/// Dumps the rules and listening sockets of a node in any mode except ipvs.
///
/// # Errors
/// Returns an error if a tool fails or prints unexpected output.
pub fn of(node: &Namespace) -> Result<Listing> {
    let mut listing = nft(&node.run("nft", &["-n", "-s", "list", "ruleset"])?)?;
    hide_numbers(&mut listing);
    drop_unnamed(&mut listing);
    drop_unreached(&mut listing);
    // For iptables rules, the iptables tool lists more details.
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

/// Dumps the kernel state of a node in ipvs mode: virtual servers with their real servers, sets, rules, and
/// the addresses of the dummy device.
///
/// # Errors
/// Same as [`of`].
pub fn of_ipvs(node: &Namespace) -> Result<Listing> {
    let mut listing = Listing::new();
    for tool in ["iptables", "ip6tables"] {
        listing.extend(rules(tool, &node.run(&format!("{tool}-legacy-save"), &[])?));
    }
    let servers = node.run("ipvsadm", &["-S", "-n"])?;
    listing.insert("ipvs servers".to_owned(), sorted(servers.lines().map(str::to_owned)));
    for line in node.run("ipset", &["save"])?.lines() {
        let name = line.split(' ').nth(1).context("a set without a name")?;
        // The hash seed and the options at creation differ between runs.
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

/// Last port of the node port range. Higher ports are assigned by the kernel (`net.ipv4.ip_local_port_range`).
const NODE_PORT_LAST: u16 = 32_767;

/// Replaces each number in a line that is one of `numbers` by a placeholder.
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

/// Masks the numbers of slots (map elements with a target, from which one is chosen at random), and the
/// numbers that identify targets in affinity maps, because these differ between equivalent rulesets.
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

/// Number of slots in each range of slot numbers. Endpoints for different kinds of client source use
/// different ranges.
const POOL_SLOTS: u32 = 1 << 17;

fn family_of(place: &str) -> Option<char> {
    place.chars().next_back()
}

/// Removes the map elements that lead to chains which no frontend uses. The agent keeps such chains for later
/// frontends.
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

/// Returns the name of the map from chain numbers to chains that belongs to a map of frontends, such as
/// `chains-from4` for `services-from-node4`; `None` for other maps.
fn chains_of(frontends: &str) -> Option<String> {
    let (table, name) = frontends.strip_prefix("map inet tidegate").and(frontends.rsplit_once(' '))?;
    let stems = [("range-services", "range-"), ("services", ""), ("nodeports", "nodeport-")];
    let (rest, prefix) =
        stems.into_iter().find_map(|(stem, prefix)| Some((name.strip_prefix(stem)?, prefix)))?;
    let from = if rest.starts_with("-from-") { "-from" } else { "" };
    Some(format!("{table} {prefix}chains{from}{}", family_of(name)?))
}

/// Removes the chains that packets cannot reach from any base chain.
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

/// Sorts the elements of the anonymous set in a rule. A rule without such a set is returned unchanged.
fn anonymous_sorted(line: &str) -> String {
    let Some(((head, elements), tail)) =
        line.rsplit_once('}').and_then(|(line, tail)| Some((line.split_once('{')?, tail)))
    else {
        return line.to_owned();
    };
    let elements = sorted(elements.split(',').map(|element| element.trim().to_owned()));
    format!("{head}{{ {} }}{tail}", elements.join(", "))
}

/// Name suffixes of the iptables chains that select the chain of a frontend by its address and port.
const DISPATCH: [&str; 3] = ["-SERVICES", "-NODEPORTS", "-RANGES"];

fn rules(tool: &str, text: &str) -> Listing {
    let mut listing = Listing::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            // Counters follow the policy.
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
            // The last rule for Services jumps to node ports, after all others.
            let end = if place.ends_with(DISPATCH[0]) { rules.len().saturating_sub(1) } else { rules.len() };
            rules[..end].sort();
        }
    }
    listing
}

/// Sorts lines by bytes.
pub fn sorted(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort();
    lines
}
