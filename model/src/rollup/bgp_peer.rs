//! The roll-up of a `BgpPeer`: the sessions that nodes have with it.

use std::collections::BTreeMap;

use super::{Announcing, by_bgp::names, condition, no, saturating, yes};
use crate::{
    bgp_report::BgpSession,
    bgp_trouble::{BgpTrouble, trouble},
    name::Name,
    status::{BgpPeerSessions, Condition, ConditionStatus, ConditionType, NodeBgpSession},
};

/// Sessions listed in one status; the counts cover all, and `/v1/bgp/sessions` lists all.
const SESSIONS_LISTED_MAX: usize = 50;

/// Rolls up the sessions with a peer. `nodes` are those that should have one.
#[must_use]
pub fn bgp_peer_sessions(of: &Announcing<'_>, peer: &Name, nodes: &[&Name]) -> BgpPeerSessions {
    let mut all = Vec::new();
    for node in nodes {
        let sessions = of.bgp.sessions_of(node).filter(|session| session.peer == *peer);
        all.extend(sessions.map(|session| (*node, session)));
    }
    let is_up = |node: &Name, session: &BgpSession| session.is_established() && of.is_reporting(node);
    let established = all.iter().filter(|(node, session)| is_up(node, session)).count();
    let total = all.len();
    // Those that are wrong are what people look for.
    all.sort_by_key(|(node, session)| is_up(node, session));
    let mut sessions: BTreeMap<Name, Vec<_>> = BTreeMap::new();
    for (node, session) in all.into_iter().take(SESSIONS_LISTED_MAX) {
        sessions.entry(node.clone()).or_default().push(shown(session, of.is_reporting(node)));
    }
    BgpPeerSessions {
        nodes: saturating(nodes.len()),
        total: saturating(total),
        established: saturating(established),
        sessions,
    }
}

/// Whether all nodes that should have a session with a peer have one that is established.
#[must_use]
pub fn bgp_peer_ready(of: &Announcing<'_>, peer: &Name, nodes: &[&Name]) -> Condition {
    let at = ConditionType::Ready;
    if nodes.is_empty() {
        return match of.scene.nodes {
            [] => condition(at, ConditionStatus::Unknown, "NoNodes", "there are no Nodes".to_owned())
                .hint("start tidegate-agent on a machine"),
            [..] => no(at, "NoMatchingNode", "no Node has labels that spec.nodeSelectors ask for".to_owned())
                .hint("compare the labels of the Nodes (--label of the agent)"),
        };
    }
    let mut silent = Vec::new();
    let mut missing = Vec::new();
    let mut down = BTreeMap::new();
    for node in nodes {
        if !of.is_reporting(node) {
            silent.push(*node);
            continue;
        }
        let mut sessions = of.bgp.sessions_of(node).filter(|session| session.peer == *peer).peekable();
        if sessions.peek().is_none() {
            missing.push(*node);
        }
        if let Some(session) = sessions.find(|session| !session.is_established()) {
            down.insert(*node, session);
        }
    }
    if let Some((node, session)) = down.first_key_value() {
        return not_established(node, session, down.len(), nodes.len());
    }
    if let Some(first) = missing.first() {
        let message = format!("{first} has said nothing of a session with {peer}");
        return no(at, "NoSession", message).hint(
            "a peerNetwork waits for its neighbours; other sessions appear with the next report of the agent",
        );
    }
    if !silent.is_empty() {
        let message = format!("silent, so that its sessions are not known: {}", names(silent.iter()));
        return condition(at, ConditionStatus::Unknown, "AgentSilent", message)
            .hint("see whether tidegate-agent runs there and reaches this server");
    }
    let message = format!("established with all {} nodes", nodes.len());
    Condition { message, ..yes(at, "Established") }
}

fn not_established(node: &Name, session: &BgpSession, down: usize, of: usize) -> Condition {
    let BgpTrouble { reason, hint } =
        trouble(session).unwrap_or(BgpTrouble { reason: "NotEstablished".to_owned(), hint: None });
    let message =
        format!("not established with {down} of {of} nodes; {node}: {:?}, {}", session.state, session.reason);
    Condition { hint, ..no(ConditionType::Ready, &reason, message) }
}

fn shown(session: &BgpSession, is_reporting: bool) -> NodeBgpSession {
    NodeBgpSession {
        address: session.address,
        state: session.state,
        is_reporting,
        since: session.since,
        reason: session.reason.clone(),
        prefixes_sent: session.counters.prefixes_sent,
        last_sent: session.last_sent.clone(),
        last_received: session.last_received.clone(),
        trouble: trouble(session),
    }
}
