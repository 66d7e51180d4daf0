//! Reports to the control servers. A report is sent immediately after a change and at least every 5 seconds,
//! and each server has at most one unanswered report. If a report is lost, the next one repeats its content.
//! Each server gets reports of its own, so that a slow server does not delay the others.

pub mod delta;
mod last;
mod sent_state;
mod unknown_fields;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use announce::{Announcing, status::Announcements, thread::Message};
use base::{backoff::Backoff, chain, entropy};
use futures::future::join_all;
use health::CheckedEndpoints;
use kernel::links::Links;
use model::{
    kinds::event::Event,
    primitives::{name::Name, public_key::PublicKey},
    wire::{
        hold::HeldReason,
        report::{Counters, EVENTS_MAX, Facts, Report, TRAFFIC_TARGETS_MAX, TargetTraffic},
    },
};
use network::refusals::RecordRefusals;
use reqwest::StatusCode;
use speaker::routing::show::View;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::last::Ending;
use self::{sent_state::SentState, unknown_fields::UnknownFields};
use crate::{
    control::{Control, ServerId},
    facts,
    feed::read_error,
    status::{Status, TrafficByService},
    tally::Tally,
};

/// Interval between reports without changes; these reports serve as heartbeat.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of the request for one report, after which the report counts as failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum delay before a failed report is retried. The maximum is `RETRY_CAP`.
const RETRY_FLOOR: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);

/// Age after which all traffic is sent again, in case the control server has restarted.
const TRAFFIC_AGE_MAX: Duration = Duration::from_secs(300);

/// Sender of the reports of this node.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// Connections to all control servers, each of which receives reports.
    pub control: Arc<Control>,
    /// Name of this node, part of the URL path of reports.
    pub node: Name,
    /// Identifier that is different for each start of the agent.
    pub boot_id: String,
    /// Public key of this node, from which other nodes derive the keys of BFD with it.
    pub peer_public_key: Option<PublicKey>,
    /// Metric counters of the agent, some of which are included in reports.
    pub tally: Tally,
    /// Handle of the announcing thread, which is notified after each report if any control server accepts
    /// reports.
    pub announcing: Announcing,
}

/// Watch channels from which the content of a report is taken.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Status of the control loop.
    pub status: watch::Receiver<Status>,
    /// Interfaces of the machine, from which the reported facts are derived.
    pub links: watch::Receiver<Links>,
    /// Roles (announcer or standby) of this node for load balancer addresses.
    pub announced: watch::Receiver<Announcements>,
    /// Status of the BGP sessions and advertised routes.
    pub routes: View,
    /// Results of endpoint health checks.
    pub checked: watch::Receiver<CheckedEndpoints>,
    /// Attachments that the control server does not record.
    pub refusals: watch::Receiver<RecordRefusals>,
    /// Reason why the routes or the tunnel of workload networks are not as they should be.
    pub network_failure: watch::Receiver<Option<String>>,
    /// True once the control server has a Node object for this node; earlier reports would be rejected.
    pub is_known: watch::Receiver<bool>,
}

#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("control cannot be reached")]
    Unreachable(#[from] reqwest::Error),
    #[error("control refused the report with {status}: {body}")]
    Refused { status: StatusCode, body: String },
}

/// Sends reports until `stop` is canceled, starting as soon as the control server has a Node object for this
/// node. Then waits until the BGP sessions are closed (`ending`), and sends a last report, in which they are down.
pub async fn run(reporter: Reporter, mut sources: Sources, stop: CancellationToken, ending: Ending) {
    let servers = reporter.control.servers();
    let all = servers.map(|server| report_to(reporter.clone(), server, sources.clone()));
    let _stopped = stop.run_until_cancelled(join_all(all)).await;
    if *sources.is_known.borrow() {
        last::send(&reporter, &mut sources, ending).await;
    }
}

/// Sends reports to one control server until the task is canceled.
async fn report_to(reporter: Reporter, server: ServerId, mut sources: Sources) {
    if sources.is_known.wait_for(|is_known| *is_known).await.is_err() {
        return;
    }
    let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CAP);
    let mut last_error = None;
    let mut sent_state = SentState::new();
    let mut unknown = UnknownFields::default();
    let board = &reporter.control.board;
    let mut streams = board.streams_opened(server);
    loop {
        if sent_state.is_old() {
            sent_state.forget();
        }
        if std::mem::replace(&mut streams, board.streams_opened(server)) != streams {
            // The server behind a new stream may have lost the data of earlier reports.
            sent_state.forget_objects();
            unknown.forget();
        }
        let (report, news) = sent_state.next_report(&reporter, &mut sources);
        let sent = reporter.send(server, &report, &mut unknown).await;
        let outcome = sent.as_ref().map_err(|error| chain(error)).copied();
        board.reported(server, outcome, |is_reached| reporter.announcing.tell(Message::Control(is_reached)));
        match sent {
            Ok(()) => {
                let has_more = news.has_more();
                sent_state.delivered(report.traffic, news);
                reporter.tally.reports.inc();
                backoff.reset();
                if last_error.take().is_some() {
                    info!(server = %reporter.control.base(server), "reporting to control again");
                }
                if !has_more && sources.wait(&report.facts).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                // The server may have restarted and lost everything.
                sent_state.forget();
                reporter.tally.report_errors.inc();
                let (text, at) = (chain(&error), reporter.control.base(server));
                if last_error.as_ref() == Some(&text) {
                    debug!(%at, error = text, "a report was not delivered");
                } else {
                    warn!(%at, error = text, "a report was not delivered; trying again");
                    last_error = Some(text);
                }
                tokio::time::sleep(backoff.next_delay(entropy())).await;
            }
        }
    }
}

impl Sources {
    /// Waits until there are changes to report or the next heartbeat must be sent. Interface changes count
    /// only if they change the facts in the report, because container interfaces are created and removed all
    /// the time.
    async fn wait(&mut self, sent: &Facts) -> Result<(), watch::error::RecvError> {
        let pause = tokio::time::sleep(REPORT_INTERVAL);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                changed = self.status.changed() => return changed,
                Ok(()) = self.announced.changed() => return Ok(()),
                () = self.routes.changed() => return Ok(()),
                Ok(()) = self.checked.changed() => return Ok(()),
                Ok(()) = self.refusals.changed() => return Ok(()),
                Ok(()) = self.network_failure.changed() => return Ok(()),
                () = &mut pause => return Ok(()),
                Ok(()) = self.links.changed() => {
                    let facts = facts::of(&self.links.borrow_and_update());
                    if (Facts { peer_public_key: sent.peer_public_key, ..facts }) != *sent {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Merges two lists of events and returns the most recent events, oldest first, at most as many as a report
/// may carry.
#[must_use]
pub fn merge_events(some: &[Event], others: &[Event]) -> Vec<Event> {
    let mut all = [some, others].concat();
    all.sort_by_key(|event| event.time);
    all.split_off(all.len().saturating_sub(EVENTS_MAX))
}

impl Reporter {
    /// Sends a report without the fields in `unknown`. If the server rejects further fields because it is older, adds
    /// them and sends the report again.
    async fn send(
        &self,
        server: ServerId,
        report: &Report,
        unknown: &mut UnknownFields,
    ) -> Result<(), ReportError> {
        loop {
            let Err(error) = self.send_once(server, report, unknown).await else { return Ok(()) };
            let ReportError::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, body } = &error else {
                return Err(error);
            };
            let fields =
                serde_json::to_value(report).map(|sent| unknown.learn(&sent, body)).unwrap_or_default();
            if fields.is_empty() {
                return Err(error);
            }
            let fields = fields.join(", ");
            info!(at = %self.control.base(server), fields, "control is older: fields of reports are left out");
        }
    }

    async fn send_once(
        &self,
        server: ServerId,
        report: &Report,
        unknown: &UnknownFields,
    ) -> Result<(), ReportError> {
        let url = self.control.url(server, &format!("/v1/nodes/{}/report", self.node));
        let request = self.control.client().put(url).timeout(REQUEST_TIMEOUT);
        let reduced = (!unknown.is_empty()).then(|| serde_json::to_value(report).ok()).flatten();
        let request = match reduced {
            Some(mut reduced) => {
                unknown.remove_from(&mut reduced);
                request.json(&reduced)
            }
            None => request.json(report),
        };
        let response = request.send().await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(ReportError::Refused { status, body: read_error(response).await }),
        }
    }
}

/// Traffic per Service and target, as one control server last received it. A report carries only the
/// differences.
#[derive(Debug, Default)]
pub struct ReportedTraffic {
    traffic: TrafficByService,
    seen: Arc<TrafficByService>,
    is_complete: bool,
}

impl ReportedTraffic {
    /// Returns the traffic that the server has not received yet, by Service, for at most as many targets as
    /// a report may carry. A Service that no longer has traffic gets an empty list.
    #[must_use]
    pub fn news(&mut self, traffic: &Arc<TrafficByService>) -> TrafficByService {
        if self.is_complete && Arc::ptr_eq(&self.seen, traffic) {
            return TrafficByService::new();
        }
        let gone = self.traffic.keys().filter(|service| !traffic.contains_key(*service));
        let gone = gone.map(|service| (service, &NOTHING));
        let changed = traffic.iter().filter(|(service, rows)| self.traffic.get(*service) != Some(*rows));
        let mut room = TRAFFIC_TARGETS_MAX;
        let mut news = TrafficByService::new();
        self.is_complete = true;
        for (service, rows) in gone.chain(changed) {
            // Rows beyond the capacity of a report are dropped if a single Service has more targets.
            let rows = &rows[..rows.len().min(TRAFFIC_TARGETS_MAX - 1)];
            let Some(left) = room.checked_sub(rows.len() + 1) else {
                self.is_complete = false;
                break;
            };
            room = left;
            news.insert(service.clone(), rows.to_vec());
        }
        self.seen = Arc::clone(traffic);
        news
    }

    /// Records the traffic in `news` as received by the server. Called after the server has accepted the
    /// report that contains it.
    pub fn delivered(&mut self, news: TrafficByService) {
        for (service, rows) in news {
            if rows.is_empty() {
                self.traffic.remove(&service);
            } else {
                self.traffic.insert(service, rows);
            }
        }
    }
}

static NOTHING: Vec<TargetTraffic> = Vec::new();

/// Builds a report from the current status. The caller adds the announcements, BGP routes and health check
/// results.
#[must_use]
pub fn make_report(reporter: &Reporter, status: &Status, facts: Facts, traffic: TrafficByService) -> Report {
    let verified = status.verified.unwrap_or_default();
    Report {
        boot_id: reporter.boot_id.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: status.mode,
        // A state held back for confirmation has been received; a rejected one has not.
        received: status
            .held
            .filter(|held| held.reason == HeldReason::MuchLost)
            .map_or(status.received.unwrap_or_default(), |held| held.offered),
        // A pass reads back its writes before it ends, so the applied and the verified position are the same.
        applied: verified,
        verified,
        held: status.held,
        failures: (*status.failures).clone(),
        failures_total: status.failures_total,
        facts: Facts { peer_public_key: reporter.peer_public_key, ..facts },
        counters: counters(&reporter.tally, status),
        warnings: status.warnings.iter().take(EVENTS_MAX).cloned().collect(),
        network_failure: None,
        events: (*status.events).clone(),
        traffic,
        announcements: BTreeMap::new(),
        announcements_gone: std::collections::BTreeSet::new(),
        announcements_complete: false,
        announcement_changes: Vec::new(),
        peers: Vec::new(),
        bgp: None,
        bgp_routes: BTreeMap::new(),
        bgp_routes_gone: std::collections::BTreeSet::new(),
        bgp_routes_complete: false,
        health: BTreeMap::new(),
        health_complete: false,
        traffic_at: None,
        policy: status.policy.clone(),
    }
}

/// Returns the counters that are included in each report.
#[must_use]
pub fn counters(tally: &Tally, status: &Status) -> Counters {
    Counters {
        objects_received: tally.objects_received.get(),
        feed_bytes: tally.feed_bytes.get(),
        passes: tally.passes.get(),
        kernel_transactions: status.kernel.transactions,
        kernel_messages: status.kernel.messages,
        kernel_bytes: status.kernel.bytes,
        drift_repairs: tally.drift_repairs.get(),
        conntrack_deletions: status.kernel.conntrack_deletions,
    }
}
