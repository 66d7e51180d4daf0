//! State that one control server has received by reports, from which the next report is derived. Pure, except
//! that the age of the state is measured with the clock.

use std::{collections::BTreeMap, net::IpAddr};

use base::limit_message;
use imbl::OrdMap;
use ipnet::IpNet;
use model::{
    bgp::report::{BgpRoute, ROUTES_MAX},
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    wire::report::{ANNOUNCEMENTS_MAX, AddressReport, CHECKS_REPORTED_MAX, CheckReport, EVENTS_MAX, Report},
};
use tokio::time::Instant;

use super::{ReportedTraffic, Reporter, Sources, TRAFFIC_AGE_MAX, delta, make_report, merge_events};
use crate::{facts, status::TrafficByService};

/// State of this node that one control server has received, so that a report carries only differences.
pub(super) struct SentState {
    traffic: ReportedTraffic,
    /// Time at which all traffic was last sent; since then only differences have been sent.
    traffic_since: Instant,
    addresses: delta::ReportedState<IpAddr, AddressReport>,
    routes: delta::ReportedState<IpNet, BgpRoute>,
    health: delta::ReportedState<ServiceKey, OrdMap<CheckKey, CheckReport>>,
    /// Number of the last change of announcing nodes that the server has received.
    changes: u64,
}

/// Differences that a report carries. They are recorded as sent after the server has accepted the report.
pub(super) struct ReportNews {
    addresses: delta::News<IpAddr, AddressReport>,
    routes: delta::News<IpNet, BgpRoute>,
    health: delta::News<ServiceKey, OrdMap<CheckKey, CheckReport>>,
    last_change: Option<u64>,
}

impl ReportNews {
    /// Returns true if not all differences fit into the report.
    pub(super) fn has_more(&self) -> bool {
        self.addresses.has_more || self.routes.has_more || self.health.has_more
    }
}

impl SentState {
    pub(super) fn new() -> Self {
        Self {
            traffic: ReportedTraffic::default(),
            traffic_since: Instant::now(),
            addresses: delta::ReportedState::new(ANNOUNCEMENTS_MAX),
            routes: delta::ReportedState::new(ROUTES_MAX),
            health: delta::ReportedState::new(CHECKS_REPORTED_MAX),
            changes: 0,
        }
    }

    pub(super) fn is_old(&self) -> bool {
        self.traffic_since.elapsed() > TRAFFIC_AGE_MAX
    }

    /// Discards the record of all sent data, so that the following reports contain everything.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }

    /// Discards the record of sent data except traffic, so that the following reports contain all addresses with
    /// their recorded changes, routes and health check results.
    pub(super) fn forget_objects(&mut self) {
        self.addresses.forget();
        self.routes.forget();
        self.health.forget();
        self.changes = 0;
    }

    /// Builds the next report from the differences between the current sources and the sent state. Returns
    /// the report, and the differences in it, which must be passed to [`Self::delivered`] once the server
    /// has accepted the report.
    pub(super) fn next_report(&mut self, reporter: &Reporter, sources: &mut Sources) -> (Report, ReportNews) {
        let mut report = {
            let status = sources.status.borrow_and_update();
            let facts = facts::of(&sources.links.borrow_and_update());
            let traffic = self.traffic.news(&status.traffic);
            let mut report = make_report(reporter, &status, facts, traffic);
            report.traffic_at = status.traffic_at.filter(|_| self.traffic.is_complete);
            report
        };
        let addresses = {
            let announced = sources.announced.borrow_and_update();
            report.peers = announced.peers.to_vec();
            report.warnings.truncate(EVENTS_MAX - 1);
            report.warnings.extend(announced.warning.clone());
            let unknown = announced.changes.iter().filter(|change| change.number > self.changes);
            report.announcement_changes = unknown.cloned().collect();
            self.addresses.news(&announced.addresses)
        };
        report.announcements = addresses.changed.clone();
        report.announcements_gone = addresses.gone.clone();
        report.announcements_complete = addresses.is_complete;
        let routes = {
            let shown = sources.routes.routes.borrow_and_update();
            report.events = merge_events(&report.events, &shown.events);
            self.routes.news(&shown.routes)
        };
        report.bgp = sources.routes.report();
        report.warnings.extend(sources.routes.warnings());
        report.warnings.truncate(EVENTS_MAX - 1);
        report.warnings.extend(sources.refusals.borrow_and_update().summary().map(limit_message));
        report.warnings.truncate(EVENTS_MAX);
        report.network_failure = sources.network_failure.borrow_and_update().clone().map(limit_message);
        report.bgp_routes = routes.changed.clone();
        report.bgp_routes_gone = routes.gone.clone();
        report.bgp_routes_complete = routes.is_complete;
        let health = {
            let checked = sources.checked.borrow_and_update();
            report.warnings.truncate(EVENTS_MAX - usize::from(checked.warning.is_some()));
            report.warnings.extend(checked.warning.clone());
            // The checks of a Service are sent together; a Service without checks counts as one entry.
            self.health.news_by(&checked.services, |reports| reports.len().max(1))
        };
        report.health = health_results(&health);
        report.health_complete = health.is_complete;
        let last_change = report.announcement_changes.last().map(|change| change.number);
        (report, ReportNews { addresses, routes, health, last_change })
    }

    /// Records the content of a report as received by the server, after the server accepted the report.
    pub(super) fn delivered(&mut self, traffic: TrafficByService, news: ReportNews) {
        self.traffic.delivered(traffic);
        self.addresses.delivered(news.addresses);
        self.routes.delivered(news.routes);
        self.health.delivered(news.health);
        self.changes = news.last_change.unwrap_or(self.changes);
    }
}

/// Returns the health check results for a report. A Service that no longer has health checks gets an empty
/// list.
fn health_results(
    news: &delta::News<ServiceKey, OrdMap<CheckKey, CheckReport>>,
) -> BTreeMap<ServiceKey, Vec<CheckReport>> {
    let changed = news.changed.iter();
    let changed = changed.map(|(service, reports)| (service.clone(), reports.values().cloned().collect()));
    changed.chain(news.gone.iter().map(|service| (service.clone(), Vec::new()))).collect()
}
