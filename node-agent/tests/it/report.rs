//! Tests of the reports that an agent sends to the control server: content, time and frequency. A healthy
//! agent logs nothing.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use model::{
    kinds::service::Protocol,
    wire::{
        feed::{Frame, NetworkState, NodeState, StartMode},
        report::{CheckState, FAILURES_MAX, FailureReason, Report, TRAFFIC_TARGETS_MAX, TargetTraffic},
    },
};
use node_agent::{
    agent::traffic::TrafficByService,
    config::{Config, options::Options},
    dataplane::memory::MemoryKernel,
    report::ReportedTraffic,
    run,
};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::support::{
    Namespace,
    agents::Kernels,
    control::{Control, PATIENCE, Said},
    dir::StateDir,
    isolated::rerun,
    states::*,
};

/// Agent with an in-memory kernel that reports to a simulated control server.
struct Running {
    control: Control,
    kernel: MemoryKernel,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _dir: StateDir,
}

impl Running {
    async fn start(test: &str, control: Control) -> Self {
        let dir = StateDir::new(&format!("report-{test}"));
        let options = Options {
            api: Some(vec![format!("http://{}", control.address)]),
            node: Some("n1".to_owned()),
            state_dir: Some(dir.path().to_owned()),
            listen: Some("127.0.0.1:0".to_owned()),
            ..Options::default()
        };
        let config = Config::from_options(options, "host").unwrap();
        let (kernel, stop) = (MemoryKernel::default(), CancellationToken::new());
        let (ready, is_ready) = oneshot::channel();
        let task = tokio::spawn(run::run(config, Kernels::only(&kernel).ways(), stop.clone(), ready));
        timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        Self { control, kernel, stop, task, _dir: dir }
    }

    /// Waits for the first report with the position `at` (epoch and revision) as the one verified in the
    /// kernel, and returns the report.
    async fn verified(&self, at: &str) -> Report {
        let is_it = |report: &&Report| report.verified == position(at);
        self.control.until(at, |said| said.reports.iter().any(|report| is_it(&report))).await;
        self.control.said().reports.iter().find(is_it).unwrap().clone()
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reported_before_control_knows_the_node() {
    let control = Control::start().await;
    {
        let mut said = control.said();
        (said.knows_node, said.refuses_nodes) = (false, true);
    }
    let mut running = Running::start("known", control).await;
    running.control.until("two attempts", |said| said.registrations.len() >= 2).await;
    running.control.said().refuses_nodes = false;
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    running.verified("7-10").await;
    {
        let said = running.control.said();
        let first = said.requests.iter().position(|request| request == "PUT report").unwrap();
        let opened = said.requests.iter().rposition(|request| request == "GET state").unwrap();
        assert!(first > opened, "{:?}", said.requests);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_says_how_far_the_agent_is_and_what_failed() {
    let mut running = Running::start("content", Control::start().await).await;
    let stream = running.control.accept().await;
    let extra = u16::try_from(FAILURES_MAX).unwrap() + 5;
    stream.send(&full_frames("7-10", (1..=extra).map(|n| unsupported(n, 9)).collect()));
    let report = running.verified("7-10").await;
    assert_eq!((report.received, report.applied), (position("7-10"), position("7-10")));
    assert_eq!((report.failures.len(), report.failures_total), (FAILURES_MAX, u64::from(extra)));
    assert_eq!(report.failures[&service_key(1)].reason, FailureReason::Unsupported);
    assert_eq!(report.counters.objects_received, u64::from(extra));
    assert!(!report.boot_id.is_empty() && !report.facts.kernel.is_empty());

    let mut frames: Vec<_> = (2..=extra).map(|n| set(service(n, 1, 11))).collect();
    frames.push(synced("7-11"));
    stream.send(&frames);
    let later = running.verified("7-11").await;
    assert_eq!((later.failures.len(), later.failures_total), (1, 1));
    assert_eq!(later.boot_id, report.boot_id);
    running.stop().await;
}

/// An older control server rejects a report with a field that it does not know. The agent leaves the field out of this and
/// all following reports, and sends it again over a new stream, since the server may have been upgraded.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_control_server_gets_reports_without_the_fields_that_it_does_not_know() {
    let control = Control::start().await;
    control.said().is_older = true;
    let mut running = Running::start("older", control).await;
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    assert_eq!(running.verified("7-10").await.facts.kernel, "left out");
    let requests = |said: &Said| said.requests.iter().filter(|request| *request == "PUT report").count();
    {
        let said = running.control.said();
        assert_eq!(requests(&said), said.reports.len() + 1, "one report was rejected");
    }
    running.control.said().is_older = false;
    stream.cut();
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-11", vec![service(1, 1, 11)]));
    assert_ne!(running.verified("7-11").await.facts.kernel, "left out");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_never_two_in_flight_and_the_last_one_is_current() {
    let control = Control::start().await;
    control.said().report_time = Duration::from_millis(100);
    let mut running = Running::start("flight", control).await;
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    for revision in 11..60 {
        stream.send(&[set(service(1, 1, revision)), synced(&format!("7-{revision}"))]);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.verified("7-59").await;
    let (most, count) = {
        let said = running.control.said();
        (said.reports_in_flight.1, said.reports.len())
    };
    assert_eq!(most, 1);
    assert!(count < 20, "{count} reports of 50 changes: progress between two is told once");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_control_refused_is_sent_again() {
    let control = Control::start().await;
    control.said().refuses_reports = true;
    let mut running = Running::start("again", control).await;
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    let refused = |requests: &[String]| requests.iter().filter(|request| *request == "PUT report").count();
    running.control.until("refusals", |said| refused(&said.requests) >= 3).await;
    assert!(running.control.said().reports.is_empty());
    running.control.said().refuses_reports = false;
    running.verified("7-10").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_that_comes_back_is_told_again_and_the_kernel_has_not_changed() {
    let mut running = Running::start("away", Control::start().await).await;
    let stream = running.control.accept().await;
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    let before = running.verified("7-10").await;
    let address = running.control.address;
    running.control = Control::start().await; // The old one is gone, and the agent does not know the new address.
    stream.cut();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running.kernel.contents().programs.len(), 1);
    running.control = Control::start_at(address).await;
    let stream = running.control.accept().await;
    assert_eq!(stream.resume.as_deref(), Some("7-10"));
    stream.send(&[start(StartMode::Delta, "7-10"), synced("7-10")]);
    let after = running.verified("7-10").await;
    assert_eq!(
        after.counters.kernel_transactions, before.counters.kernel_transactions,
        "nothing reprogrammed"
    );
    running.stop().await;
}

/// F086: each report contains the traffic counters that have changed since the last report, and lists removed
/// counters. If a report is lost, the next report contains the changes of the lost one again.
#[test]
fn f086_reports_carry_the_traffic_that_control_has_not_been_told() {
    let row = |connections| TargetTraffic {
        protocol: Protocol::Tcp,
        address: "10.244.1.1".parse().unwrap(),
        port: None,
        connections,
        packets: None,
        bytes: None,
        active: None,
        inactive: None,
        per_second: None,
        failed: None,
    };
    let of = |rows: &[(u16, u64)]| -> Arc<TrafficByService> {
        Arc::new(
            rows.iter()
                .map(|(number, connections)| (service_key(*number), vec![row(*connections)]))
                .collect(),
        )
    };
    let mut told = ReportedTraffic::default();
    let first = of(&[(1, 5), (2, 7)]);
    assert_eq!(told.news(&first), *first);
    assert_eq!(told.news(&of(&[(1, 5), (2, 7)])), *first, "not delivered");
    let news = told.news(&first);
    told.delivered(news);
    assert!(told.news(&first).is_empty());
    let second = of(&[(1, 5), (2, 8)]);
    assert_eq!(told.news(&second), *of(&[(2, 8)]));
    let news = told.news(&second);
    told.delivered(news);
    let third = of(&[(1, 5)]);
    let news = told.news(&third);
    assert_eq!(news[&service_key(2)], []);
    told.delivered(news);
    assert!(told.news(&third).is_empty());

    let many: Vec<_> = (1..=u16::try_from(TRAFFIC_TARGETS_MAX).unwrap()).map(|number| (number, 1)).collect();
    let many = of(&many);
    let mut rounds = 0;
    loop {
        let news = told.news(&many);
        if news.is_empty() {
            break;
        }
        assert!(news.values().map(|rows| rows.len() + 1).sum::<usize>() <= TRAFFIC_TARGETS_MAX);
        told.delivered(news);
        rounds += 1;
    }
    assert_eq!(rounds, 2, "what is left over comes with the next report");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A healthy agent logs nothing at level `info`, neither at its start nor for changes, heartbeats or reports.
/// Runs in a separate process, because a process-wide log would include other tests.
#[test]
fn a_quiet_healthy_node_logs_nothing_at_info_after_its_start() {
    const MARK: &str = "TIDEGATE_TEST_QUIET";
    if std::env::var_os(MARK).is_none() {
        let name = "report::a_quiet_healthy_node_logs_nothing_at_info_after_its_start";
        rerun(std::process::Command::new("env").arg(format!("{MARK}=1")), &[name]);
        return;
    }
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("info"))
        .with_ansi(false)
        .with_writer(log.clone())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut running = Running::start("quiet", Control::start().await).await;
        let stream = running.control.accept().await;
        stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
        for revision in 11..20 {
            stream.send(&[set(service(1, 2, revision)), synced(&format!("7-{revision}"))]);
            stream.send(&[heartbeat(&format!("7-{revision}"))]);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        running.verified("7-19").await;
        running.stop().await;
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text, "");
}

/// Returns the last reported health state and message of the endpoint of Service 1, or `None` if the endpoint
/// is not checked.
fn told_of_endpoint(said: &Said) -> Option<(CheckState, String)> {
    let reports = said.reports.iter().rev().find_map(|report| report.health.get(&service_key(1)))?;
    reports.first().map(|report| (report.state, report.message.clone()))
}

/// Health check results are reported as soon as they change, and completely if the control server may have
/// lost them. If a health check is removed, its results are reported as removed.
#[test]
fn what_endpoints_answer_is_told_when_it_changes_and_again_to_whoever_is_new() {
    let namespace = Namespace::new("report-health");
    namespace.ip(&["addr", "add", "10.244.1.1/32", "dev", "lo"]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    namespace.run(|| {
        runtime().block_on(async {
            let mut running = Running::start("health", Control::start().await).await;
            let stream = running.control.accept().await;
            let mut checked = service(1, 1, 9);
            checked.health_check = serde_json::from_value(serde_json::json!({
                "type": "Tcp", "intervalMs": 100, "timeoutMs": 10_000, "rise": 1, "fall": 1,
            }))
            .unwrap();
            let checkers = NetworkState { checkers: [node_name()].into(), ..NetworkState::default() };
            stream.send(&[
                start(StartMode::Full, "7-10"),
                Frame::Network(checkers),
                Frame::Node(NodeState::default()),
                set(checked.clone()),
                synced("7-10"),
            ]);
            let is = |state: CheckState, words: &'static str| {
                move |said: &Said| told_of_endpoint(said) == Some((state, words.to_owned()))
            };
            running.control.until("refused", is(CheckState::Unhealthy, "connection refused")).await;
            let listener = std::net::TcpListener::bind("10.244.1.1:8080").unwrap();
            running.control.until("accepted", is(CheckState::Healthy, "accepted the connection")).await;
            let told = running.control.said().reports.len();
            stream.cut();
            let stream = running.control.accept().await;
            stream.send(&[start(StartMode::Delta, "7-10"), synced("7-10")]);
            let is_whole = |report: &Report| report.health_complete && report.health.len() == 1;
            running.control.until("all", |said| said.reports[told..].iter().any(is_whole)).await;
            assert_eq!(told_of_endpoint(&running.control.said()).unwrap().0, CheckState::Healthy);
            drop(listener);
            running.control.until("refused again", is(CheckState::Unhealthy, "connection refused")).await;
            checked.health_check = None;
            stream.send(&[set(checked), synced("7-11")]);
            running.control.until("no check", |said| told_of_endpoint(said).is_none()).await;
            running.stop().await;
        });
    });
}
