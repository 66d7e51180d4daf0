//! Sessions in the status of a `BgpPeer`: compares the sessions that should exist with the sessions that
//! nodes report.

use std::collections::BTreeMap;

use super::{AnnouncementInputs, by_bgp::names, condition, no, saturating, yes};
use crate::{
    bgp::{
        compile::selecting_peers,
        report::BgpSession,
        trouble::{BgpTrouble, trouble},
    },
    kinds::{
        bgp_peer::BgpPeerSpec,
        condition_reason::ConditionReason,
        resource::{Kind, Object},
        selector::Selector,
    },
    observed::status::{
        BgpPeerSessions, BgpPeerStatus, Condition, ConditionStatus, ConditionType, NodeBgpSession,
    },
    primitives::name::Name,
};

/// Maximum number of sessions listed in one status. The counts include all sessions, and `/v1/bgp/sessions` lists
/// all.
const SESSIONS_LISTED_MAX: usize = 50;

/// Adds the reported sessions to the status of a `BgpPeer`.
#[must_use]
pub fn with_sessions(
    of: &AnnouncementInputs<'_>,
    name: &Name,
    spec: &BgpPeerSpec,
    mut status: BgpPeerStatus,
) -> BgpPeerStatus {
    let expected = expected(of, name, spec, &status);
    let unused = status.conditions.iter().find(|one| one.status != ConditionStatus::True);
    let ready = match unused {
        Some(unused) if expected.is_empty() => {
            condition(ConditionType::Ready, unused.status, ConditionReason::NotUsed, unused.message.clone())
        }
        Some(_) | None => ready(of, name, spec, &expected),
    };
    status.conditions.push(ready);
    status.sessions = sessions(of, name, spec);
    status
}

/// Returns the nodes that should have a session with the BgpPeer: the nodes that it selects, except those on
/// which another BgpPeer leads to the same router. Empty if the BgpPeer is disabled.
fn expected<'a>(
    of: &AnnouncementInputs<'a>,
    name: &Name,
    spec: &BgpPeerSpec,
    status: &BgpPeerStatus,
) -> Vec<&'a Name> {
    if spec.disabled {
        return Vec::new();
    }
    let snapshot = of.scene.snapshot;
    let may_clash = status.conditions.iter().any(|one| one.reason == ConditionReason::SameRouter);
    let has_side = |object: &Object| {
        let all = selecting_peers(snapshot, &object.metadata.labels);
        all.iter().any(|side| side.name == name && side.clash.is_none())
    };
    let nodes = snapshot.list(Kind::Node, None, None);
    let selected =
        nodes.filter(|object| Selector::any_matches(&spec.node_selectors, &object.metadata.labels));
    selected.filter(|object| !may_clash || has_side(object)).map(|object| &object.metadata.name).collect()
}

fn sessions(of: &AnnouncementInputs<'_>, peer: &Name, spec: &BgpPeerSpec) -> BgpPeerSessions {
    let mut all = Vec::new();
    for (node, report) in of.bgp.reports() {
        let sessions = report.sessions.iter().filter(|session| session.peer == *peer);
        all.extend(sessions.map(|session| (node, session)));
    }
    let is_up = |node: &Name, session: &BgpSession| session.is_established() && of.is_reporting(node);
    let established = all.iter().filter(|(node, session)| is_up(node, session)).count();
    let total = all.len();
    // Sessions with problems come first, because the list is limited.
    all.sort_by_key(|(node, session)| is_up(node, session));
    let mut by_node: BTreeMap<Name, Vec<_>> = BTreeMap::new();
    for (node, session) in all.into_iter().take(SESSIONS_LISTED_MAX) {
        by_node.entry(node.clone()).or_default().push(session_status(session, spec, of.is_reporting(node)));
    }
    BgpPeerSessions { total: saturating(total), established: saturating(established), by_node }
}

fn session_status(session: &BgpSession, spec: &BgpPeerSpec, is_reporting: bool) -> NodeBgpSession {
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

/// BGP sessions of one BgpPeer, as reported by the nodes that it selects.
#[derive(Debug, Default)]
struct SessionReports<'a> {
    established: usize,
    down: Vec<(&'a Name, &'a BgpSession)>,
    /// Nodes whose agents report, but no session with the peer, although the BgpPeer selects the Node.
    without_session: Vec<&'a Name>,
    /// Nodes that should have a session, but whose agents do not report.
    silent: Vec<&'a Name>,
}

/// Returns the condition Ready of a BgpPeer, which is true if all expected sessions are established.
fn ready(of: &AnnouncementInputs<'_>, peer: &Name, spec: &BgpPeerSpec, expected: &[&Name]) -> Condition {
    let at = ConditionType::Ready;
    let mut reports = SessionReports::default();
    for node in expected {
        if !of.is_reporting(node) {
            reports.silent.push(node);
            continue;
        }
        let sessions = of.bgp.sessions_of(node).filter(|session| session.peer == *peer);
        let (up, down): (Vec<_>, Vec<_>) = sessions.partition(|session| session.is_established());
        if up.is_empty() && down.is_empty() {
            reports.without_session.push(node);
        }
        reports.established += up.len();
        reports.down.extend(down.into_iter().map(|session| (*node, session)));
    }
    let SessionReports { established, down, without_session, silent } = reports;
    if let Some((node, session)) = down.first() {
        let trouble = trouble(session, Some(spec));
        return not_established(node, session, trouble, (down.len(), established + down.len()));
    }
    // A dynamic peer has no session until a router connects.
    if let Some(network) = spec.peer_network
        && established == 0
        && silent.is_empty()
    {
        let message = format!("no router in {network} has connected to a node yet");
        return no(at, ConditionReason::NoNeighbour, message).hint(
            "configure the nodes as neighbors on the routers; `tidegate bgp events` lists past sessions",
        );
    }
    if spec.peer_network.is_none() && !without_session.is_empty() {
        let message = format!("these nodes have reported no session: {}", names(without_session.iter()));
        return no(at, ConditionReason::NoSession, message)
            .hint("sessions appear with the next report of the agents, within seconds");
    }
    if !silent.is_empty() {
        let message =
            format!("the agents are silent, so their sessions are unknown: {}", names(silent.iter()));
        return condition(at, ConditionStatus::Unknown, ConditionReason::AgentSilent, message)
            .hint("check that tidegate-agent runs there and reaches this server");
    }
    let sessions = if established == 1 { "1 session".to_owned() } else { format!("{established} sessions") };
    Condition { message: format!("{sessions} established"), ..yes(at, ConditionReason::Established) }
}

/// Returns the condition Ready of a BgpPeer with sessions that are not established. `counts` contains the
/// number of these sessions and the number of all sessions; `session` of `node` is the first of them, and
/// `trouble` its cause.
fn not_established(
    node: &Name,
    session: &BgpSession,
    trouble: Option<BgpTrouble>,
    counts: (usize, usize),
) -> Condition {
    let BgpTrouble { reason, hint } =
        trouble.unwrap_or(BgpTrouble { reason: ConditionReason::NotEstablished, hint: None });
    let (down, of) = counts;
    let message = format!(
        "{down} of {of} sessions are not established; {node}: {:?}, {}",
        session.state, session.reason
    );
    Condition { hint, ..no(ConditionType::Ready, reason, message) }
}
