//! The roll-up of a `BgpPeer`: who is to have a session with it, and the sessions that nodes say they have.

use std::collections::BTreeMap;

use super::{Announcing, by_bgp::names, condition, no, saturating, yes};
use crate::{
    bgp::{
        compile::sides,
        report::BgpSession,
        trouble::{BgpTrouble, trouble},
    },
    kinds::{
        bgp_peer::BgpPeerSpec,
        resource::{Kind, Object},
        selector::Selector,
    },
    observed::status::{
        BgpPeerSessions, BgpPeerStatus, Condition, ConditionStatus, ConditionType, NodeBgpSession,
    },
    primitives::name::Name,
};

/// Sessions listed in one status; the counts cover all, and `/v1/bgp/sessions` lists all.
const SESSIONS_LISTED_MAX: usize = 50;

/// Completes the status of a `BgpPeer` with what nodes say of their sessions.
#[must_use]
pub fn with_sessions(
    of: &Announcing<'_>,
    name: &Name,
    spec: &BgpPeerSpec,
    mut status: BgpPeerStatus,
) -> BgpPeerStatus {
    let expected = expected(of, name, spec, &status);
    let unused = status.conditions.iter().find(|one| one.status != ConditionStatus::True);
    let ready = match unused {
        Some(unused) if expected.is_empty() => {
            condition(ConditionType::Ready, unused.status, "NotUsed", unused.message.clone())
        }
        Some(_) | None => ready(of, name, spec, &expected),
    };
    status.conditions.push(ready);
    status.sessions = sessions(of, name, spec);
    status
}

/// The nodes that should have a session.
fn expected<'a>(
    of: &Announcing<'a>,
    name: &Name,
    spec: &BgpPeerSpec,
    status: &BgpPeerStatus,
) -> Vec<&'a Name> {
    if spec.disabled {
        return Vec::new();
    }
    let snapshot = of.scene.snapshot;
    let may_clash = status.conditions.iter().any(|one| one.reason == "SameRouter");
    let has_side = |object: &Object| {
        let all = sides(snapshot, &object.metadata.labels);
        all.iter().any(|side| side.name == name && side.clash.is_none())
    };
    let nodes = snapshot.list(Kind::Node, None, None);
    let selected =
        nodes.filter(|object| Selector::any_matches(&spec.node_selectors, &object.metadata.labels));
    selected.filter(|object| !may_clash || has_side(object)).map(|object| &object.metadata.name).collect()
}

fn sessions(of: &Announcing<'_>, peer: &Name, spec: &BgpPeerSpec) -> BgpPeerSessions {
    let mut all = Vec::new();
    for (node, report) in of.bgp.reports() {
        let sessions = report.sessions.iter().filter(|session| session.peer == *peer);
        all.extend(sessions.map(|session| (node, session)));
    }
    let is_up = |node: &Name, session: &BgpSession| session.is_established() && of.is_reporting(node);
    let established = all.iter().filter(|(node, session)| is_up(node, session)).count();
    let total = all.len();
    // Those that are wrong are what people look for.
    all.sort_by_key(|(node, session)| is_up(node, session));
    let mut by_node: BTreeMap<Name, Vec<_>> = BTreeMap::new();
    for (node, session) in all.into_iter().take(SESSIONS_LISTED_MAX) {
        by_node.entry(node.clone()).or_default().push(shown(session, spec, of.is_reporting(node)));
    }
    BgpPeerSessions { total: saturating(total), established: saturating(established), by_node }
}

fn shown(session: &BgpSession, spec: &BgpPeerSpec, is_reporting: bool) -> NodeBgpSession {
    NodeBgpSession {
        address: session.address,
        state: session.state,
        is_reporting,
        since: session.since,
        reason: session.reason.clone(),
        prefixes_sent: session.counters.prefixes_sent,
        last_sent: session.last_sent.clone(),
        last_received: session.last_received.clone(),
        trouble: trouble(session, Some(spec)),
    }
}

/// What the nodes that should have a session say of it.
#[derive(Debug, Default)]
struct Sayings<'a> {
    established: usize,
    down: Vec<(&'a Name, &'a BgpSession)>,
    /// They report, and say nothing of a session.
    mute: Vec<&'a Name>,
    /// They do not report.
    silent: Vec<&'a Name>,
}

/// Whether the nodes that should have a session have one that is established.
fn ready(of: &Announcing<'_>, peer: &Name, spec: &BgpPeerSpec, expected: &[&Name]) -> Condition {
    let at = ConditionType::Ready;
    let mut sayings = Sayings::default();
    for node in expected {
        if !of.is_reporting(node) {
            sayings.silent.push(node);
            continue;
        }
        let sessions = of.bgp.sessions_of(node).filter(|session| session.peer == *peer);
        let (up, down): (Vec<_>, Vec<_>) = sessions.partition(|session| session.is_established());
        if up.is_empty() && down.is_empty() {
            sayings.mute.push(node);
        }
        sayings.established += up.len();
        sayings.down.extend(down.into_iter().map(|session| (*node, session)));
    }
    let Sayings { established, down, mute, silent } = sayings;
    if let Some((node, session)) = down.first() {
        let trouble = trouble(session, Some(spec));
        return not_established(node, session, trouble, (down.len(), established + down.len()));
    }
    // Whoever has a dynamic peer waits until somebody connects.
    if let Some(network) = spec.peer_network
        && established == 0
        && silent.is_empty()
    {
        let message = format!("no router in {network} has connected to a node yet");
        return no(at, "NoNeighbour", message)
            .hint("give the routers the nodes as neighbours; `tidegate bgp events` shows who came and went");
    }
    if spec.peer_network.is_none() && !mute.is_empty() {
        let message = format!("these nodes have said nothing of a session: {}", names(mute.iter()));
        return no(at, "NoSession", message)
            .hint("sessions appear with the next report of the agents, within seconds");
    }
    if !silent.is_empty() {
        let message = format!("silent, so that their sessions are not known: {}", names(silent.iter()));
        return condition(at, ConditionStatus::Unknown, "AgentSilent", message)
            .hint("see whether tidegate-agent runs there and reaches this server");
    }
    let sessions = if established == 1 { "1 session".to_owned() } else { format!("{established} sessions") };
    Condition { message: format!("{sessions} established"), ..yes(at, "Established") }
}

/// `counts` are sessions that are not established, and all.
fn not_established(
    node: &Name,
    session: &BgpSession,
    trouble: Option<BgpTrouble>,
    counts: (usize, usize),
) -> Condition {
    let BgpTrouble { reason, hint } =
        trouble.unwrap_or(BgpTrouble { reason: "NotEstablished".to_owned(), hint: None });
    let (down, of) = counts;
    let message = format!(
        "{down} of {of} sessions are not established; {node}: {:?}, {}",
        session.state, session.reason
    );
    Condition { hint, ..no(ConditionType::Ready, &reason, message) }
}
