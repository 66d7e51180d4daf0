//! Status of BGP objects: the Nodes that each BgpPeer selects, the BgpPeers that use a BfdProfile, and the
//! peers of Advertisements.

use std::collections::BTreeSet;

use super::{condition, no, saturating, yes};
use crate::{
    bgp::{
        compile::{identity, peers, selecting_peers},
        identity::NodeBgpStatus,
    },
    cluster::snapshot::Snapshot,
    kinds::{
        advertisement::AdvertisementSpec,
        bgp_peer::BgpPeerSpec,
        condition_reason::ConditionReason,
        node::NodeSpec,
        resource::{Kind, Object, Spec},
        selector::Selector,
    },
    observed::status::{
        BfdProfileStatus, BgpPeerNode, BgpPeerStatus, Condition, ConditionStatus, ConditionType,
    },
    primitives::name::Name,
};

/// Maximum number of Nodes listed for a BgpPeer, and of BgpPeers listed for a BfdProfile.
const LISTED_MAX: usize = 100;
/// Maximum number of Nodes or BgpPeers named in one message.
const NAMED_MAX: usize = 10;

/// Computes the status of a BgpPeer from the stored objects; [`super::with_sessions`] adds the reported
/// sessions. `asn` is the default AS number of Nodes.
#[must_use]
pub fn bgp_peer_status(snapshot: &Snapshot, name: &Name, spec: &BgpPeerSpec, asn: u32) -> BgpPeerStatus {
    let mut status = BgpPeerStatus { has_password: spec.password.is_some(), ..BgpPeerStatus::default() };
    let mut clash = None;
    for (object, node) in nodes(snapshot) {
        if !Selector::any_matches(&spec.node_selectors, &object.metadata.labels) {
            continue;
        }
        status.nodes_total = status.nodes_total.saturating_add(1);
        let side =
            selecting_peers(snapshot, &object.metadata.labels).into_iter().find(|side| side.name == name);
        let first = side.and_then(|side| side.clash);
        let problem =
            first.map(|first| format!("BgpPeer {first} leads to the same router and has the session"));
        if problem.is_some() {
            clash.get_or_insert((object.metadata.name.clone(), first.cloned()));
        }
        if status.nodes.len() < LISTED_MAX {
            let who = identity(&object.metadata.name, node, asn);
            let local_asn = spec.local_asn.unwrap_or(who.asn);
            let side = BgpPeerNode { local_asn, router_id: who.router_id, problem };
            status.nodes.insert(object.metadata.name.clone(), side);
        }
    }
    let used = match clash {
        Some((node, Some(first))) if !spec.disabled => no(
            ConditionType::Used,
            ConditionReason::SameRouter,
            format!("Node {node} has no session with it: BgpPeer {first} leads to the same router"),
        )
        .hint("distinguish them by spec.nodeSelectors, or delete one of them"),
        Some(_) | None => selected(snapshot, spec, &status),
    };
    status.conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid), used];
    status
}

fn selected(snapshot: &Snapshot, spec: &BgpPeerSpec, status: &BgpPeerStatus) -> Condition {
    let at = ConditionType::Used;
    if spec.disabled {
        return no(
            at,
            ConditionReason::Disabled,
            "no node has a session with it while it is disabled".to_owned(),
        )
        .hint("set spec.disabled to false");
    }
    match (status.nodes_total, snapshot.count(Kind::Node)) {
        (0, 0) => {
            condition(at, ConditionStatus::Unknown, ConditionReason::NoNodes, "there are no Nodes".to_owned())
                .hint("start tidegate-agent on a machine")
        }
        (0, _) => no(
            at,
            ConditionReason::NoMatchingNode,
            "no Node has labels that match spec.nodeSelectors".to_owned(),
        )
        .hint("compare them with metadata.labels of the Nodes"),
        (count, _) => Condition {
            message: format!("of {}", nodes_in_words(count)),
            ..yes(at, ConditionReason::NodesSelected)
        },
    }
}

fn nodes_in_words(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Computes the status of a BfdProfile from the BgpPeers that name it.
#[must_use]
pub fn bfd_profile_status(snapshot: &Snapshot, name: &Name) -> BfdProfileStatus {
    let users = peers(snapshot).filter(|(_, spec)| spec.bfd_profile.as_ref() == Some(name));
    let users: BTreeSet<Name> = users.map(|(name, _)| name.clone()).take(LISTED_MAX).collect();
    let used = if users.is_empty() {
        no(ConditionType::Used, ConditionReason::NotNamed, "no BgpPeer names it".to_owned())
            .hint("name it in spec.bfdProfile of a BgpPeer")
    } else {
        yes(ConditionType::Used, ConditionReason::Named)
    };
    BfdProfileStatus {
        conditions: vec![yes(ConditionType::Accepted, ConditionReason::Valid), used],
        used_by: users,
    }
}

/// Returns the BGP identity (AS number and BGP Identifier) of a Node, or `None` if no BgpPeer selects the
/// Node and its spec has no BGP settings.
#[must_use]
pub fn node_bgp_status(snapshot: &Snapshot, object: &Object, asn: u32) -> Option<NodeBgpStatus> {
    let Spec::Node(spec) = &object.spec else { return None };
    let is_selected = || !selecting_peers(snapshot, &object.metadata.labels).is_empty();
    (spec.bgp.is_some() || is_selected()).then(|| identity(&object.metadata.name, spec, asn))
}

/// Returns the condition Announced of an Advertisement of type BGP, which is true if at least one of its
/// BgpPeers selects a Node in `selected`. Sessions need not be established. `selected` are the Nodes that the
/// Advertisement selects, at least one.
pub(super) fn reaches_peers(
    snapshot: &Snapshot,
    spec: &AdvertisementSpec,
    selected: &BTreeSet<&Name>,
) -> Condition {
    let at = ConditionType::Announced;
    if snapshot.count(Kind::BgpPeer) == 0 {
        return no(at, ConditionReason::NoPeers, "there are no BgpPeers".to_owned())
            .hint("create a BgpPeer for each router that shall receive the announcements");
    }
    let is_reached = |name: &Name| spec.peers.is_empty() || spec.peers.contains(name);
    let (mut announcing, mut reached) = (0_usize, BTreeSet::new());
    for (object, _) in nodes(snapshot).filter(|(object, _)| selected.contains(&object.metadata.name)) {
        let peers = selecting_peers(snapshot, &object.metadata.labels);
        let live = peers.iter().filter(|peer| peer.clash.is_none() && is_reached(peer.name));
        let names: Vec<Name> = live.map(|peer| peer.name.clone()).collect();
        announcing += usize::from(!names.is_empty());
        reached.extend(names);
    }
    if reached.is_empty() {
        let message = "none of the Nodes that it selects has one of its peers".to_owned();
        return no(at, ConditionReason::NoPeerOnNodes, message)
            .hint("compare spec.nodeSelectors of the BgpPeers, and check that they are not disabled");
    }
    let names: Vec<&str> = reached.iter().take(NAMED_MAX).map(Name::as_str).collect();
    let more = reached.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("from {} to {}{more}", nodes_in_words(saturating(announcing)), names.join(", "));
    Condition { message, ..yes(at, ConditionReason::PeersFound) }
}

fn nodes(snapshot: &Snapshot) -> impl Iterator<Item = (&Object, &NodeSpec)> {
    let all = snapshot.list(Kind::Node, None, None);
    all.filter_map(|object| Some((&**object, object.as_node()?)))
}
