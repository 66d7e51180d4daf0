//! Last report of an agent, which the control servers receive after the BGP sessions are closed. Without it, they
//! would show the sessions as established until the lease of the node expires.

use std::time::Duration;

use announce::ownership::io_traits::OnExit;
use base::{chain, clock::wall_clock, limit_message};
use futures::future::join_all;
use ipnet::IpNet;
use model::{
    bgp::report::{BgpRoute, BgpSession, BgpSessionState, ROUTES_MAX},
    primitives::quantity::Timestamp,
    wire::report::Report,
};
use tokio::{sync::oneshot, time::timeout};
use tracing::debug;

use super::{Reporter, Sources, make_report, merge_events, unknown_fields::UnknownFields};
use crate::{control::ServerId, facts, status::TrafficByService};

/// Maximum time for the last report to all control servers. An unreachable server delays the end of the agent by
/// no more than this.
const LAST_REPORT_TIME_MAX: Duration = Duration::from_secs(1);

/// Event for which the last report waits, with the meaning of the end for the routes of the node.
#[derive(Debug)]
pub struct Ending {
    /// Resolves when the BGP sessions are closed, also if the sender is dropped.
    pub sessions_closed: oneshot::Receiver<()>,
    /// Decides if the routers keep the routes of the node.
    pub on_exit: OnExit,
}

/// Waits until the BGP sessions are closed, and sends the last report to all control servers.
pub(super) async fn send(reporter: &Reporter, sources: &mut Sources, ending: Ending) {
    let Ending { sessions_closed, on_exit } = ending;
    // Taken before the end, because closed sessions are no longer listed.
    let Some(mut bgp) = sources.routes.report() else { return };
    let _closed = sessions_closed.await;
    let now = wall_clock();
    for session in &mut bgp.sessions {
        close(session, now);
    }
    let mut report = {
        let status = sources.status.borrow_and_update();
        let facts = facts::of(&sources.links.borrow_and_update());
        make_report(reporter, &status, facts, TrafficByService::new())
    };
    report.network_failure = sources.network_failure.borrow().clone().map(limit_message);
    report.bgp = Some(bgp);
    {
        let announced = sources.announced.borrow_and_update();
        report.peers = announced.peers.to_vec();
        report.announcement_changes = announced.changes.iter().cloned().collect();
    }
    let shown = sources.routes.routes.borrow_and_update().clone();
    report.events = merge_events(&report.events, &shown.events);
    if on_exit == OnExit::Handover {
        report.bgp_routes = shown.routes.iter().take(ROUTES_MAX).map(withdrawn).collect();
        report.bgp_routes_complete = true;
    }
    let all = reporter.control.servers().map(|server| send_to(reporter, server, &report));
    let _in_time = timeout(LAST_REPORT_TIME_MAX, join_all(all)).await;
}

async fn send_to(reporter: &Reporter, server: ServerId, report: &Report) {
    if let Err(error) = reporter.send(server, report, &mut UnknownFields::default()).await {
        debug!(server = %reporter.control.base(server), error = chain(&error), "the last report was not delivered");
    }
}

/// Sets the state of a session to Idle, the state after the end of the agent.
fn close(session: &mut BgpSession, now: Timestamp) {
    "the agent has stopped".clone_into(&mut session.reason);
    if session.state != BgpSessionState::Idle {
        session.since = now;
    }
    session.state = BgpSessionState::Idle;
    session.negotiated = None;
    session.bfd = None;
    session.counters.prefixes_sent = 0;
    session.counters.prefixes_received = 0;
    session.counters.prefixes_reflected = 0;
}

/// Returns the state of a route after the end of the sessions: no neighbor has it.
fn withdrawn((prefix, route): (&IpNet, &BgpRoute)) -> (IpNet, BgpRoute) {
    let mut route = route.clone();
    for told in route.peers.values_mut() {
        told.since = None;
        "the agent has stopped".clone_into(&mut told.text);
    }
    (*prefix, route)
}
