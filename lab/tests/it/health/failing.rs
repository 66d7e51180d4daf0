//! Test of endpoints that fail in different ways at the same time, with one client per Service and mode.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use lab::{
    cluster::deployment::Cluster,
    host::{guest, wait},
    network::client::at,
};
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::{
    answering::{Answering, Authority, Behaviour, CHECK_PATH, NAME},
    clients::{Client, Clock, Made, Phase},
    stage::{self, Stage, Workload, endpoint_in, is_verified, wait_for, wait_verified},
};

/// Ports of the endpoints that always work: plain HTTP and TLS.
const STEADY_PORTS: [u16; 2] = [8080, 8443];
const VICTIM_PORT: u16 = 9001;
/// Name that the failing endpoint sends in its replies.
const VICTIM: &str = "victim";
/// Number of consecutive failures after which an endpoint is unhealthy: three, so that a busy machine does not
/// fail a working endpoint.
const FALL: u64 = 3;

/// Timing and size of the test, which differ between the host and the guest VM.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Number of endpoints per Service that always work.
    steady: usize,
    /// Interval and timeout of health checks in milliseconds.
    interval_ms: u64,
    /// Pause between two connections of a client.
    pause: Duration,
    /// Number of successful connections of each client after which the failing endpoint is considered out of
    /// service if none reached it.
    settled: usize,
}

/// Timing on the host's kernel. The probability that all `settled` connections miss one of four endpoints
/// that are in service is 1e-5.
const QUICK: Pace = Pace { steady: 3, interval_ms: 500, pause: Duration::from_millis(25), settled: 40 };
/// Timing in the guest VM, which is slow and uses endpoints in rotation.
const SLOW: Pace = Pace { steady: 1, interval_ms: 1500, pause: Duration::from_millis(500), settled: 8 };

/// Kind of endpoint failure.
struct Kind {
    service: &'static str,
    how: Behaviour,
    check: Value,
    /// Prefix of the message that the server reports for this failure.
    words: &'static str,
}

fn kinds(authority: &Authority, interval_ms: u64) -> Vec<Kind> {
    let tls = json!({ "serverName": NAME, "ca": authority.pem() });
    let kind = |service, how, words, more: Value| {
        let mut check = json!({
            "type": "Http", "intervalMs": interval_ms, "timeoutMs": interval_ms, "fall": FALL, "rise": 2,
        });
        let fields = check.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        if fields["type"] != "Tcp" {
            fields.insert("http".to_owned(), json!({ "path": CHECK_PATH }));
        }
        Kind { service, how, check, words }
    };
    vec![
        kind("refuses", Behaviour::Refuses, "connection refused", json!({ "type": "Tcp" })),
        kind("vanishes", Behaviour::Vanishes, SILENT, json!({ "type": "Tcp" })),
        kind("hangs", Behaviour::Hangs, SILENT, json!({})),
        kind("status", Behaviour::Fails, "answered 500 Internal Server Error", json!({})),
        kind("slow", Behaviour::Slow, SILENT, json!({})),
        kind(
            "certificate",
            Behaviour::Impostor,
            "the certificate is not valid for web.example",
            json!({ "type": "Https", "tls": tls }),
        ),
        kind(
            "panics",
            Behaviour::Fails,
            "answered 500 Internal Server Error",
            json!({ "panicThreshold": 80 }),
        ),
    ]
}

const SILENT: &str = "no answer within ";

/// Service of the test: one of its endpoints fails, and the others always work.
struct Story {
    kind: Kind,
    victim: Answering,
    victim_at: SocketAddr,
    clock: Arc<Clock>,
    /// Clients of the Service, one per proxy mode.
    clients: Vec<Client>,
    pace: Pace,
    broken: Instant,
    verified: Option<Instant>,
    repaired: Instant,
}

impl Story {
    fn new(kind: Kind, index: u16, at_home: &Workload, authority: &Authority, pace: Pace) -> Self {
        let port = VICTIM_PORT + index;
        let tls = kind.speaks_tls().then(|| authority.certificates());
        let now = Instant::now();
        Self {
            victim: Answering::start(&at_home.namespace, VICTIM, port, tls),
            victim_at: at(at_home.address, port),
            clock: Arc::default(),
            clients: Vec::new(),
            kind,
            pace,
            broken: now,
            verified: None,
            repaired: now,
        }
    }

    fn objects(&self, stage: &Stage, at_home: &Workload) -> [Value; 3] {
        let name = self.kind.service;
        let steady = STEADY_PORTS[usize::from(self.kind.speaks_tls())];
        let victim = std::slice::from_ref(at_home);
        [
            stage::service(name, &self.kind.check),
            stage::endpoints(&format!("{name}-steady"), name, &stage.workloads, steady),
            stage::endpoints(&format!("{name}-victim"), name, victim, self.victim_at.port()),
        ]
    }

    fn start_clients(&mut self, stage: &Stage, tls: &Arc<ClientConfig>) {
        let to = stage.virtual_address(self.kind.service);
        let tls = self.kind.speaks_tls().then_some(tls);
        let start = |turn| {
            let tls = tls.cloned();
            Client::start(stage.inside(turn), to, tls, self.pace.pause, &self.clock)
        };
        self.clients = (0..stage.modes.len()).map(start).collect();
    }

    fn break_it(&mut self) {
        self.clock.turn(Phase::Broken);
        self.broken = Instant::now();
        self.victim.behave(self.kind.how);
    }

    fn repair(&mut self) {
        self.clock.turn(Phase::Back);
        self.repaired = Instant::now();
        self.victim.behave(Behaviour::Well);
    }

    fn wait_in_service(&self, cluster: &Cluster) -> Value {
        wait_for(cluster, self.kind.service, self.victim_at, "Healthy", 100)
    }

    /// Checks that the failing endpoint is out of service on every node.
    fn look_whether_out(&mut self, cluster: &Cluster) -> Result<()> {
        if self.verified.is_none() {
            let shown = endpoint_in(cluster, self.kind.service, self.victim_at, "Unhealthy", 0)?;
            ensure!(is_verified(cluster, self.kind.service)?, "not verified yet");
            self.clock.turn(Phase::Out);
            self.verified = Some(Instant::now());
            // On a busy machine the check may time out instead.
            let message = shown["message"].as_str().unwrap();
            assert!([self.kind.words, SILENT].iter().any(|words| message.starts_with(words)), "{shown:#}");
            assert_eq!(shown["checkers"].as_object().unwrap().keys().next().unwrap(), &shown["node"]);
        }
        Ok(())
    }

    /// Waits until `enough` is true for each client. The first argument describes the condition in errors.
    fn wait_clients(&self, what: &str, enough: impl Fn(&Client) -> bool) {
        let (service, what) = (self.kind.service, format!("{what} of {}", self.kind.service));
        let look = || self.clients.iter().all(&enough);
        wait::until_true(&what, look).unwrap_or_else(|error| panic!("{service}: {error:#}"));
    }

    fn wait_victim_met(&self, phase: Phase) {
        self.wait_clients("the endpoint to be met", |client| {
            client.answers(phase).iter().any(|name| name == VICTIM)
        });
    }

    fn wait_settled(&self) {
        self.wait_clients("connections", |client| client.answers(Phase::Out).len() >= self.pace.settled);
    }

    /// Asserts that no client had an unacceptable result, and prints the times that endpoints needed to leave
    /// service and to come back.
    fn conclude(self, modes: &[&str]) {
        let Kind { service, check, words, .. } = &self.kind;
        let mut times = Vec::new();
        for (mode, client) in modes.iter().zip(self.clients) {
            let made = client.finish();
            for one in &made {
                assert!(!one.is_wrong(VICTIM), "{service}, {mode}: {one:?}");
            }
            times.push(said(mode, &made, self.broken, self.repaired));
        }
        let number = |field: &str| check[field].as_u64().unwrap();
        let waits = if *words == SILENT { number("timeoutMs") } else { 0 };
        let verified = self.verified.map_or(Duration::ZERO, |verified| verified - self.broken);
        println!(
            "{service}: {} checks every {} ms{}; known to be out everywhere after {} ms; {}",
            number("fall"),
            number("intervalMs"),
            if waits > 0 { format!(", {waits} ms for an answer") } else { String::new() },
            verified.as_millis(),
            times.join("; "),
        );
    }
}

impl Kind {
    fn speaks_tls(&self) -> bool {
        self.check["type"] == "Https"
    }
}

/// Returns a one-line summary of the connections of a client. `broken` and `repaired` are the times of the
/// endpoint's failure and repair.
fn said(mode: &str, made: &[Made], broken: Instant, repaired: Instant) -> String {
    let is_victim = |one: &Made| one.outcome.as_ref().is_ok_and(|name| name == VICTIM);
    let is_met = |one: &&Made| one.begun_in == Phase::Broken && (one.outcome.is_err() || is_victim(one));
    let last = made.iter().filter(is_met).map(|one| one.began - broken).max();
    let failed = made.iter().filter(|one| one.outcome.is_err()).count();
    let back = made.iter().find(|one| one.begun_in == Phase::Back && is_victim(one));
    let ms = |time: Option<Duration>| {
        time.map_or_else(|| "never".to_owned(), |time| format!("{} ms", time.as_millis()))
    };
    format!(
        "{mode}: last met after {}, {failed} of {} connections failed, met again after {}",
        ms(last),
        made.len(),
        ms(back.map(|one| one.began - repaired)),
    )
}

/// Checks that endpoints of seven Services, each failing in a different way, leave service on every node
/// without a change in the API, that no client fails after that, and that the endpoints come back. An
/// unhealthy endpoint of a Service with a panic threshold (minimum share of healthy endpoints) stays in
/// service until the threshold is removed.
pub(crate) fn break_and_come_back(modes: &[&'static str]) {
    let pace = if guest::is_inside() { SLOW } else { QUICK };
    let stage = Stage::new(modes, pace.steady);
    let cluster = &stage.cluster;
    let authority = Authority::new();
    let steady: Vec<_> = stage.workloads.iter().flat_map(|one| steady(one, &authority)).collect();
    let mut objects = Vec::new();
    let mut stories = Vec::new();
    for (index, kind) in kinds(&authority, pace.interval_ms).into_iter().enumerate() {
        let at_home = &stage.workloads[index % stage.workloads.len()];
        let story = Story::new(kind, u16::try_from(index).unwrap(), at_home, &authority, pace);
        objects.extend(story.objects(&stage, at_home));
        stories.push(story);
    }
    cluster.apply_objects(&objects).unwrap();
    for story in &stories {
        story.wait_in_service(cluster);
    }
    cluster.wait_converged().unwrap();
    let tls = authority.client();
    for story in &mut stories {
        story.start_clients(&stage, &tls);
    }
    for story in &stories {
        story.wait_victim_met(Phase::Whole);
    }
    let mut panicking = stories.pop().unwrap();
    assert_eq!(panicking.kind.service, "panics");
    panicking.break_it();
    stories.iter_mut().for_each(Story::break_it);
    wait_out(&mut stories, cluster);
    panic_until_told(&panicking, cluster);
    stories.push(panicking);
    wait_out(&mut stories, cluster);
    stories.iter().for_each(Story::wait_settled);
    stories.iter_mut().for_each(Story::repair);
    for story in &stories {
        story.wait_in_service(cluster);
        story.wait_victim_met(Phase::Back);
    }
    println!("{modes:?}");
    stories.into_iter().for_each(|story| story.conclude(modes));
    drop(steady);
}

/// Starts the two endpoints of a workload that always work: one without TLS and one with TLS.
fn steady(workload: &Workload, authority: &Authority) -> [Answering; 2] {
    let tls = [None, Some(authority.certificates())];
    let start = |(port, tls)| Answering::start(&workload.namespace, &workload.name, port, tls);
    let [plain, with_tls] = STEADY_PORTS;
    let [none, some] = tls;
    [(plain, none), (with_tls, some)].map(start)
}

/// Waits until an endpoint is unhealthy but still in service because of the panic threshold, and removes the
/// threshold.
fn panic_until_told(story: &Story, cluster: &Cluster) {
    let service = story.kind.service;
    wait_for(cluster, service, story.victim_at, "Unhealthy", 0);
    wait_verified(cluster, service);
    let shown = cluster.service(&format!("default/{service}")).unwrap();
    let counts = &shown["status"]["endpoints"];
    assert!(counts["ready"] == counts["total"] && counts["unhealthy"] == 1, "{shown:#}");
    let failures: Vec<_> = story.clients.iter().map(Client::failures).collect();
    wait::until_true("an endpoint that fails to be used below the panic threshold", || {
        story.clients.iter().zip(&failures).all(|(client, before)| client.failures() > *before + 1)
    })
    .unwrap();
    let patch = json!({ "spec": { "healthCheck": { "panicThreshold": 0 } } });
    cluster.patch(&format!("namespaces/default/services/{service}"), &patch).unwrap();
    wait_verified(cluster, service);
}

fn wait_out(stories: &mut [Story], cluster: &Cluster) {
    wait::until("all that broke to be out of service everywhere", || {
        let looks = stories.iter_mut().map(|story| {
            let service = story.kind.service;
            story.look_whether_out(cluster).map_err(|error| anyhow!("{service}: {error:#}"))
        });
        // Each is checked, independent of the others.
        looks.fold(Ok(()), Result::and)
    })
    .unwrap();
}
