//! Observations: all data that agents report, and the signals (triggers) that wake the tasks which depend on
//! this data. The roll-up derives the status of objects from the reports.
//!
//! ```text
//! report ─▶ apply ─┬▶ traffic, BGP, announcements, health, convergence    read by requests and metrics
//!                  ├▶ node reports ─▶ roll-up of status
//!                  └▶ triggers ─▶ health judge, overview, assigner
//! ```

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use model::{
    bgp::{
        book::{self as bgp_book, BgpBook},
        report::{BgpSession, BgpSessionState},
    },
    kinds::resource::{Kind, ObjectKey, ServiceKey},
    observed::{
        announcements::{AnnouncementBook, AnnouncementUpdate},
        health::HealthUpdate,
        http_gateways::{GatewayReportError, GatewayReports, HttpGateways},
        traffic::TrafficBook,
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Timestamp},
    },
    wire::{
        http_gateway::{HttpGatewayList, HttpGatewayReport},
        report::Report,
    },
};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::state::{
    convergence::{Convergence, ReportedAfter, Watermarks},
    health_state::HealthState,
    node_reports::{Earlier, Nodes},
    overview_trigger::OverviewTrigger,
    pending_triggers::PendingTriggers,
    published::Published,
};

/// Reports of the agents and the data merged from them.
pub(crate) struct Observations {
    /// Newest report, and time of the last report, of each node.
    pub(crate) nodes: Nodes,
    /// Results of health checks, and the trigger of the health judge task.
    pub(crate) health: HealthState,
    /// Times at which the nodes have received, applied and verified recent revisions.
    pub(crate) convergence: Arc<Convergence>,
    /// Triggers that the assigner task, which selects announcing nodes, has not processed yet.
    pub(crate) triggers: PendingTriggers,
    overview: Arc<OverviewTrigger>,
    traffic: Mutex<TrafficBook>,
    announcements: Mutex<AnnouncementBook>,
    bgp: Mutex<BgpBook>,
    http_gateways: Mutex<HttpGateways>,
}

/// State of the server at the arrival of a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Epoch of the published state, with which reported positions are compared.
    pub(crate) epoch: Epoch,
    /// Time at which the report arrived.
    pub(crate) now: Timestamp,
}

/// Report split into the parts that are processed separately: announcements, BGP, health, and the rest.
struct ReportParts {
    report: Arc<Report>,
    announcements: AnnouncementUpdate,
    bgp: bgp_book::BgpReportUpdate,
    health: HealthUpdate,
}

impl Observations {
    /// Creates observations without reports. `nodes` contains the stored last report times.
    pub(crate) fn new(
        nodes: Nodes,
        health: HealthState,
        convergence: Arc<Convergence>,
        overview: Arc<OverviewTrigger>,
    ) -> Self {
        Self {
            nodes,
            health,
            convergence,
            triggers: PendingTriggers::default(),
            overview,
            traffic: Mutex::default(),
            announcements: Mutex::default(),
            bgp: Mutex::default(),
            http_gateways: Mutex::new(HttpGateways::new(Timestamp::from_unix_seconds(0))),
        }
    }

    /// Sets the start time of the server. Gateways that have not reported shortly after it are not missed yet.
    pub(crate) fn with_start(self, now: Timestamp) -> Self {
        Self { http_gateways: Mutex::new(HttpGateways::new(now)), ..self }
    }

    /// Applies the report of a gateway (a process of `tidegate-gateway`), and wakes the overview if the state of a Gateway may
    /// have changed.
    ///
    /// # Errors
    /// Returns the reason if the report is rejected.
    pub(crate) fn apply_gateway(
        &self,
        name: Name,
        author: &str,
        report: HttpGatewayReport,
        now: Timestamp,
    ) -> Result<(), GatewayReportError> {
        if self.http_gateways().apply(name, author, report, now)? {
            self.overview.record();
        }
        Ok(())
    }

    /// Returns the gateways with their problems.
    pub(crate) fn list_gateways(&self, now: Timestamp) -> HttpGatewayList {
        self.http_gateways().list(now)
    }

    /// Returns the gateways divided by the age of their reports.
    pub(crate) fn gateways_at(&self, now: Timestamp) -> GatewayReports {
        self.http_gateways().at(now)
    }

    // The list is consistent after each change.
    fn http_gateways(&self) -> MutexGuard<'_, HttpGateways> {
        self.http_gateways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the report of a Node's agent to all observations, and wakes the tasks that depend on it.
    ///
    /// The order is part of the contract:
    ///
    /// 1. Traffic and BGP state, which depend on no other observation.
    /// 2. The report itself and its time. The following steps compare it with the previous report.
    /// 3. Health results. These wake the health judge task, which ignores results of nodes that are not connected;
    ///    before step 2 the first results of a node would be lost.
    /// 4. Convergence.
    /// 5. Announcement states, before the assigner wakes, because it decides by them.
    /// 6. Triggers of the overview and the assigner, which then find the complete report.
    pub(crate) async fn apply(&self, store: &dyn Store, node: &Name, mut report: Report, at: Arrival) {
        let Arrival { epoch, now } = at;
        let traffic = std::mem::take(&mut report.traffic);
        self.traffic().apply(node, &report.boot_id, traffic, now);
        let parts = ReportParts::of(report);
        let has_separate_changes = parts.has_changes();
        let ReportParts { report, announcements, bgp, health } = parts;
        let has_other_sessions = self.apply_bgp(node, bgp, now);
        let earlier = self.nodes.report(store, node, Arc::clone(&report), now).await;
        self.health.report(node, health);
        let before = earlier.report.as_ref().map(|report| Watermarks::from(&**report));
        let progress = (before, Watermarks::from(&*report));
        let after = if earlier.was_silent(now) { ReportedAfter::Silence } else { ReportedAfter::Lease };
        self.convergence.record_report(node, epoch, progress, after, Instant::now());
        let addresses = self.announcements().apply(node, announcements, now);
        if has_separate_changes || has_other_sessions || is_changed(&earlier, &report) {
            self.overview.record();
        }
        self.triggers.report(node, &earlier, &report, addresses, now);
    }

    /// Records that an agent has closed the feed with the token `feed`, so that the data of its last report is
    /// shown as unknown until the agent reports or opens a feed.
    pub(crate) fn end_feed(&self, node: &Name, feed: &CancellationToken) {
        if self.nodes.end_feed(node, feed) {
            self.overview.record();
        }
    }

    /// Applies the BGP part of a node's report. Returns true if session data that the overview shows has changed.
    fn apply_bgp(&self, node: &Name, news: bgp_book::BgpReportUpdate, now: Timestamp) -> bool {
        let mut book = self.bgp();
        let before = sessions(&book, node);
        book.apply(node, news, now);
        before != sessions(&book, node)
    }

    /// Locks the traffic counters of all nodes.
    pub(crate) fn traffic(&self) -> MutexGuard<'_, TrafficBook> {
        // A panic in the middle of a report leaves counters that the next reports correct.
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the announcement states of all nodes.
    pub(crate) fn announcements(&self) -> MutexGuard<'_, AnnouncementBook> {
        // A panic in the middle of a report leaves states that the next full report corrects.
        self.announcements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the BGP state of all nodes. A caller that also needs [`Self::announcements`] must lock the
    /// announcements first.
    pub(crate) fn bgp(&self) -> MutexGuard<'_, BgpBook> {
        // A panic in the middle of a report leaves routes that the next full report corrects.
        self.bgp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the reported data of deleted Nodes, Services and addresses.
    pub(crate) async fn forget_deleted(&self, store: &dyn Store, published: &Published, now: Timestamp) {
        self.nodes.forget_deleted(store, &published.snapshot).await;
        let has_node = |name: &Name| {
            let key = ObjectKey { kind: Kind::Node, namespace: None, name: name.clone() };
            published.snapshot.get(&key).is_some()
        };
        let has_service = |key: &ServiceKey| published.snapshot.service(key).is_some();
        let has_address = |address| published.snapshot.address(address).is_some();
        self.announcements().forget(has_node, has_address);
        self.bgp().forget(has_node);
        self.health.book().forget(has_node, has_service);
        self.traffic().forget(has_service, has_node, now);
    }
}

impl ReportParts {
    fn of(mut report: Report) -> Self {
        let announcements = AnnouncementUpdate {
            parts: std::mem::take(&mut report.announcements),
            gone: std::mem::take(&mut report.announcements_gone),
            is_complete: report.announcements_complete,
            changes: std::mem::take(&mut report.announcement_changes),
            boot_id: report.boot_id.clone(),
        };
        let bgp = bgp_book::BgpReportUpdate {
            bgp: report.bgp.take(),
            routes: std::mem::take(&mut report.bgp_routes),
            gone: std::mem::take(&mut report.bgp_routes_gone),
            is_complete: report.bgp_routes_complete,
            events: report.events.clone(),
        };
        let health = HealthUpdate {
            services: std::mem::take(&mut report.health),
            is_complete: report.health_complete,
        };
        Self { report: Arc::new(report), announcements, bgp, health }
    }

    /// Returns true if the report contains changes of announcements, routes or health, which the agent sends only
    /// once.
    fn has_changes(&self) -> bool {
        !self.announcements.parts.is_empty()
            || !self.announcements.gone.is_empty()
            || !self.announcements.changes.is_empty()
            || !self.bgp.routes.is_empty()
            || !self.bgp.gone.is_empty()
            || !self.health.services.is_empty()
    }
}

/// Returns those fields of a node's BGP sessions that the overview shows.
fn sessions(book: &BgpBook, node: &Name) -> Vec<(Name, Option<IpAddr>, BgpSessionState, String)> {
    let part = |one: &BgpSession| (one.peer.clone(), one.address, one.state, one.reason.clone());
    book.sessions_of(node).map(part).collect()
}

/// Returns true if a report differs from the previous one in data other than the counters, the time of the
/// traffic data and the boot id, or if there is no previous report.
fn is_changed(earlier: &Earlier, report: &Report) -> bool {
    let Some(before) = earlier.report.as_deref() else { return true };
    // Fast path for almost every report after a change; a full comparison costs a copy.
    if before.verified != report.verified {
        return true;
    }
    let Report { counters, traffic_at, boot_id, .. } = before;
    let counted =
        Report { counters: *counters, traffic_at: *traffic_at, boot_id: boot_id.clone(), ..report.clone() };
    counted != *before
}

#[cfg(test)]
mod tests {

    use model::primitives::quantity::Revision;
    use serde_json::{Value, json};

    use super::*;

    const EPOCH: Epoch = Epoch(1);

    struct Fixture {
        observations: Observations,
        overview: Arc<OverviewTrigger>,
        store: Arc<dyn Store>,
        now: Timestamp,
        node: Name,
    }

    impl Fixture {
        async fn new() -> Self {
            let now = Timestamp::from_unix_seconds(1_771_000_000);
            let overview = Arc::new(OverviewTrigger::default());
            let health = HealthState::new(10);
            let observations =
                Observations::new(Nodes::default(), health, Arc::default(), Arc::clone(&overview));
            let store = store::open("memory:", now).await.unwrap();
            Self { observations, overview, store, now, node: Name::parse("n1").unwrap() }
        }

        async fn apply(&self, revision: u64, more: Value) {
            let at = format!("{}-{revision}", EPOCH.0);
            let mut report = json!({
                "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at,
            });
            report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let report = serde_json::from_value(report).unwrap();
            let arrival = Arrival { epoch: EPOCH, now: self.now };
            self.observations.apply(&*self.store, &self.node, report, arrival).await;
        }

        fn overview_changes(&self) -> u64 {
            self.overview.changes()
        }
    }

    #[tokio::test]
    async fn the_overview_changes_with_reports_that_differ_in_more_than_counters() {
        let fixture = Fixture::new().await;
        fixture.apply(1, json!({})).await;
        assert_eq!(fixture.overview_changes(), 1, "the first report");
        fixture.apply(1, json!({})).await;
        fixture.apply(1, json!({ "bootId": "c" })).await;
        assert_eq!(fixture.overview_changes(), 1, "the same report");
        fixture.apply(1, json!({ "bootId": "c", "warnings": ["w"] })).await;
        assert_eq!(fixture.overview_changes(), 2, "a warning");
        fixture.apply(2, json!({ "bootId": "c", "warnings": ["w"] })).await;
        assert_eq!(fixture.overview_changes(), 3, "progress");
        let gone = json!({ "bootId": "c", "warnings": ["w"], "announcementsGone": ["192.0.2.1"] });
        fixture.apply(2, gone.clone()).await;
        fixture.apply(2, gone).await;
        assert_eq!(fixture.overview_changes(), 5, "parts that an agent sends once");
    }

    #[tokio::test]
    async fn the_assigner_is_woken_by_the_first_report_and_by_progress() {
        let fixture = Fixture::new().await;
        fixture.apply(1, json!({})).await;
        let first = fixture.observations.triggers.drain();
        assert_eq!((first.nodes.len(), first.verified.len()), (1, 0));
        fixture.apply(1, json!({})).await;
        let repeated = fixture.observations.triggers.drain();
        assert_eq!((repeated.nodes.len(), repeated.verified.len()), (0, 0));
        fixture.apply(2, json!({})).await;
        let progress = fixture.observations.triggers.drain();
        assert_eq!((progress.nodes.len(), progress.verified.len()), (0, 1));
    }

    #[tokio::test]
    async fn the_first_health_results_find_their_node_connected() {
        let fixture = Fixture::new().await;
        let check = json!({
            "address": "10.1.0.1", "port": 80, "state": "Healthy", "since": "2026-02-13T16:26:40Z", "message": "200",
        });
        fixture.apply(1, json!({ "health": { "default/web": [check] } })).await;
        assert_eq!(fixture.observations.health.drain_triggers().len(), 1);
        let heard = fixture.observations.nodes.heard([(fixture.node.clone(), false)].into_iter());
        assert_eq!(heard[0].last_report, Some(fixture.now));
    }

    #[tokio::test]
    async fn convergence_compares_with_the_previous_report() {
        let fixture = Fixture::new().await;
        fixture.observations.convergence.record_revisions(&[Revision(1)], Instant::now());
        fixture.apply(1, json!({})).await;
        fixture.observations.convergence.record_revisions(&[Revision(2)], Instant::now());
        fixture.apply(2, json!({})).await;
        let is_first = |revision| {
            let (nodes, _) = fixture.observations.convergence.of(Revision(revision), Instant::now())?;
            nodes.get(&fixture.node).map(|steps| steps.is_after_silence)
        };
        assert_eq!((is_first(1), is_first(2)), (Some(true), Some(false)));
    }
}
