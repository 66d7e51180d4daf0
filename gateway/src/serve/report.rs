//! Reports of the gateway about itself to every control server, which derives the state of Gateways from them. Requests do
//! not depend on them.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::{Client, Request};
use model::{
    http::HttpObjectKey,
    primitives::{name::Name, quantity::Timestamp},
    wire::http_gateway::{
        GATEWAY_CERTIFICATES_MISSING_MAX, GATEWAY_REPORT_INTERVAL_SECS, GATEWAYS_SERVED_MAX,
        GatewayCodeCount, GatewayRequests, HttpGatewayReport,
    },
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::{keys::Certificates, metrics::Metrics, state::SharedState};

/// Interval of the reports.
const INTERVAL: Duration = Duration::from_secs(GATEWAY_REPORT_INTERVAL_SECS);
/// Maximum time for a report to one control server, so that one that hangs does not make others take this gateway for
/// silent.
const SEND_TIME_MAX: Duration = Duration::from_secs(2);
/// Number of reports over which requests are counted: about a minute.
const REPORTS_COUNTED: usize = 12;
/// Version in the reports.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Sender of the reports.
pub(crate) struct StatusReporter {
    pub(crate) client: Client,
    /// Number of control servers of the client.
    pub(crate) servers: usize,
    /// Name of the gateway. Without one, no reports are sent.
    pub(crate) name: Option<Name>,
    pub(crate) started_at: Timestamp,
    /// Gateways to serve, or all if empty.
    pub(crate) served: Arc<BTreeSet<HttpObjectKey>>,
    pub(crate) states: watch::Receiver<SharedState>,
    pub(crate) certificates: Certificates,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) counts: RecentCounts,
}

/// Numbers of requests by status code at the times of the last reports.
#[derive(Default)]
pub(crate) struct RecentCounts(Mutex<VecDeque<(Instant, Vec<GatewayCodeCount>)>>);

impl StatusReporter {
    /// Sends reports until the task is cancelled.
    pub(crate) async fn run(&self) {
        let Some(path) = self.path() else {
            tracing::warn!(
                "the host name is no valid name, so no reports are sent to the control servers: set --name"
            );
            return std::future::pending().await;
        };
        // The first report follows the first sockets, so that a new process that takes over sockets does not report too early
        // that it has none.
        let mut tick = interval_at(Instant::now() + INTERVAL, INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut sockets, mut certificates) = (self.metrics.sockets_changed(), self.certificates.clone());
        // A rejection is logged when it begins, such as that of a token without permission.
        let mut has_failed = vec![false; self.servers];
        loop {
            // A socket that opens or fails, and new certificates, are reported at once.
            tokio::select! {
                _ = tick.tick() => {}
                changed = sockets.changed() => if changed.is_err() { return },
                changed = certificates.changed() => if changed.is_err() { return },
            }
            self.send(&path, &self.report(), &mut has_failed).await;
        }
    }

    /// Sends the last report of a process that stops, so that the control servers do not miss it.
    pub(crate) async fn say_goodbye(&self) {
        let Some(path) = self.path() else { return };
        let report = HttpGatewayReport { stopping: true, ..self.report() };
        self.send(&path, &report, &mut vec![true; self.servers]).await;
    }

    fn path(&self) -> Option<String> {
        self.name.as_ref().map(|name| format!("/v1/http/gateways/{name}/report"))
    }

    async fn send(&self, path: &str, report: &HttpGatewayReport, has_failed: &mut [bool]) {
        let body = serde_json::to_value(report).expect("reports have string keys only");
        for (number, has_failed) in has_failed.iter_mut().enumerate() {
            let request = Request::put(path).json(&body);
            let cause = match timeout(SEND_TIME_MAX, self.client.send_to(number, &request)).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(client::chain(&error)),
                Err(_) => Some("no response in time".to_owned()),
            };
            if let Some(cause) = cause.as_ref().filter(|_| !*has_failed) {
                let server = self.client.url_of(number);
                tracing::warn!(server, cause, "cannot report to the control server");
            }
            *has_failed = cause.is_some();
        }
    }

    /// Returns the report of this time.
    fn report(&self) -> HttpGatewayReport {
        let state = self.states.borrow().clone();
        let ring = self.certificates.borrow().clone();
        let wanted: BTreeSet<_> = state
            .iter()
            .flat_map(|state| state.table().tls.certificates().into_keys().cloned().collect::<Vec<_>>())
            .collect();
        let (loaded, missing): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|certificate| ring.config(certificate).is_some());
        HttpGatewayReport {
            version: VERSION.to_owned(),
            started_at: self.started_at,
            stopping: false,
            connected: self.metrics.connected.get() == 1,
            revision: state.as_ref().map(|state| state.snapshot().revision()),
            serves: self.served.iter().take(GATEWAYS_SERVED_MAX).cloned().collect(),
            sockets: self.metrics.sockets_changed().borrow().clone(),
            certificates: loaded.len(),
            certificates_missing: missing.into_iter().take(GATEWAY_CERTIFICATES_MISSING_MAX).collect(),
            connections: u64::try_from(self.metrics.connections.get()).unwrap_or(0),
            requests: self.counts.next(Instant::now(), self.metrics.codes()),
        }
    }
}

impl RecentCounts {
    /// Returns the numbers of requests since about a minute before `now`, at which the totals are `codes`.
    fn next(&self, now: Instant, codes: Vec<GatewayCodeCount>) -> GatewayRequests {
        // The list is consistent after each change.
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = counts.front().cloned();
        counts.push_back((now, codes.clone()));
        if counts.len() > REPORTS_COUNTED {
            counts.pop_front();
        }
        let Some((began, before)) = first else { return GatewayRequests { seconds: 0, codes } };
        let count = |one: &GatewayCodeCount| {
            let before = before.iter().find(|other| other.code == one.code).map_or(0, |other| other.count);
            GatewayCodeCount { code: one.code, count: one.count.saturating_sub(before) }
        };
        let codes = codes.iter().map(count).filter(|one| one.count > 0).collect();
        GatewayRequests { seconds: now.saturating_duration_since(began).as_secs(), codes }
    }
}

/// Returns the host name of the machine in lower case, or `None` if it is no valid name.
pub(crate) fn host_name() -> Option<Name> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Name::parse(&text.trim().to_ascii_lowercase()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of a report are those since the report of a minute before.
    #[test]
    fn requests_are_counted_over_a_minute() {
        let counts = RecentCounts::default();
        let start = Instant::now();
        let at = |report: u64| start + INTERVAL * u32::try_from(report).unwrap();
        let total = |count| vec![GatewayCodeCount { code: 200, count }];
        for report in 0..20 {
            let found = counts.next(at(report), total(10 * report));
            let reports = report.min(12);
            assert_eq!((found.seconds, found.count(..)), (5 * reports, 10 * reports), "{report}");
        }
        assert_eq!(counts.next(at(20), total(190)).count(..), 110);
    }
}
