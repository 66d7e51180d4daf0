//! The roll-up of what is announced by BGP: of one address, over nodes and routers.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{Announcing, condition, no, saturating, yes};
use crate::{
    bgp::{book::Route, trouble::trouble},
    kinds::{
        address::AddressSpec,
        resource::{Kind, ObjectKey},
    },
    observed::status::{AddressByBgp, Condition, ConditionStatus, ConditionType},
    primitives::name::Name,
};

/// The rung that all of this is about.
const AT: ConditionType = ConditionType::Announced;
/// Nodes and routers listed by name; the counts cover all.
const NAMES_MAX: usize = 10;

/// What the nodes say of one address.
#[derive(Debug, Default)]
struct Sayings<'a> {
    /// Nodes that announce it, and report.
    nodes: BTreeSet<&'a Name>,
    /// Nodes that announced it when they last reported.
    silent: BTreeSet<&'a Name>,
    /// The neighbours that have it, by key.
    routers: BTreeSet<&'a str>,
    /// As what it is announced.
    prefixes: BTreeSet<IpNet>,
    /// Nodes that report and announce it to nobody, with the reason.
    withheld: BTreeMap<&'a Name, &'a str>,
    /// Nodes that would announce it, and to nobody do, with what the first neighbour was told.
    untold: BTreeMap<&'a Name, &'a str>,
}

impl<'a> Announcing<'a> {
    fn sayings(&self, record: &AddressSpec) -> Sayings<'a> {
        let mut sayings = Sayings::default();
        for (node, prefix, route) in self.bgp.of_address(record.address) {
            let is_reporting = self.is_reporting(node);
            let mut announced_to = route.announced_to().peekable();
            if announced_to.peek().is_none() {
                if is_reporting {
                    note_obstacle(&mut sayings, node, route);
                }
            } else if is_reporting {
                sayings.nodes.insert(node);
                sayings.prefixes.insert(prefix);
                sayings.routers.extend(announced_to);
            } else {
                sayings.silent.insert(node);
            }
        }
        let announcing = &sayings.nodes;
        sayings.withheld.retain(|node, _| !announcing.contains(node));
        sayings.untold.retain(|node, _| !announcing.contains(node));
        sayings
    }

    /// Whether a node that reports announces the address.
    pub(super) fn is_told_by_bgp(&self, record: &AddressSpec) -> bool {
        !self.sayings(record).nodes.is_empty()
    }

    /// What is shown of the address; nothing where BGP has no part in it.
    pub(super) fn shown_by_bgp(&self, record: &AddressSpec) -> Option<AddressByBgp> {
        let Sayings { nodes, silent: _, routers, prefixes, withheld, untold } = self.sayings(record);
        let is_told = !(nodes.is_empty() && withheld.is_empty() && untold.is_empty());
        if record.announcement.advertisements.is_empty() && !is_told {
            return None;
        }
        let not_by = withheld.into_iter().chain(untold).map(|(node, why)| (node.clone(), why.to_owned()));
        Some(AddressByBgp {
            nodes: saturating(nodes.len()),
            routers: saturating(routers.len()),
            announced_by: nodes.into_iter().take(NAMES_MAX).cloned().collect(),
            announced_to: routers.into_iter().take(NAMES_MAX).map(str::to_owned).collect(),
            prefixes: prefixes.into_iter().take(NAMES_MAX).collect(),
            not_by: not_by.take(NAMES_MAX).collect(),
        })
    }

    /// Whether the address is announced by BGP; nothing where no Advertisement of that type covers it.
    pub(super) fn by_bgp(&self, record: &AddressSpec) -> Option<Condition> {
        if record.announcement.advertisements.is_empty() {
            return None;
        }
        let address = record.address;
        let sayings = self.sayings(record);
        if !sayings.nodes.is_empty() {
            return Some(Condition { message: announced(record, &sayings), ..yes(AT, "Announced") });
        }
        if !sayings.silent.is_empty() {
            let message = format!(
                "{} announced {address} by BGP when last reporting, and is silent",
                names(sayings.silent.iter())
            );
            return Some(
                condition(AT, ConditionStatus::Unknown, "OwnerSilent", message)
                    .hint("routers drop its routes when its sessions end; see whether its agent runs"),
            );
        }
        if sayings.untold.is_empty()
            && let Some((node, why)) = sayings.withheld.first_key_value()
        {
            let message = format!("no node announces {address} by BGP; {node}: {why}");
            return Some(no(AT, "Withheld", message).hint("it is announced as soon as the reason is gone"));
        }
        if let Some(condition) = self.no_session(record) {
            return Some(condition);
        }
        if let Some((node, why)) = sayings.untold.first_key_value() {
            let message = format!("no router has {address} yet; {node}: {why}");
            return Some(no(AT, "NotYetAnnounced", message).hint(ROUTES_HINT));
        }
        if self.bgp.is_partial() {
            let message = format!("there are too many routes to say whether {address} is announced by BGP");
            return Some(
                condition(AT, ConditionStatus::Unknown, "TooManyRoutes", message)
                    .hint("ask a router; fewer nodes or longer aggregates make fewer routes"),
            );
        }
        let names = names(record.announcement.advertisements.iter());
        let message = format!("no node has said that it announces {address} by BGP ({names})");
        Some(no(AT, "NotYetAnnounced", message).hint(ROUTES_HINT))
    }

    /// That no router can be told of the address, for want of a session.
    fn no_session(&self, record: &AddressSpec) -> Option<Condition> {
        let address = record.address;
        let wanted = self.peers_of(record);
        let is_wanted = |peer: &Name| wanted.as_ref().is_none_or(|wanted| wanted.contains(peer));
        let mut first = None;
        for (node, report) in self.bgp.reports().filter(|(node, _)| self.is_reporting(node)) {
            for session in report.sessions.iter().filter(|session| is_wanted(&session.peer)) {
                if session.is_established() {
                    return None;
                }
                first.get_or_insert((node, session));
            }
        }
        let Some((node, session)) = first else {
            let whom = wanted.map_or_else(|| "a router".to_owned(), |wanted| names(wanted.iter()));
            let message = format!("no node has a BGP session with {whom}, to announce {address} to");
            return Some(no(AT, "NoSession", message).hint(
                "create a BgpPeer whose nodeSelectors match the Nodes, or see whether their agents report",
            ));
        };
        let message = format!(
            "no BGP session is established to announce {address} over; {node} with {}: {}",
            session.peer, session.reason
        );
        let key = ObjectKey { kind: Kind::BgpPeer, namespace: None, name: session.peer.clone() };
        let spec = self.scene.snapshot.get(&key).and_then(|object| object.as_bgp_peer());
        let trouble = trouble(session, spec).and_then(|trouble| trouble.hint);
        let hint = trouble.unwrap_or_else(|| "`tidegate bgp peers` shows all sessions".to_owned());
        Some(no(AT, "NoSession", message).hint(&hint))
    }

    /// The peers that the Advertisements of an address name; nothing when one of them means all.
    fn peers_of(&self, record: &AddressSpec) -> Option<BTreeSet<&'a Name>> {
        let snapshot = self.scene.snapshot;
        let mut peers = BTreeSet::new();
        for name in &record.announcement.advertisements {
            let key = ObjectKey { kind: Kind::Advertisement, namespace: None, name: name.clone() };
            let Some(spec) = snapshot.get(&key).and_then(|object| object.as_advertisement()) else {
                continue;
            };
            if spec.peers.is_empty() {
                return None;
            }
            peers.extend(&spec.peers);
        }
        Some(peers)
    }
}

const ROUTES_HINT: &str = "`tidegate bgp routes` shows what became of every prefix";

fn note_obstacle<'a>(sayings: &mut Sayings<'a>, node: &'a Name, route: &'a Route) {
    match route.withheld() {
        Some(why) => {
            sayings.withheld.entry(node).or_insert(why);
        }
        None => {
            let why = route.peers().next().map_or("it has no router to tell", |(_, told)| told.text.as_str());
            sayings.untold.entry(node).or_insert(why);
        }
    }
}

/// `192.0.2.7 is announced by 2 nodes to 2 routers (tor-1, tor-2)`.
fn announced(record: &AddressSpec, sayings: &Sayings<'_>) -> String {
    let Sayings { nodes, routers, prefixes, withheld, untold, silent: _ } = sayings;
    let is_whole = |prefix: &IpNet| prefix.prefix_len() == prefix.max_prefix_len();
    let aggregates: Vec<_> = prefixes.iter().filter(|prefix| !is_whole(prefix)).collect();
    let within = if aggregates.is_empty() {
        String::new()
    } else {
        format!(" within {}", names(aggregates.into_iter()))
    };
    let mut message = format!(
        "{} is announced{within} by {} to {} ({})",
        record.address,
        counted(nodes.len(), "node"),
        counted(routers.len(), "router"),
        names(routers.iter())
    );
    let not_by: Vec<_> = untold.iter().chain(withheld).collect();
    if let Some((node, why)) = not_by.first() {
        message += &format!("; not by {node}: {why}");
        if not_by.len() > 1 {
            message += &format!(" (and {} more)", not_by.len() - 1);
        }
    }
    message
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The first names, and how many more there are.
pub(super) fn names<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(NAMES_MAX);
    let listed: Vec<_> = all.take(NAMES_MAX).map(|name| name.to_string()).collect();
    let listed = listed.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}
