//! Status of one address that is announced by BGP: combines the reports of all nodes about all routers.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{AnnouncementInputs, condition, no, saturating, yes};
use crate::{
    bgp::{book::StoredRoute, trouble::trouble},
    kinds::{
        address::AddressSpec,
        condition_reason::ConditionReason,
        resource::{Kind, ObjectKey},
    },
    observed::status::{AddressByBgp, Condition, ConditionStatus, ConditionType},
    primitives::name::Name,
};

/// Type of all conditions that this module returns.
const AT: ConditionType = ConditionType::Announced;
/// Maximum number of nodes or routers listed by name; the counts include all.
const NAMES_MAX: usize = 10;

/// Reported BGP routes of one address, including withheld ones.
#[derive(Debug, Default)]
struct RouteReports<'a> {
    /// Nodes that announce the address and whose agents currently report.
    nodes: BTreeSet<&'a Name>,
    /// Nodes that announced the address according to their last report, but whose agents no longer report.
    silent: BTreeSet<&'a Name>,
    /// Names of the BgpPeers to which the address is announced, with `@` and the address for dynamic
    /// neighbors.
    routers: BTreeSet<&'a str>,
    /// Announced prefixes that contain the address.
    prefixes: BTreeSet<IpNet>,
    /// Nodes that withhold the address from all neighbors, with the reason.
    withheld: BTreeMap<&'a Name, &'a str>,
    /// Nodes that intend to announce the address but have not announced it to any neighbor yet, with the
    /// reason for the first neighbor.
    unannounced: BTreeMap<&'a Name, &'a str>,
}

impl<'a> AnnouncementInputs<'a> {
    fn reports(&self, record: &AddressSpec) -> RouteReports<'a> {
        let mut reports = RouteReports::default();
        for (node, prefix, route) in self.bgp.of_address(record.address) {
            let is_reporting = self.is_reporting(node);
            let mut announced_to = route.announced_to().peekable();
            if announced_to.peek().is_none() {
                if is_reporting {
                    record_obstacle(&mut reports, node, route);
                }
            } else if is_reporting {
                reports.nodes.insert(node);
                reports.prefixes.insert(prefix);
                reports.routers.extend(announced_to);
            } else {
                reports.silent.insert(node);
            }
        }
        let announcing = &reports.nodes;
        reports.withheld.retain(|node, _| !announcing.contains(node));
        reports.unannounced.retain(|node, _| !announcing.contains(node));
        reports
    }

    /// Returns true if a node whose agent currently reports announces the address by BGP.
    pub(super) fn is_announced_by_bgp(&self, record: &AddressSpec) -> bool {
        !self.reports(record).nodes.is_empty()
    }

    /// Returns the BGP part of the status of an address; `None` if no Advertisement of type BGP covers the address
    /// and no node reports a route.
    pub(super) fn status_by_bgp(&self, record: &AddressSpec) -> Option<AddressByBgp> {
        let RouteReports { nodes, silent: _, routers, prefixes, withheld, unannounced } =
            self.reports(record);
        let is_reported = !(nodes.is_empty() && withheld.is_empty() && unannounced.is_empty());
        if record.announcement.advertisements.is_empty() && !is_reported {
            return None;
        }
        let not_by =
            withheld.into_iter().chain(unannounced).map(|(node, why)| (node.clone(), why.to_owned()));
        Some(AddressByBgp {
            nodes: saturating(nodes.len()),
            routers: saturating(routers.len()),
            announced_by: nodes.into_iter().take(NAMES_MAX).cloned().collect(),
            announced_to: routers.into_iter().take(NAMES_MAX).map(str::to_owned).collect(),
            prefixes: prefixes.into_iter().take(NAMES_MAX).collect(),
            not_by: not_by.take(NAMES_MAX).collect(),
        })
    }

    /// Returns the condition Announced for BGP; `None` if no Advertisement of type BGP covers the address.
    pub(super) fn by_bgp(&self, record: &AddressSpec) -> Option<Condition> {
        if record.announcement.advertisements.is_empty() {
            return None;
        }
        let address = record.address;
        let reports = self.reports(record);
        if !reports.nodes.is_empty() {
            return Some(Condition {
                message: announced(record, &reports),
                ..yes(AT, ConditionReason::Announced)
            });
        }
        if !reports.silent.is_empty() {
            let message = format!(
                "{} announced {address} by BGP in the last report, and is silent",
                names(reports.silent.iter())
            );
            return Some(
                condition(AT, ConditionStatus::Unknown, ConditionReason::OwnerSilent, message)
                    .hint("routers drop its routes when its sessions end; check that its agent runs"),
            );
        }
        if reports.unannounced.is_empty()
            && let Some((node, why)) = reports.withheld.first_key_value()
        {
            let message = format!("no node announces {address} by BGP; {node}: {why}");
            return Some(
                no(AT, ConditionReason::Withheld, message)
                    .hint("remove the obstacle; the announcement follows without further action"),
            );
        }
        if let Some(condition) = self.no_session(record) {
            return Some(condition);
        }
        if let Some((node, why)) = reports.unannounced.first_key_value() {
            let message = format!("no router has {address} yet; {node}: {why}");
            return Some(no(AT, ConditionReason::NotYetAnnounced, message).hint(ROUTES_HINT));
        }
        if self.bgp.is_partial() {
            let message =
                format!("too many routes are reported to determine whether {address} is announced by BGP");
            return Some(
                condition(AT, ConditionStatus::Unknown, ConditionReason::TooManyRoutes, message)
                    .hint("examine a router; fewer announcing nodes or larger aggregates reduce the number of routes"),
            );
        }
        let names = names(record.announcement.advertisements.iter());
        let message = format!("no node has reported an announcement of {address} by BGP ({names})");
        Some(no(AT, ConditionReason::NotYetAnnounced, message).hint(ROUTES_HINT))
    }

    /// Returns the condition of an address that is not announced because no BGP session that could carry the
    /// announcement is established; `None` if at least one such session is established.
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
            let message = format!("no node has a BGP session with {whom} to announce {address}");
            return Some(no(AT, ConditionReason::NoSession, message).hint(
                "create a BgpPeer whose nodeSelectors match the Nodes, or check that their agents report",
            ));
        };
        let message = format!(
            "no BGP session is established that could announce {address}; {node} with {}: {}",
            session.peer, session.reason
        );
        let key = ObjectKey { kind: Kind::BgpPeer, namespace: None, name: session.peer.clone() };
        let spec = self.scene.snapshot.get(&key).and_then(|object| object.as_bgp_peer());
        let trouble = trouble(session, spec).and_then(|trouble| trouble.hint);
        let hint = trouble.unwrap_or_else(|| "`tidegate bgp peers` lists all sessions".to_owned());
        Some(no(AT, ConditionReason::NoSession, message).hint(&hint))
    }

    /// Returns the BgpPeers that the Advertisements of an address name; `None` if an Advertisement applies to all
    /// peers.
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

const ROUTES_HINT: &str = "`tidegate bgp routes` lists the state of every prefix";

fn record_obstacle<'a>(reports: &mut RouteReports<'a>, node: &'a Name, route: &'a StoredRoute) {
    match route.withheld() {
        Some(why) => {
            reports.withheld.entry(node).or_insert(why);
        }
        None => {
            let why =
                route.peers().next().map_or("it has no BGP peer for it", |(_, told)| told.text.as_str());
            reports.unannounced.entry(node).or_insert(why);
        }
    }
}

/// Formats a message such as `192.0.2.7 is announced by 2 nodes to 2 routers (tor-1, tor-2)`.
fn announced(record: &AddressSpec, reports: &RouteReports<'_>) -> String {
    let RouteReports { nodes, routers, prefixes, withheld, unannounced, silent: _ } = reports;
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
    let not_by: Vec<_> = unannounced.iter().chain(withheld).collect();
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

/// Joins the first [`NAMES_MAX`] names by commas, and appends the number of further names, if any.
pub(super) fn names<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(NAMES_MAX);
    let listed: Vec<_> = all.take(NAMES_MAX).map(|name| name.to_string()).collect();
    let listed = listed.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}
