//! Text dumps of the kernel state of a namespace: nftables tables, addresses, routes and conntrack entries.
//! Dumps of equal states are equal byte by byte.

use std::{collections::BTreeSet, fs};

use anyhow::Result;

use crate::host::{netns::Namespace, shell};

/// Returns all nftables tables without counter values.
///
/// # Errors
/// Returns an error if `nft` fails.
pub fn ruleset(namespace: &Namespace) -> Result<String> {
    namespace.run("nft", &["-s", "-n", "list", "ruleset"])
}

/// Returns one nftables table, such as `inet mine`.
///
/// # Errors
/// Returns an error if there is no such table.
pub fn table(namespace: &Namespace, table: &str) -> Result<String> {
    let mut arguments = vec!["-n", "list", "table"];
    arguments.extend(table.split_whitespace());
    namespace.run("nft", &arguments)
}

/// Returns the names of all nftables tables, each as `family name`.
///
/// # Errors
/// Returns an error if `nft` fails.
pub fn tables(namespace: &Namespace) -> Result<Vec<String>> {
    let listing = namespace.run("nft", &["list", "tables"])?;
    Ok(listing.lines().filter_map(|line| line.strip_prefix("table ")).map(str::to_owned).collect())
}

/// Loads nftables rules, given as an `nft` script, into a namespace.
///
/// # Errors
/// Returns an error if the rules are invalid.
pub fn load(namespace: &Namespace, rules: &str) -> Result<()> {
    namespace.run_with_input("nft", &["-f", "-"], rules).map(drop)
}

/// Returns the addresses, routes and policy rules of a namespace.
///
/// # Errors
/// Returns an error if `ip` fails.
pub fn network(namespace: &Namespace) -> Result<String> {
    let mut text = String::new();
    for what in [
        &["-br", "address"][..],
        &["route", "show", "table", "all"],
        &["-6", "route", "show", "table", "all"],
        &["rule"],
    ] {
        let mut arguments = vec!["-n", namespace.name()];
        arguments.extend(what);
        text += &shell::run("ip", &arguments)?;
    }
    Ok(text)
}

/// Returns the conntrack entries of a protocol, one per element.
///
/// # Errors
/// Returns an error if `conntrack` fails.
pub fn conntrack(namespace: &Namespace, protocol: &str) -> Result<Vec<String>> {
    let listing = namespace.run("conntrack", &["-L", "-p", protocol])?;
    Ok(listing.lines().map(str::to_owned).collect())
}

/// Returns the names of all objects that a test run can leave on this machine: network namespaces named after
/// this process, links, and nftables tables. Tables are left out while an agent runs in the network namespace of this process,
/// because it changes its own at any time.
///
/// # Errors
/// Returns an error if a tool fails.
pub fn host() -> Result<BTreeSet<String>> {
    let own = format!("tg-{}-", std::process::id());
    let namespaces = shell::run("ip", &["netns", "list"])?;
    let namespaces =
        namespaces.lines().filter(|line| line.starts_with(&own)).map(|line| format!("namespace {line}"));
    let links = shell::run("ip", &["-br", "link"])?;
    let links =
        links.lines().filter_map(|line| line.split_whitespace().next()).map(|name| format!("link {name}"));
    let tables = if is_node() { String::new() } else { shell::run("nft", &["list", "tables"])? };
    Ok(namespaces.chain(links).chain(tables.lines().map(str::to_owned)).collect())
}

/// Returns true if a `tidegate-agent` runs in the network namespace of this process.
fn is_node() -> bool {
    let own = fs::read_link("/proc/self/ns/net").ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    own.is_some()
        && processes
            .filter(|process| {
                fs::read_link(process.join("exe")).is_ok_and(|program| program.ends_with("tidegate-agent"))
            })
            .any(|process| fs::read_link(process.join("ns/net")).ok() == own)
}
