//! iptables rules around the virtual servers, as text. Their number does not depend on the Services.
//!
//! ```text
//! new connection ─▶ nat PREROUTING, OUTPUT: marks packets to masquerade
//!                ─▶ filter INPUT: source ranges, rejects, closed ports      (from outside and to unserved ports)
//!                ─▶ IPVS, at the end of INPUT and at the start of OUTPUT
//!                ─▶ nat POSTROUTING: masquerades
//! ```
//! Packets forwarded by IPVS traverse INPUT with the client's address and the virtual address, and never
//! FORWARD, so the filter rules are in INPUT. Packets to an address of the Service ranges that is not local, because no
//! Service has it, are dropped in FORWARD and OUTPUT.

use model::{
    kinds::node::Naming,
    primitives::net::IpFamily,
    wire::plan::{LineChange, LineFate},
};

use super::sets::{Set, SetKind, prefix};

/// Settings of a node that influence the iptables rules of the ipvs backend.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Naming scheme of chains and sets.
    pub naming: Naming,
    /// Packet mark that requests masquerading.
    pub masquerade_mark: u32,
    /// True if forwarded packets in the conntrack state INVALID are dropped.
    pub drop_invalid: bool,
}

/// Contents of one iptables table that belong to this backend, in the format of `iptables-save`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedTable {
    /// Name of the iptables table: `nat` or `filter`.
    pub name: &'static str,
    /// Names of the chains that belong to this backend.
    pub chains: Vec<String>,
    /// Rules in built-in chains, in order. Each must be at the head of its chain.
    pub jumps: Vec<String>,
    /// Rules in the chains of this backend, in order.
    pub rules: Vec<String>,
}

/// Returns the wanted contents of the tables `nat` and `filter` for one address family.
#[must_use]
pub fn tables(family: IpFamily, options: Options) -> [SavedTable; 2] {
    [nat(family, options), filter(family, options)]
}

fn nat(family: IpFamily, options: Options) -> SavedTable {
    let p = prefix(options.naming);
    let mark = options.masquerade_mark;
    let set = |kind| Set { kind, family }.name(options.naming);
    let at = |kind| format!("-m set --match-set {} dst,dst", set(kind));
    let from = |kind| format!("-m set --match-set {} src", set(kind));
    let port = |kind| format!("-m set --match-set {} dst", set(kind));
    let loopback = match family {
        IpFamily::V4 => "127.0.0.0/8",
        IpFamily::V6 => "::1/128",
    };
    let services = [
        format!("-s {loopback} -j RETURN"),
        // A client on the node without an explicit source address gets the virtual address, to which no
        // endpoint could reply.
        format!("{} {} -j {p}-MARK-MASQ", from(SetKind::Addresses), at(SetKind::Servers)),
        format!("{} {} -j {p}-MARK-MASQ", at(SetKind::ClusterIp), from(SetKind::MasqueradeSources)),
        format!("{} -j ACCEPT", at(SetKind::ClusterIp)),
        format!("{} -j {p}-NODE-ONLY", at(SetKind::LoadBalancerLocal)),
        format!("{} -j {p}-MARK-MASQ", at(SetKind::LoadBalancer)),
        format!("{} -j ACCEPT", at(SetKind::LoadBalancer)),
        format!("{} -j {p}-NODE-ONLY", at(SetKind::ExternalIpLocal)),
        format!("{} -j {p}-MARK-MASQ", at(SetKind::ExternalIp)),
        format!("-m addrtype --dst-type LOCAL -j {p}-NODE-PORT"),
        format!("{} -j ACCEPT", at(SetKind::Servers)),
    ];
    let node_port = [
        format!("-p tcp {} -j {p}-NODE-ONLY", port(SetKind::NodePortLocalTcp)),
        format!("-p tcp {} -j {p}-MARK-MASQ", port(SetKind::NodePortTcp)),
        format!("-p udp {} -j {p}-NODE-ONLY", port(SetKind::NodePortLocalUdp)),
        format!("-p udp {} -j {p}-MARK-MASQ", port(SetKind::NodePortUdp)),
        format!("-p sctp {} -j {p}-NODE-ONLY", at(SetKind::NodePortLocalSctp)),
        format!("-p sctp {} -j {p}-MARK-MASQ", at(SetKind::NodePortSctp)),
    ];
    let node_only = [
        format!("{} -j ACCEPT", from(SetKind::Workloads)),
        format!("-m addrtype --src-type LOCAL -j {p}-MARK-MASQ"),
        "-j ACCEPT".to_owned(),
    ];
    let postrouting = [
        format!("-m set --match-set {} dst,dst,src -j MASQUERADE", set(SetKind::LoopBack)),
        format!("-m mark ! --mark {mark:#x}/{mark:#x} -j RETURN"),
        // The mark is cleared, so that a packet that passes again is not translated twice.
        format!("-j MARK --set-xmark {mark:#x}/0x0"),
        "-j MASQUERADE --random-fully".to_owned(),
    ];
    let mark_masq = [format!("-j MARK --set-xmark {mark:#x}/{mark:#x}")];
    let jumps = [("OUTPUT", "SERVICES"), ("POSTROUTING", "POSTROUTING"), ("PREROUTING", "SERVICES")];
    table(
        "nat",
        p,
        &jumps,
        &[
            ("MARK-MASQ", &mark_masq),
            ("NODE-ONLY", &node_only),
            ("NODE-PORT", &node_port),
            ("POSTROUTING", &postrouting),
            ("SERVICES", &services),
        ],
    )
}

fn filter(family: IpFamily, options: Options) -> SavedTable {
    let p = prefix(options.naming);
    let mark = options.masquerade_mark;
    let set = |kind| Set { kind, family }.name(options.naming);
    let at = |kind| format!("-m set --match-set {} dst,dst", set(kind));
    let from = |kind| format!("-m set --match-set {} src", set(kind));
    let port_unreachable = match family {
        IpFamily::V4 => "icmp-port-unreachable",
        IpFamily::V6 => "icmp6-port-unreachable",
    };
    let ranges = [
        format!("-m set --match-set {} dst,dst,src -j RETURN", set(SetKind::SourceCidr)),
        "-m addrtype --src-type LOCAL -j RETURN".to_owned(),
        "-j DROP".to_owned(),
    ];
    let outside = [
        format!("{} -j RETURN", from(SetKind::Workloads)),
        "-m addrtype --src-type LOCAL -j RETURN".to_owned(),
        "-j DROP".to_owned(),
    ];
    let refuse = [
        "-p tcp -j REJECT --reject-with tcp-reset".to_owned(),
        format!("-j REJECT --reject-with {port_unreachable}"),
    ];
    let closed = |protocol| {
        format!("-p {protocol} -m set --match-set {} dst -j {p}-IPVS-REFUSE", set(SetKind::Addresses))
    };
    let input = [
        format!("{} -j {p}-SOURCE-RANGES", at(SetKind::Firewall)),
        format!("{} -j DROP", at(SetKind::Drop)),
        format!("{} -j {p}-IPVS-OUTSIDE", at(SetKind::DropOutside)),
        format!("{} -j {p}-IPVS-REFUSE", at(SetKind::Reject)),
        format!("{} -j RETURN", at(SetKind::Servers)),
        closed("tcp"),
        closed("udp"),
        closed("sctp"),
    ];
    let health = [format!("-p tcp -m set --match-set {} dst -j ACCEPT", set(SetKind::HealthCheck))];
    let mut forward = vec![
        format!("-m mark --mark {mark:#x}/{mark:#x} -j ACCEPT"),
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".to_owned(),
    ];
    if options.drop_invalid {
        forward.insert(0, "-m conntrack --ctstate INVALID -j DROP".to_owned());
    }
    let unassigned = [format!(
        "-m set --match-set {} dst -m addrtype ! --dst-type LOCAL -j DROP",
        set(SetKind::ServiceRanges)
    )];
    let jumps = [
        ("FORWARD", "IPVS-UNASSIGNED"),
        ("FORWARD", "FORWARD"),
        ("INPUT -m conntrack --ctstate NEW", "IPVS-FILTER"),
        ("INPUT", "NODE-PORT"),
        ("OUTPUT", "IPVS-UNASSIGNED"),
    ];
    table(
        "filter",
        p,
        &jumps,
        &[
            ("FORWARD", &forward),
            ("IPVS-FILTER", &input),
            ("IPVS-OUTSIDE", &outside),
            ("IPVS-REFUSE", &refuse),
            ("IPVS-UNASSIGNED", &unassigned),
            ("NODE-PORT", &health),
            ("SOURCE-RANGES", &ranges),
        ],
    )
}

fn table(
    name: &'static str,
    prefix: &str,
    jumps: &[(&str, &str)],
    chains: &[(&str, &[String])],
) -> SavedTable {
    let rules = |(chain, rules): &(&str, &[String])| {
        rules.iter().map(|rule| format!("-A {prefix}-{chain} {rule}")).collect::<Vec<_>>()
    };
    SavedTable {
        name,
        chains: chains.iter().map(|(chain, _)| format!("{prefix}-{chain}")).collect(),
        jumps: jumps.iter().map(|(place, chain)| format!("-A {place} -j {prefix}-{chain}")).collect(),
        rules: chains.iter().flat_map(rules).collect(),
    }
}

/// Returns the lines of an `iptables-save` listing that belong to this backend: rules in its chains, and
/// jumps to them.
#[must_use]
pub fn ours(listing: &str, table: &SavedTable) -> Vec<String> {
    let is_of_chain = |line: &str| {
        let chain = line.strip_prefix("-A ").and_then(|rest| rest.split(' ').next());
        chain.is_some_and(|chain| table.chains.iter().any(|own| own == chain))
    };
    let jumps_there = |line: &str| table.chains.iter().any(|own| line.ends_with(&format!("-j {own}")));
    let lines = listing.lines().map(str::trim).filter(|line| line.starts_with("-A "));
    lines.filter(|line| is_of_chain(line) || jumps_there(line)).map(str::to_owned).collect()
}

/// Returns true if a listing contains any of the table's chains.
#[must_use]
pub fn has_chains(listing: &str, table: &SavedTable) -> bool {
    table.chains.iter().any(|chain| listing.lines().any(|line| line.starts_with(&format!(":{chain} "))))
}

/// Returns true if a listing contains exactly the wanted rules of each chain in order, and exactly the wanted
/// jumps.
#[must_use]
pub fn is_right(listing: &str, table: &SavedTable) -> bool {
    let found: Vec<_> = ours(listing, table);
    let (in_chains, jumps): (Vec<_>, Vec<_>) = found.into_iter().partition(|line| table.rules.contains(line));
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    in_chains.len() == table.rules.len()
        && same_order(&in_chains, &table.rules)
        && sorted(jumps) == sorted(table.jumps.clone())
}

/// Returns true if each chain has its rules in order; the order of chains is irrelevant.
fn same_order(found: &[String], wanted: &[String]) -> bool {
    let chain = |line: &&String| line.split(' ').nth(1).map(str::to_owned);
    let of = |lines: &[String], name: &Option<String>| {
        lines.iter().filter(|line| chain(line) == *name).cloned().collect::<Vec<_>>()
    };
    wanted.iter().all(|line| {
        let name = chain(&line);
        of(found, &name) == of(wanted, &name)
    })
}

/// Builds the `iptables-restore --noflush` input that repairs a table, given its listing.
#[must_use]
pub fn restore(listing: &str, table: &SavedTable) -> String {
    let mut text = format!("*{}\n", table.name);
    for chain in &table.chains {
        // Declaring a chain creates or flushes it.
        text += &format!(":{chain} - [0:0]\n");
    }
    text += &without_jumps(listing, table);
    for jump in table.jumps.iter().rev() {
        text += &format!("{}\n", inserted(listing, table, jump));
    }
    for rule in &table.rules {
        text += &format!("{rule}\n");
    }
    text + "COMMIT\n"
}

/// Returns the lines of `iptables-save` that [`restore`] removes and adds.
#[must_use]
pub fn differences(family: IpFamily, listing: &str, table: &SavedTable) -> Vec<LineChange> {
    let tool = match family {
        IpFamily::V4 => "iptables",
        IpFamily::V6 => "ip6tables",
    };
    let change = |change, line| LineChange { change, place: format!("{tool} {}", table.name), line };
    let is_there = |chain: &&String| listing.lines().any(|line| line.starts_with(&format!(":{chain} ")));
    let made = table.chains.iter().filter(|chain| !is_there(chain)).map(|chain| format!(":{chain} - [0:0]"));
    let mut come: Vec<_> = made.chain(table.jumps.iter().chain(&table.rules).cloned()).collect();
    let mut gone = ours(listing, table);
    gone.retain(|line| match come.iter().position(|other| other == line) {
        Some(same) => {
            come.remove(same);
            false
        }
        None => true,
    });
    let gone = gone.into_iter().map(|line| change(LineFate::Removed, line));
    gone.chain(come.into_iter().map(|line| change(LineFate::Added, line))).collect()
}

/// Returns the `iptables-restore` line that inserts a jump at the head of its chain, but after the jumps of
/// iptables mode. While iptables mode is being replaced, its jumps must still translate new connections
/// first: a packet that a chain of this backend accepts would skip that translation, and then match the
/// reject rules of iptables mode.
fn inserted(listing: &str, table: &SavedTable, jump: &str) -> String {
    let place = jump.split(' ').nth(1).unwrap_or_default();
    let theirs = |line: &&str| line.split(" -j ").nth(1).is_some_and(|target| target.starts_with("TG-"));
    let head = format!("-A {place} ");
    let rules = listing.lines().map(str::trim).filter(|line| line.starts_with(&head));
    let rules = rules.filter(|line| !ours(line, table).contains(&(*line).to_owned()));
    let position = 1 + rules.take_while(theirs).count();
    jump.replacen(&format!("-A {place}"), &format!("-I {place} {position}"), 1)
}

/// Builds the `iptables-restore --noflush` input that removes a table's chains, given its listing; `None` if
/// there are none.
#[must_use]
pub fn remove(listing: &str, table: &SavedTable) -> Option<String> {
    if !has_chains(listing, table) {
        return None;
    }
    let there = |chain: &&String| listing.lines().any(|line| line.starts_with(&format!(":{chain} ")));
    let chains: Vec<_> = table.chains.iter().filter(there).collect();
    let mut text = format!("*{}\n", table.name);
    for chain in &chains {
        text += &format!(":{chain} - [0:0]\n");
    }
    text += &without_jumps(listing, table);
    for chain in &chains {
        text += &format!("-X {chain}\n");
    }
    Some(text + "COMMIT\n")
}

/// Builds the script that removes only the jumps, so that new packets traverse none of the backend's rules.
#[must_use]
pub fn retire(listing: &str, table: &SavedTable) -> String {
    format!("*{}\n{}COMMIT\n", table.name, without_jumps(listing, table))
}

fn without_jumps(listing: &str, table: &SavedTable) -> String {
    let is_foreign_place = |line: &&String| {
        let chain = line.split(' ').nth(1).unwrap_or_default();
        !table.chains.iter().any(|own| own == chain)
    };
    let jumps = ours(listing, table).into_iter();
    jumps
        .filter(|line| is_foreign_place(&line))
        .map(|line| format!("{}\n", line.replacen("-A ", "-D ", 1)))
        .collect()
}
