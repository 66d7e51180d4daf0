//! Metrics of this server. Label values are from fixed sets (routes, methods, statuses, kinds), so that the number
//! of series is limited. The module `traffic` contains the metrics of Service traffic, and `bgp` those of BGP
//! sessions.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use model::observed::status::EndpointCounts;
use prometheus_client::{
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Labels of the metrics of HTTP requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// Pattern of the matched route. The path itself would create a series for each object.
    pub(crate) route: String,
    /// HTTP method of the request; `other` for an unusual one.
    pub(crate) method: &'static str,
    /// Status code of the response.
    pub(crate) status: u16,
}

/// Label of the metric that counts objects by kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabels {
    /// Kind of the objects.
    pub(crate) kind: &'static str,
}

/// Label of the metric that counts endpoints by state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointStateLabels {
    /// State of the endpoints; `all` for the total.
    state: &'static str,
}

/// All metrics of this server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    group_writes: Histogram,
    group_commits: Histogram,
    commit_seconds: Histogram,
    /// Number of failed commits, each of a group of writes.
    pub(crate) commit_failures: Counter,
    /// Number of groups of writes not committed because another control server had committed first.
    pub(crate) commit_conflicts: Counter,
    /// Number of commits of other control servers read from the store.
    pub(crate) follow_commits: Counter,
    /// Number of failed attempts to read commits of other control servers.
    pub(crate) follow_failures: Counter,
    follow_seconds: Histogram,
    store_seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
    /// Number of lines in feeds (state streams to agents) that contain or remove a Service or an address.
    pub(crate) feed_objects: Counter,
    /// Number of bytes sent to agents in feeds, before compression.
    pub(crate) feed_bytes: Counter,
    /// Number of bytes sent to agents in feeds, after compression.
    pub(crate) feed_wire_bytes: Counter,
    /// Number of feeds that started with a full sync.
    pub(crate) feed_full_starts: Counter,
    /// Number of reports received from agents.
    pub(crate) reports: Counter,
    /// Number of changes of the recorded owner of an address.
    pub(crate) address_owner_changes: Counter,
    /// Number of events sent to watches.
    pub(crate) watch_events: Counter,
    /// Number of watches that ended because they fell behind the recent commits in memory.
    pub(crate) watch_overruns: Counter,
    /// Number of connections closed because the client did not read a response.
    pub(crate) stalled_connections: Counter,
    /// Number of messages that webhooks accepted.
    pub(crate) webhook_deliveries: Counter,
    /// Number of requests to webhooks that failed and are repeated.
    pub(crate) webhook_failures: Counter,
    /// Number of messages that were dropped for one receiver, because too many waited or it did not accept them.
    pub(crate) webhook_drops: Counter,
    /// Number of certificates that ACME servers issued.
    pub(crate) certificate_orders: Counter,
    /// Number of orders at ACME servers that failed.
    pub(crate) certificate_orders_failed: Counter,
    /// Number of expired agent certificates that were renewed.
    pub(crate) expired_certificates_renewed: Counter,
    /// Number of requests for the renewal of an expired agent certificate that were refused.
    pub(crate) expired_certificates_refused: Counter,
    health_verdicts: Family<VerdictLabels, Counter>,
    gauges: Gauges,
}

/// Gauges whose values are set when `/metrics` is read.
#[derive(Debug, Clone, Default)]
struct Gauges {
    revision: Gauge<u64, AtomicU64>,
    epoch: Gauge<u64, AtomicU64>,
    compiled: Gauge,
    endpoints: Family<EndpointStateLabels, Gauge>,
    objects: Family<KindLabels, Gauge>,
    queue: Gauge,
    watchers: Gauge,
    feeds: Gauge,
    nodes_connected: Gauge,
    dns_servers: Gauge,
    dns_servers_with_problems: Gauge,
    requests: Gauge,
    unsent_bytes: Gauge,
    leader: Gauge,
}

/// Current values of the gauges.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) revision: u64,
    pub(crate) epoch: u64,
    pub(crate) compiled: usize,
    /// Number of endpoint addresses of all Services, by state.
    pub(crate) endpoints: EndpointCounts,
    pub(crate) objects: Vec<(&'static str, usize)>,
    pub(crate) queue: usize,
    pub(crate) watchers: usize,
    pub(crate) feeds: usize,
    pub(crate) nodes_connected: usize,
    /// Number of DNS servers that have reported within the last hour.
    pub(crate) dns_servers: usize,
    /// Number of these DNS servers that have a problem.
    pub(crate) dns_servers_with_problems: usize,
    /// Number of requests whose responses the clients have not completely received.
    pub(crate) requests: usize,
    /// Number of response bytes that are created and not sent yet.
    pub(crate) unsent_bytes: u64,
    /// True if this server is the leader.
    pub(crate) is_leader: bool,
}

/// Type of a call to the store, used as a label of the metric of its duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Commit of a group of writes to the store.
    Commit,
    /// Read of the store's newest epoch and revision.
    Head,
    /// Read of the commits of other control servers.
    Changes,
    /// Read of the complete state.
    Load,
}

impl Call {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Head => "head",
            Self::Changes => "changes",
            Self::Load => "load",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

impl Metrics {
    /// Registers all metrics of the server.
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("tidegate"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            group_writes: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            group_commits: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            commit_seconds: seconds(),
            commit_failures: Counter::default(),
            commit_conflicts: Counter::default(),
            follow_commits: Counter::default(),
            follow_failures: Counter::default(),
            follow_seconds: seconds(),
            store_seconds: Family::new_with_constructor(seconds),
            feed_objects: Counter::default(),
            feed_bytes: Counter::default(),
            feed_wire_bytes: Counter::default(),
            feed_full_starts: Counter::default(),
            reports: Counter::default(),
            address_owner_changes: Counter::default(),
            watch_events: Counter::default(),
            watch_overruns: Counter::default(),
            stalled_connections: Counter::default(),
            webhook_deliveries: Counter::default(),
            webhook_failures: Counter::default(),
            webhook_drops: Counter::default(),
            certificate_orders: Counter::default(),
            certificate_orders_failed: Counter::default(),
            expired_certificates_renewed: Counter::default(),
            expired_certificates_refused: Counter::default(),
            health_verdicts: Family::default(),
            gauges: Gauges::default(),
        };
        metrics.register_counters();
        metrics.register_gauges();
        metrics
    }

    fn register_counters(&mut self) {
        let to = &mut self.registry;
        to.register("http_requests", "Requests by route, method and status", self.requests.clone());
        to.register(
            "http_request_seconds",
            "Time until the response headers, in seconds",
            self.request_seconds.clone(),
        );
        to.register("write_group_requests", "Writes processed in one group", self.group_writes.clone());
        to.register("write_group_commits", "Revisions committed in one group", self.group_commits.clone());
        to.register(
            "write_commit_seconds",
            "Time to admit and store a group, in seconds",
            self.commit_seconds.clone(),
        );
        to.register(
            "store_call_seconds",
            "Duration of store calls of the writer, in seconds",
            self.store_seconds.clone(),
        );
        to.register(
            "follow_seconds",
            "Time from the notification of a commit by another control server until it is published, in \
             seconds",
            self.follow_seconds.clone(),
        );
        to.register(
            "health_verdicts",
            "Endpoints taken out of service or restored by health checks",
            self.health_verdicts.clone(),
        );
        for (name, help, counter) in [
            (
                "write_commit_failures",
                "Groups that could not be committed to the store",
                &self.commit_failures,
            ),
            (
                "write_commit_conflicts",
                "Groups decided on a state that another control server had already changed",
                &self.commit_conflicts,
            ),
            ("follow_commits", "Commits of other control servers that were read", &self.follow_commits),
            (
                "follow_failures",
                "Failed attempts to read commits of other control servers",
                &self.follow_failures,
            ),
            ("feed_objects", "Services and removals sent to agents", &self.feed_objects),
            ("feed_bytes", "Bytes of the feed before compression", &self.feed_bytes),
            ("feed_wire_bytes", "Bytes of the feed as sent", &self.feed_wire_bytes),
            ("feed_full_starts", "Feeds that began with a full sync", &self.feed_full_starts),
            ("reports", "Reports received from agents", &self.reports),
            (
                "address_owner_changes",
                "Changes of the node that is recorded as the owner of an address",
                &self.address_owner_changes,
            ),
            ("watch_events", "Events sent to watchers", &self.watch_events),
            ("watch_overruns", "Watches ended because they fell too far behind", &self.watch_overruns),
            ("certificate_orders", "Certificates that ACME servers issued", &self.certificate_orders),
            (
                "certificate_orders_failed",
                "Orders of certificates that failed and are repeated",
                &self.certificate_orders_failed,
            ),
            (
                "expired_certificates_renewed",
                "Expired certificates of agents that were renewed",
                &self.expired_certificates_renewed,
            ),
            (
                "expired_certificates_refused",
                "Refused requests for the renewal of an expired certificate of an agent",
                &self.expired_certificates_refused,
            ),
            ("webhook_deliveries", "Messages that webhooks accepted", &self.webhook_deliveries),
            ("webhook_failures", "Requests to webhooks that failed and are repeated", &self.webhook_failures),
            (
                "webhook_drops",
                "Messages dropped for one webhook, because too many waited or it did not accept them",
                &self.webhook_drops,
            ),
            (
                "stalled_connections",
                "Connections closed because the client did not read a response",
                &self.stalled_connections,
            ),
        ] {
            to.register(name, help, counter.clone());
        }
    }

    fn register_gauges(&mut self) {
        let to = &mut self.registry;
        let gauges = &self.gauges;
        to.register("revision", "Revision of the published state", gauges.revision.clone());
        to.register("epoch", "Epoch of the store", gauges.epoch.clone());
        to.register("objects", "Objects by kind", gauges.objects.clone());
        to.register("endpoints", "Endpoints of Services by state", gauges.endpoints.clone());
        for (name, help, gauge) in [
            ("compiled_services", "Services with a compiled form", &gauges.compiled),
            ("write_queue", "Writes in the queue", &gauges.queue),
            ("watchers", "Open watches", &gauges.watchers),
            ("feeds", "Open feeds to agents", &gauges.feeds),
            ("nodes_connected", "Nodes whose agent reports", &gauges.nodes_connected),
            ("dns_servers", "DNS servers that have reported within the last hour", &gauges.dns_servers),
            (
                "dns_servers_with_problems",
                "DNS servers that are silent, behind or have another problem",
                &gauges.dns_servers_with_problems,
            ),
            (
                "requests_in_progress",
                "Requests whose responses the clients have not completely received, without streams",
                &gauges.requests,
            ),
            (
                "response_unsent_bytes",
                "Response bytes that are created and not sent yet, without streams",
                &gauges.unsent_bytes,
            ),
            ("leader", "1 if this control server is the leader", &gauges.leader),
        ] {
            to.register(name, help, gauge.clone());
        }
        to.register_collector(Box::new(allocator::HeapCollector));
    }

    /// Counts an HTTP request and records its duration.
    pub(crate) fn request(&self, labels: RequestLabels, took: Duration) {
        let route = RouteLabels { route: labels.route.clone() };
        self.request_seconds.get_or_create(&route).observe(took.as_secs_f64());
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a health decision: `out` takes an endpoint out of service, `back` returns it.
    pub(crate) fn verdict(&self, verdict: &'static str) {
        self.health_verdicts.get_or_create(&VerdictLabels { verdict }).inc();
    }

    /// Awaits a call to the store and records its duration by type.
    pub(crate) async fn time<T>(&self, call: Call, answer: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let answer = answer.await;
        let labels = CallLabels { call: call.as_str() };
        self.store_seconds.get_or_create(&labels).observe(started.elapsed().as_secs_f64());
        answer
    }

    /// Records the duration of one read of other servers' commits.
    pub(crate) fn followed(&self, took: Duration) {
        self.follow_seconds.observe(took.as_secs_f64());
    }

    /// Records the size and the duration of a group of writes that the writer committed together.
    pub(crate) fn group(&self, writes: usize, commits: usize, took: Duration) {
        self.group_writes.observe(as_float(writes));
        self.group_commits.observe(as_float(commits));
        self.commit_seconds.observe(took.as_secs_f64());
    }

    /// Renders all metrics as OpenMetrics text, including the metrics in `moment`, which are computed for this
    /// request.
    pub(crate) fn render(&self, reading: Reading, moment: &Registry) -> String {
        let Reading {
            revision,
            epoch,
            compiled,
            endpoints,
            objects,
            queue,
            watchers,
            feeds,
            nodes_connected,
            dns_servers,
            dns_servers_with_problems,
            requests,
            unsent_bytes,
            is_leader,
        } = reading;
        let gauges = &self.gauges;
        gauges.revision.set(revision);
        gauges.epoch.set(epoch);
        for (gauge, value) in [
            (&gauges.compiled, compiled),
            (&gauges.queue, queue),
            (&gauges.watchers, watchers),
            (&gauges.feeds, feeds),
            (&gauges.nodes_connected, nodes_connected),
            (&gauges.dns_servers, dns_servers),
            (&gauges.dns_servers_with_problems, dns_servers_with_problems),
            (&gauges.requests, requests),
            (&gauges.leader, usize::from(is_leader)),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        gauges.unsent_bytes.set(i64::try_from(unsent_bytes).unwrap_or(i64::MAX));
        // Health states have metrics of their own.
        let EndpointCounts { total, ready, draining, maintenance, unhealthy: _, unknown: _, not_checked } =
            endpoints;
        for (state, count) in [
            ("all", total),
            ("ready", ready),
            ("draining", draining),
            ("maintenance", maintenance),
            ("not_checked", not_checked),
        ] {
            gauges.endpoints.get_or_create(&EndpointStateLabels { state }).set(count.into());
        }
        for (kind, count) in objects {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            gauges.objects.get_or_create(&KindLabels { kind }).set(count);
        }
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, moment))
            .and_then(|()| encode_eof(&mut text));
        if let Err(error) = encoded {
            tracing::error!(%error, "the metrics cannot be encoded");
        }
        text
    }
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 4.0, 9))
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
