//! Reports of the server about itself to every control server, which shows them to people. Answers do not depend on them.

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, LazyLock},
    time::Duration,
};

use client::{Client, Request};
use model::{
    discovery::dns::Zone,
    kinds::resource::Kind,
    primitives::name::Name,
    wire::dns_server::{
        DNS_NAMES_REPORTED_MAX, DNS_REPORT_INTERVAL_SECS, DNS_TEXT_BYTES_MAX, DNS_UPSTREAMS_REPORTED_MAX,
        DNS_ZONES_REPORTED_MAX, DnsServerReport,
    },
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::{forward::Forwarder, metrics::Metrics, responder::NameCounters};

/// Interval of the reports.
const INTERVAL: Duration = Duration::from_secs(DNS_REPORT_INTERVAL_SECS);
/// Time from the start to the first report, in which the server usually receives the state. A restart is no problem to report.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Maximum time for a report to one control server, so that one that hangs does not make others take this server for
/// silent.
const SEND_TIME_MAX: Duration = Duration::from_secs(2);
/// Version in the reports.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Random identifier of this process in the reports.
static INSTANCE: LazyLock<String> = LazyLock::new(|| format!("{:016x}", RandomState::new().hash_one(0)));

/// Sender of the reports.
pub(crate) struct StatusReporter {
    pub(crate) client: Client,
    /// Number of control servers of the client.
    pub(crate) servers: usize,
    /// Name of the server. Without one, no reports are sent.
    pub(crate) name: Option<Name>,
    pub(crate) zones: watch::Receiver<Option<Arc<Zone>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) names: Arc<NameCounters>,
    pub(crate) forwarder: Option<Forwarder>,
}

impl StatusReporter {
    /// Sends reports until the task is cancelled.
    pub(crate) async fn run(&self) {
        let Some(name) = &self.name else {
            tracing::warn!(
                "the host name is no valid name, so no reports are sent to the control servers: set --name"
            );
            return std::future::pending().await;
        };
        let path = format!("/v1/dns/servers/{name}/report");
        let mut tick = interval_at(Instant::now() + FIRST_AFTER, INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A rejection is logged when it begins, such as that of a token without permission.
        let mut has_failed = vec![false; self.servers];
        loop {
            tick.tick().await;
            let body = serde_json::to_value(self.report()).expect("reports have string keys only");
            for (number, has_failed) in has_failed.iter_mut().enumerate() {
                let request = Request::put(&path).json(&body);
                let cause = match timeout(SEND_TIME_MAX, self.client.send_to(number, &request)).await {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some(base::chain(&error)),
                    Err(_) => Some("no response in time".to_owned()),
                };
                if let Some(cause) = cause.as_ref().filter(|_| !*has_failed) {
                    tracing::warn!(
                        server = self.client.url_of(number),
                        cause,
                        "cannot report to the control server"
                    );
                }
                *has_failed = cause.is_some();
            }
        }
    }

    /// Returns the report of this time.
    fn report(&self) -> DnsServerReport {
        let zone = self.zones.borrow().clone();
        let mut names = self.names.report();
        names.names.truncate(DNS_NAMES_REPORTED_MAX);
        let upstreams = self.forwarder.as_ref().map(Forwarder::upstream_states).unwrap_or_default();
        let upstreams = upstreams.into_iter().filter(|one| one.server.len() <= DNS_TEXT_BYTES_MAX);
        DnsServerReport {
            version: VERSION.to_owned(),
            instance: INSTANCE.clone(),
            connected: self.metrics.connected.get() == 1,
            revision: zone.as_ref().map(|zone| zone.snapshot().revision()),
            zones: zone.as_deref().map(zones).unwrap_or_default(),
            upstreams: upstreams.take(DNS_UPSTREAMS_REPORTED_MAX).collect(),
            cache: self.metrics.cache_size(),
            names,
        }
    }
}

/// Returns the zones that are answered with authority, the cluster zone first.
fn zones(zone: &Zone) -> Vec<String> {
    let external = zone.snapshot().list(Kind::DnsZone, None, None);
    let external = external.filter_map(|object| Some(object.as_dns_zone()?.zone.to_string()));
    let all = std::iter::once(zone.settings().domain.to_string()).chain(external);
    all.take(DNS_ZONES_REPORTED_MAX).collect()
}

/// Returns the host name of the machine in lower case, or `None` if it is no valid name.
pub(crate) fn host_name() -> Option<Name> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Name::parse(&text.trim().to_ascii_lowercase()).ok()
}
