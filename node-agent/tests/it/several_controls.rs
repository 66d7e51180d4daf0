//! Tests of an agent with several control servers: one sends the feed (stream of state), all receive reports,
//! and each may send queries.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use model::wire::{
    ask::{AskId, Question},
    feed::{Frame, StartMode},
    report::Report,
};
use node_agent::{
    config::{Config, options::Options},
    control,
    dataplane::memory::MemoryKernel,
    run,
};
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::support::{
    self,
    agents::Kernels,
    control::{Control, PATIENCE, Stream},
    dir::StateDir,
    states::*,
};

/// Agent with an in-memory kernel and several simulated control servers.
struct Running {
    listen: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
    _dir: StateDir,
}

impl Running {
    async fn start(test: &str, controls: [std::net::SocketAddr; 2]) -> Self {
        let dir = StateDir::new(&format!("several-{test}"));
        let options = Options {
            api: Some(controls.map(|address| format!("http://{address}")).to_vec()),
            node: Some("n1".to_owned()),
            state_dir: Some(dir.path().to_owned()),
            listen: Some("127.0.0.1:0".to_owned()),
            ..Options::default()
        };
        let config = Config::from_options(options, "host").unwrap();
        let (kernel, stop) = (MemoryKernel::default(), CancellationToken::new());
        let (ready, is_ready) = oneshot::channel();
        let task = tokio::spawn(run::run(config, Kernels::only(&kernel).ways(), stop.clone(), ready));
        let run::Ready { listen, .. } = timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        Self { listen, stop, task, _dir: dir }
    }

    async fn get(&self, path: &str) -> String {
        let client = control::client(rustls::RootCertStore::empty()).unwrap();
        client.get(format!("http://{}{path}", self.listen)).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the state of the connection to a control server, as reported by the agent's status server.
    async fn seen(&self, control: &Control) -> Value {
        let state: Value = serde_json::from_str(&self.get("/v1/state").await).unwrap();
        let url = format!("http://{}", control.address);
        state["control"].as_array().unwrap().iter().find(|seen| seen["url"] == *url).unwrap().clone()
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

/// Agent with a state at position 7-10 (epoch 7, revision 10) and two control servers. The first server sends
/// the feed (stream of state), and the second one sends queries.
struct Settled {
    serving: Control,
    state: Stream,
    other: Control,
    questions: Stream,
    agent: Running,
}

async fn settled(test: &str) -> Settled {
    let (mut serving, mut other) = (Control::start().await, Control::start().await);
    let agent = Running::start(test, [serving.address, other.address]).await;
    // Each node has its own order of the servers.
    let state = tokio::select! {
        state = serving.accept() => state,
        state = other.accept() => {
            std::mem::swap(&mut serving, &mut other);
            state
        }
    };
    state.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    let questions = other.accept_listener().await;
    questions.send(&[heartbeat("7-10")]);
    Settled { serving, state, other, questions, agent }
}

fn has_told(at: &str) -> impl Fn(&support::control::Said) -> bool {
    let at = position(at);
    move |said| said.reports.iter().any(|report| report.verified == at)
}

fn last_report(control: &Control) -> Report {
    control.said().reports.last().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_server_ends_the_other_gives_the_state_and_the_kernel_is_not_written() {
    let Settled { serving, state, mut other, questions, agent } = settled("ends").await;
    for control in [&serving, &other] {
        control.until("each server is told", has_told("7-10")).await;
    }
    let before = last_report(&other).counters;
    assert_eq!(agent.seen(&serving).await["stream"], "state");
    drop((serving, state));
    let state = other.accept().await;
    assert_eq!(state.resume.as_deref(), Some("7-10"));
    questions.left().await;
    state.send(&[start(StartMode::Delta, "7-10"), synced("7-10")]);
    state.send(&[set(service(2, 1, 11)), synced("7-11")]);
    other.until("the change is carried out", has_told("7-11")).await;
    let after = last_report(&other).counters;
    assert_eq!(after.kernel_transactions, before.kernel_transactions + 1, "only what the change asks for");
    assert_eq!(agent.seen(&other).await["stream"], "state");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_costs_the_other_nothing_and_is_shown() {
    let down = Control::start().await;
    let address = down.address;
    drop(down);
    let mut up = Control::start().await;
    let agent = Running::start("down", [address, up.address]).await;
    let state = up.accept().await;
    state.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    up.until("the server is told", has_told("7-10")).await;
    for revision in 11..20 {
        let at = format!("7-{revision}");
        state.send(&[set(service(1, 1, revision)), synced(&at)]);
        up.until("at once", has_told(&at)).await;
    }
    let down = Control::start_at(address).await;
    down.until("one that is up again is told", has_told("7-19")).await;
    let seen = agent.seen(&down).await;
    assert!(seen["reportErrors"].as_u64().unwrap() > 0, "{seen}");
    let metrics = agent.get("/metrics").await;
    let line = format!("tidegate_agent_control_serves_state{{server=\"http://{}\"}} 1", up.address);
    assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_is_answered_and_nobody_else() {
    let Settled { serving, state, other, questions, agent } = settled("asks").await;
    let ask = |id| Frame::Ask { id: AskId(id), question: Question::Doctor };
    questions.send(&[ask(5)]);
    other.until("the answer", |said| said.answers.iter().any(|(id, _)| *id == 5)).await;
    assert!(serving.said().answers.is_empty());
    state.send(&[ask(5)]);
    serving.until("the answer", |said| said.answers.iter().any(|(id, _)| *id == 5)).await;
    assert_eq!(other.said().answers.len(), 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_behind_is_left_for_the_other_and_the_state_held_stays() {
    let Settled { mut serving, state, mut other, questions: _questions, agent } = settled("behind").await;
    serving.until("it is told", has_told("7-10")).await;
    state.cut();
    let state = other.accept().await;
    state.send(&full_frames("7-9", Vec::new())[..1]);
    state.left().await;
    let state = serving.accept().await;
    assert_eq!(state.resume.as_deref(), Some("7-10"), "nothing was taken");
    state.send(&[start(StartMode::Delta, "7-11"), set(service(2, 1, 11)), synced("7-11")]);
    serving.until("it goes on", has_told("7-11")).await;
    serving.until("nothing is held", |said| said.reports.last().is_some_and(|it| it.held.is_none())).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_streams_of_questions_is_left_alone_and_still_told() {
    let (first, second) = (Control::start().await, Control::start().await);
    for control in [&first, &second] {
        control.said().refuses_listeners = true;
    }
    let mut controls = [first, second];
    let agent = Running::start("unheard", [controls[0].address, controls[1].address]).await;
    let [first, second] = &mut controls;
    let state = tokio::select! { state = first.accept() => state, state = second.accept() => state };
    state.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    for revision in 11..14 {
        let at = format!("7-{revision}");
        state.send(&[set(service(1, 1, revision)), synced(&at)]);
        for control in &controls {
            control.until("each is told", has_told(&at)).await;
        }
    }
    let asked = |control: &Control| {
        control.said().requests.iter().filter(|request| *request == "GET questions").count()
    };
    assert!(controls.iter().map(asked).sum::<usize>() <= 1);
    agent.stop().await;
}

/// An agent discards a full state that arrives on a query stream, as from a server that ignores the request
/// parameter for query streams.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_state_is_taken_from_a_stream_of_questions() {
    let Settled { serving, state, other, questions, agent } = settled("foreign").await;
    questions.send(&full_frames("9-1", Vec::new()));
    questions.left().await;
    state.send(&[set(service(2, 1, 11)), synced("7-11")]);
    for control in [&serving, &other] {
        control.until("the state goes on", has_told("7-11")).await;
    }
    assert!(agent.seen(&other).await["streamError"].as_str().unwrap().contains("more than the questions"));
    agent.stop().await;
}
