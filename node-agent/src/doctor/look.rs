//! Collects the machine data that the checks of `tidegate-agent doctor` evaluate. Changes nothing.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    process::{Command, Stdio},
};

use ::kernel::service_routes;
use dataplane::iptables::Flavour;

use super::{
    chains::{Chain, Family, TableTool},
    holders::{self, Holders},
    iptables, kernel, resolver,
    seen::MachineFacts,
    served,
};
use crate::facts;

/// Maximum output of a tool in bytes. The rules of kube-proxy for ten thousand Services take some ten million
/// bytes.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of a file with resolver settings in bytes.
const SETTINGS_BYTES_MAX: u64 = 64 << 10;
/// Names of the iptables tables within nf_tables.
const IPTABLES_TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// Collects the data for all checks; data that cannot be read is listed in `unseen`.
pub(super) fn look() -> MachineFacts {
    let Holders { announcers, name_servers } = holders::find();
    let mut seen = MachineFacts {
        conntrack_count: sysctl("net/netfilter/nf_conntrack_count"),
        conntrack_max: sysctl("net/netfilter/nf_conntrack_max"),
        conntrack_helper: sysctl("net/netfilter/nf_conntrack_helper"),
        arp: ["arp_ignore", "arp_announce"].map(|name| sysctl(&format!("net/ipv4/conf/all/{name}"))),
        bridge_calls: ["iptables", "ip6tables"]
            .map(|name| sysctl(&format!("net/bridge/bridge-nf-call-{name}"))),
        holders: announcers,
        name_servers,
        resolver: resolver_settings(),
        ..MachineFacts::default()
    };
    let subnets = facts::collect().subnets;
    seen.with_network = [true, false].map(|is_v4| {
        let has =
            |networks: &[ipnet::IpNet]| networks.iter().any(|network| network.addr().is_ipv4() == is_v4);
        subnets.iter().filter(|(_, networks)| has(networks)).map(|(name, _)| name.clone()).collect()
    });
    let mut unseen = Vec::new();
    let mut note = |what: &str, error: io::Error| unseen.push(format!("{what}: {error}"));
    seen.links = kernel::links().unwrap_or_else(|error| {
        note("interfaces", error);
        Vec::new()
    });
    seen.routing_rules = kernel::routing_rules().unwrap_or_else(|error| {
        note("rules of routing", error);
        Vec::new()
    });
    seen.service_routes = service_routes::ranges().unwrap_or_else(|error| {
        note("routes to the Service ranges", error);
        BTreeSet::new()
    });
    match kernel::chains() {
        Ok(chains) => seen.chains = chains,
        // A kernel without nf_tables has no rules to read.
        Err(error) if is_absent(&error) => {}
        Err(error) => note("rules of nf_tables", error),
    }
    read_iptables(&mut seen.chains, &mut note);
    seen.served = served::find(&seen.chains).unwrap_or_else(|error| {
        note("frontends of Services", error);
        Vec::new()
    });
    seen.unseen = unseen;
    seen
}

/// Replaces the iptables tables in `chains`, which were read by netlink, with the same tables as printed by
/// the iptables tools, because only these tools decode all extensions. Also adds the tables of
/// `iptables-legacy`, which are not part of nf_tables.
fn read_iptables(chains: &mut Vec<Chain>, note: &mut impl FnMut(&str, io::Error)) {
    for family in [Family::Ip, Family::Ip6] {
        let is_of_iptables = |chain: &Chain| {
            chain.place.keeper == TableTool::Nft
                && chain.place.family == family
                && IPTABLES_TABLES.contains(&chain.place.table.as_str())
        };
        if chains.iter().any(is_of_iptables) {
            // Without the tool, the data from nf_tables is used.
            if let Ok(text) = output(&format!("{}-nft-save", family.tool())) {
                chains.retain(|chain| !is_of_iptables(chain));
                chains.extend(iptables::chains(Flavour::Nft, family, &text));
            }
        }
        let names = match family {
            Family::Ip | Family::Inet => "ip_tables_names",
            Family::Ip6 => "ip6_tables_names",
        };
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
        if !tables.trim().is_empty() {
            match output(&format!("{}-legacy-save", family.tool())) {
                Ok(text) => chains.extend(iptables::chains(Flavour::Legacy, family, &text)),
                Err(error) => note(&format!("legacy rules of {}", family.tool()), error),
            }
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    let absent = [io::ErrorKind::Unsupported, io::ErrorKind::InvalidInput, io::ErrorKind::NotFound];
    absent.contains(&error.kind())
}

/// Reads the settings with which programs resolve names. A missing list of sources means DNS alone.
fn resolver_settings() -> Option<resolver::ResolverSettings> {
    let read = |path: &str| {
        let mut text = String::new();
        fs::File::open(path).ok()?.take(SETTINGS_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let sources = read("/etc/nsswitch.conf").unwrap_or_default();
    Some(resolver::parse(&read("/etc/resolv.conf")?, &sources))
}

fn sysctl(path: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok()
}

/// Directories searched for programs in addition to `PATH`.
const MORE_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// Runs a program and returns its standard output, or an error if the program fails.
fn output(program: &str) -> io::Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:{MORE_PATHS}")).env("LC_ALL", "C");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut printed = Vec::new();
    let read = match child.stdout.take() {
        Some(out) => out.take(OUTPUT_BYTES_MAX).read_to_end(&mut printed),
        None => Ok(0),
    };
    if read.is_err() || printed.len() as u64 == OUTPUT_BYTES_MAX {
        // The program may still be writing, but its output is no longer read.
        let _gone = child.kill();
    }
    let status = child.wait()?;
    read?;
    if !status.success() {
        return Err(io::Error::other(format!("{program}: {status}")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}
