//! Listing format of the `nft` command (`nft -n -s list table`): lines that a plan adds and removes. Does no
//! I/O.
//!
//! Rules have the format of `nft` 1.0.6. This version omits the parts of a rule that it can infer. If a rule
//! redirects to a port in a register, it omits most of the rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use kernel::nftables::{expr::HASH_SEED, nfproto};
use model::{
    primitives::net::{self, IpFamily},
    program::{Destination, Frontend, Masquerade, Target},
    wire::plan::{LineChange, LineFate},
};

use super::{
    definition::set_shape,
    element::{Edge, GroupId, SetElement, Span, TargetId, place},
    mirror::NftablesMirror,
    number,
    plan::{Change, Plan},
    render,
    schema::{Chain, Choice, LookupType, NetworkSet, Pick, SetId, SetRole, Treatment},
};

/// Settings of the table that its listing shows.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Mark bit that requests masquerading.
    pub mark_bit: u32,
}

/// Returns the lines that a plan would remove and add; `None` if the plan would change the part of the table that
/// does not depend on Services, because this listing does not cover it.
#[must_use]
pub fn changes(mirror: &NftablesMirror, plan: &Plan, setting: Setting<'_>) -> Option<Vec<LineChange>> {
    if !plan.structure.is_empty() {
        return None;
    }
    let changes: Vec<Change> = plan.groups.values().flatten().copied().collect();
    let is_missing = |pick: &Pick| !mirror.structure.chains.contains_key(&Chain::Pick(*pick));
    let mut lines: Vec<LineChange> = render::picks(&changes)
        .into_iter()
        .filter(is_missing)
        .flat_map(|pick| {
            let place = format!("chain inet {} {pick}", setting.table);
            rules(pick, setting.mark_bit).into_iter().map(move |line| added(&place, line))
        })
        .collect();
    let mut edges: BTreeMap<(NetworkSet, IpFamily), BTreeSet<Edge>> = BTreeMap::new();
    for change in &changes {
        let (Change::Add(element) | Change::Remove(element)) = change;
        if let SetElement::Network(set, edge) = *element {
            let family = IpFamily::of(edge.address);
            let held = mirror
                .networks
                .iter()
                .filter(|(of, edge)| *of == set && IpFamily::of(edge.address) == family);
            let edges = edges.entry((set, family)).or_insert_with(|| held.map(|(_, edge)| *edge).collect());
            match change {
                Change::Add(_) => edges.insert(edge),
                Change::Remove(_) => edges.remove(&edge),
            };
            continue;
        }
        let place = place_of(element.set(), setting.table);
        lines.push(match change {
            Change::Add(_) => added(&place, line(element)),
            Change::Remove(_) => removed(&place, line(element)),
        });
    }
    for ((set, family), after) in edges {
        let place = place_of(SetId::new(SetRole::Networks(set), family), setting.table);
        let held =
            mirror.networks.iter().filter(|(of, edge)| *of == set && IpFamily::of(edge.address) == family);
        let (before, after) =
            (intervals(&held.map(|(_, edge)| *edge).collect(), family), intervals(&after, family));
        lines.extend(before.difference(&after).map(|line| removed(&place, line.clone())));
        lines.extend(after.difference(&before).map(|line| added(&place, line.clone())));
    }
    lines.sort();
    // Several Services may add the number of the same chain.
    lines.dedup();
    Some(lines)
}

fn added(place: &str, line: String) -> LineChange {
    LineChange { change: LineFate::Added, place: place.to_owned(), line }
}

fn removed(place: &str, line: String) -> LineChange {
    LineChange { change: LineFate::Removed, place: place.to_owned(), line }
}

/// Returns the heading under which a preview lists the elements of a set or map: the arguments of `nft list`
/// that show it.
pub(super) fn place_of(set: SetId, table: &str) -> String {
    let kind = if set_shape(set).data_type == 0 { "set" } else { "map" };
    format!("{kind} inet {table} {set}")
}

/// Formats an element as in a listing of its set. Network boundaries are not supported here, because `nft`
/// lists them as intervals.
pub(super) fn line(element: &SetElement) -> String {
    match element {
        SetElement::Chain(_, dispatch) => {
            format!("{:#010x} : goto {}", number::number(*dispatch), dispatch.chain())
        }
        SetElement::Dispatch(frontend, dispatch) | SetElement::DispatchFrom(frontend, _, dispatch) => {
            format!("{} : {:#010x}", key(frontend), number::number(*dispatch))
        }
        SetElement::Slot(frontend, slot, target) => {
            format!("{} . {} counter : {}", key(frontend), slot.number(), target_text(target))
        }
        SetElement::AffinityGroup(frontend, GroupId(id)) => format!("{} : {id:#010x}", key(frontend)),
        SetElement::AffinitySlot(frontend, slot, TargetId(id)) => {
            format!("{} . {} : {id:#010x}", key(frontend), slot.number())
        }
        SetElement::AffinityTarget(frontend, _, TargetId(id), target) => {
            format!("{} . {id:#010x} counter : {}", key(frontend), target_text(target))
        }
        SetElement::Allowed(frontend, span) => format!("{} . {}", key(frontend), interval(*span)),
        SetElement::Range(frontend) => {
            let address = match frontend.destination {
                Destination::Address(address) => format!("{address} . "),
                Destination::AnyLocal(_) => String::new(),
            };
            let (first, last) = (frontend.ports.first(), frontend.ports.last());
            // As a value, `nft` 1.0.6 prints the word in network byte order.
            let word = (u32::from(first.get()) << 16) | u32::from(last.get());
            format!("{address}{} . {first}-{last} : {word:#010x}", frontend.protocol.number())
        }
        SetElement::Failover(frontend) => key(frontend),
        SetElement::VirtualAddress(address) => address.to_string(),
        SetElement::Hairpin(address) => format!("{address} . {address}"),
        SetElement::Network(_, Edge { address, .. }) => address.to_string(),
    }
}

pub(super) fn key(frontend: &Frontend) -> String {
    let address = match frontend.destination {
        Destination::Address(address) => format!("{address} . "),
        Destination::AnyLocal(_) => String::new(),
    };
    let port = match place(frontend) {
        LookupType::Range => range_word(frontend),
        LookupType::Address | LookupType::NodePort => frontend.ports.first().to_string(),
    };
    format!("{address}{} . {port}", frontend.protocol.number())
}

/// Formats the key field of a port range as `nft` prints it: as a packet mark, a number in host byte order.
fn range_word(frontend: &Frontend) -> String {
    let ([a, b], [c, d]) =
        (frontend.ports.first().get().to_be_bytes(), frontend.ports.last().get().to_be_bytes());
    format!("{:#010x}", u32::from_ne_bytes([a, b, c, d]))
}

fn target_text(target: &Target) -> String {
    format!("{} . {}", target.address, target.port.map_or(0, model::primitives::quantity::Port::get))
}

/// Formats the networks that the boundaries delimit, one string per network.
fn intervals(edges: &BTreeSet<Edge>, family: IpFamily) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut edges = edges.iter().peekable();
    while let Some(edge) = edges.next() {
        if edge.is_end {
            continue;
        }
        let before = |end: &Edge| net::from_number(family, net::to_number(end.address).saturating_sub(1));
        let last = edges.peek().and_then(|next| before(next)).unwrap_or(last_of(family));
        lines.insert(interval(Span { first: edge.address, last }));
    }
    lines
}

const fn last_of(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::V4(std::net::Ipv4Addr::BROADCAST),
        IpFamily::V6 => IpAddr::V6(std::net::Ipv6Addr::from_bits(u128::MAX)),
    }
}

/// Formats an address range in the shortest form: address, network, or first and last address.
fn interval(Span { first, last }: Span) -> String {
    let (from, to) = (net::to_number(first), net::to_number(last));
    let host_bits = (from ^ to).trailing_ones();
    let width: u32 = match IpFamily::of(first) {
        IpFamily::V4 => 32,
        IpFamily::V6 => 128,
    };
    let is_network = (from ^ to).checked_add(1).is_none_or(u128::is_power_of_two)
        && host_bits <= from.trailing_zeros().min(width);
    match host_bits {
        0 if from == to => first.to_string(),
        bits if is_network => format!("{first}/{}", width - bits),
        _ => format!("{first}-{last}"),
    }
}

/// Formats the rules of a pick chain (which picks a target slot), for both address families.
fn rules(pick: Pick, mark_bit: u32) -> Vec<String> {
    let mark = format!("meta mark set meta mark | {mark_bit:#010x}");
    let mut rules: Vec<String> = match pick.masquerade {
        Masquerade::Never => Vec::new(),
        Masquerade::Always => vec![mark],
        Masquerade::OffCluster => IpFamily::ALL
            .map(|family| {
                let set = SetId::new(SetRole::Networks(NetworkSet::MasqueradeSources), family);
                format!("{} saddr @{set} {mark}", protocol(family))
            })
            .to_vec(),
    };
    let words = IpFamily::ALL.map(|family| Words { pick, family });
    if let Some(seconds) = pick.affinity_seconds {
        rules.extend(words.iter().flat_map(|words| words.affinity(seconds)));
    }
    rules.extend(words.iter().map(Words::choose));
    rules.push("drop".to_owned());
    rules
}

const fn protocol(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    }
}

/// Formatter of the rules of one chain that picks a target, for one address family.
struct Words {
    pick: Pick,
    family: IpFamily,
}

impl Words {
    fn set(&self, role: SetRole) -> SetId {
        SetId::new(role, self.family)
    }

    fn source(&self) -> String {
        format!("{} saddr", protocol(self.family))
    }

    /// Returns the statements that precede the key of the frontend: for port ranges, the lookup of the range.
    fn prelude(&self) -> String {
        match self.pick.place {
            LookupType::Range => {
                let (ip, ranges) = (protocol(self.family), self.set(SetRole::Ranges));
                format!(
                    "meta mark set {ip} daddr . meta l4proto . th dport map @{ranges} meta mark set meta mark "
                )
            }
            LookupType::Address | LookupType::NodePort => String::new(),
        }
    }

    /// Returns the expression that loads the key of the frontend.
    fn key(&self) -> String {
        let ip = protocol(self.family);
        match self.pick.place {
            LookupType::Address => format!("{ip} daddr . meta l4proto . th dport"),
            LookupType::Range => format!("{ip} daddr . meta l4proto . meta mark"),
            LookupType::NodePort => "meta l4proto . th dport".to_owned(),
        }
    }

    /// Returns the expression that picks the number of a target slot.
    fn slot(&self) -> String {
        let Pick { slots, pool, choice, .. } = self.pick;
        let offset = match pool.offset() {
            0 => String::new(),
            offset => format!(" offset {offset}"),
        };
        let source = self.source();
        match choice {
            Choice::Random => format!("numgen random mod {slots}{offset}"),
            Choice::SourceAddress => format!("jhash {source} mod {slots} seed {HASH_SEED:#x}{offset}"),
            Choice::SourceAddressAndPort => {
                format!("jhash {source} . th sport mod {slots} seed {HASH_SEED:#x}{offset}")
            }
        }
    }

    /// Returns the family match, if no other part of the rule implies the family.
    fn family_of_choice(&self) -> String {
        match (self.pick.place, self.pick.choice) {
            (LookupType::NodePort, Choice::Random) => format!("meta nfproto {} ", nfproto(self.family)),
            (LookupType::Address | LookupType::Range | LookupType::NodePort, _) => String::new(),
        }
    }

    fn translate(&self, lookup: &str) -> String {
        format!("dnat {} to {lookup}", protocol(self.family))
    }

    fn to_remembered(&self) -> String {
        let targets = self.set(SetRole::AffinityTargets(self.pick.place, self.pick.pool));
        self.translate(&format!("{} . meta mark map @{targets}", self.key()))
    }

    fn slot_to_mark(&self) -> String {
        let slots = self.set(SetRole::AffinitySlots(self.pick.place));
        let (prelude, key, slot) = (self.prelude(), self.key(), self.slot());
        format!("{prelude}meta mark set {key} . {slot} map @{slots} meta mark set meta mark")
    }

    /// Returns the last rule of the chain for this family, which picks a target slot for connections without
    /// an affinity entry.
    fn choose(&self) -> String {
        let family = self.family_of_choice();
        match self.pick.action {
            Treatment::Redirect => self.redirect(),
            Treatment::Translate | Treatment::TranslateAddress if self.pick.affinity_seconds.is_some() => {
                format!("{family}{} {}", self.slot_to_mark(), self.to_remembered())
            }
            Treatment::Translate | Treatment::TranslateAddress => {
                let endpoints = self.set(SetRole::Endpoints(self.pick.place));
                let lookup = format!("{} . {} map @{endpoints}", self.key(), self.slot());
                format!("{family}{}{}", self.prelude(), self.translate(&lookup))
            }
        }
    }

    /// Returns the rule that redirects to the port of a listener. `nft` prints the register with the port as
    /// the mark, and only in the first rule that uses it.
    fn redirect(&self) -> String {
        match (self.pick.place, self.family) {
            (LookupType::Address | LookupType::NodePort, family) => {
                format!("meta nfproto {}", nfproto(family))
            }
            (LookupType::Range, IpFamily::V4) => format!("{}redirect to :meta mark", self.prelude()),
            (LookupType::Range, IpFamily::V6) => self.prelude().trim_end().to_owned(),
        }
    }

    /// Returns the three session affinity rules: use the stored target, delete a stale entry, pick and store
    /// a new target.
    fn affinity(&self, seconds: u32) -> [String; 3] {
        let (map, groups) = (self.set(SetRole::Affinity), self.set(SetRole::AffinityGroups(self.pick.place)));
        let (prelude, key, source) = (self.prelude(), self.key(), self.source());
        let group = format!("meta mark set {key} map @{groups} meta mark set meta mark");
        let remember = format!("update @{map} {{ meta mark . {source} timeout {seconds}s : meta mark }}");
        let go = format!("{group} {remember} {}", self.to_remembered());
        let stored = format!("meta mark set meta mark . {source} map @{map} meta mark set meta mark");
        // The key of a node port does not imply the family.
        let family = match self.pick.place {
            LookupType::NodePort => format!("meta nfproto {} ", nfproto(self.family)),
            LookupType::Address | LookupType::Range => String::new(),
        };
        [
            format!("{family}{prelude}{group} {stored} {prelude}{go}"),
            format!("{family}{prelude}{group} delete @{map} {{ meta mark . {source} : meta mark }}"),
            format!("{}{} {go}", self.family_of_choice(), self.slot_to_mark()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(first: &str, last: &str) -> String {
        interval(Span { first: first.parse().unwrap(), last: last.parse().unwrap() })
    }

    #[test]
    fn intervals_are_written_in_the_shortest_form() {
        assert_eq!(of("10.0.0.1", "10.0.0.1"), "10.0.0.1");
        assert_eq!(of("10.0.0.0", "10.0.0.1"), "10.0.0.0/31");
        assert_eq!(of("10.0.0.1", "10.0.0.2"), "10.0.0.1-10.0.0.2");
        assert_eq!(of("10.0.0.0", "10.0.2.255"), "10.0.0.0-10.0.2.255");
        assert_eq!(of("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(of("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
        assert_eq!(of("2000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "2000::/3");
        assert_eq!(of("fd00::1", "fd00::4"), "fd00::1-fd00::4");
    }
}
