//! Tests of the feed client, which receives the agent's state, with a simulated control server that
//! misbehaves in ways in which a real one never does.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{sync::Arc, time::Duration};

use model::wire::{
    ask::{AskId, Question},
    feed::{Frame, StartMode},
};
use node_agent::{
    ask::{QUESTIONS_WAITING_MAX, ReceivedQuery},
    control::{self, Control},
    feed::{
        self, FeedOptions, LINE_BYTES_MAX, Outlets, ReceivedPart, machine::Batch, register::Registration,
    },
    hold,
    tally::Tally,
};
use rustls::RootCertStore;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    control::{Control as StandIn, PATIENCE, Stream},
    states::*,
};

struct Follower {
    control: StandIn,
    batches: mpsc::Receiver<Batch>,
    asked: mpsc::Receiver<ReceivedQuery>,
    is_known: watch::Receiver<bool>,
    ways: Arc<Control>,
    tally: Tally,
    stop: CancellationToken,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Follower {
    fn start(stand_in: StandIn, held: Option<&str>) -> Self {
        let (batches, received) = mpsc::channel(64);
        let (is_known, known) = watch::channel(false);
        let (tally, stop) = (Tally::default(), CancellationToken::new());
        let options = FeedOptions {
            node: node_name(),
            registration: Registration {
                addresses: vec!["192.0.2.7".parse().unwrap()],
                workload_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
                ..Registration::default()
            },
            heartbeat_interval: Duration::from_millis(200),
            reconnect_floor: Duration::from_millis(1),
            reconnect_cap: Duration::from_millis(20),
        };
        let (questions, asked) = mpsc::channel(QUESTIONS_WAITING_MAX);
        let outlets = Outlets { batches, questions, is_known, link: hold::link().1, tally: tally.clone() };
        let held = ReceivedPart {
            position: held.map(position),
            has_workload_networks: false,
            has_network_policy: false,
        };
        let client = control::client(RootCertStore::empty()).unwrap();
        let ways =
            Arc::new(Control::new(vec![format!("http://{}", stand_in.address).parse().unwrap()], client));
        tokio::spawn(feed::follow(Arc::clone(&ways), options, held, outlets, stop.clone()));
        Self { control: stand_in, batches: received, asked, is_known: known, ways, tally, stop }
    }

    async fn batch(&mut self) -> Batch {
        timeout(PATIENCE, self.batches.recv()).await.expect("a batch comes").unwrap()
    }

    /// Starts a feed client and lets it receive a full state at position 7-10 (epoch 7, revision 10) on its
    /// first stream. Returns both.
    async fn settled() -> (Self, Stream) {
        let mut follower = Self::start(StandIn::start().await, None);
        let stream = follower.control.accept().await;
        assert_eq!(stream.resume, None);
        stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
        assert_eq!(follower.batch().await, full("7-10", vec![service(1, 1, 9)]));
        (follower, stream)
    }

    /// Asserts that the client recovers from an invalid stream: the client has delivered no change from this
    /// stream, and its next stream resumes from the agent's position and delivers new data.
    async fn recovers(mut self) {
        let stream = self.control.accept().await;
        assert_eq!(stream.resume.as_deref(), Some("7-10"));
        assert!(self.batches.try_recv().is_err(), "nothing took effect");
        stream.send(&[start(StartMode::Delta, "7-11"), set(service(2, 1, 11)), synced("7-11")]);
        assert_eq!(self.batch().await, delta("7-11", vec![service(2, 1, 11)]));
    }
}

#[tokio::test]
async fn frames_take_effect_at_synced_and_a_cut_resumes_from_there() {
    let (mut follower, stream) = Follower::settled().await;
    stream.send(&[set(service(5, 1, 11)), removed(1, 12)]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(follower.batches.try_recv().is_err(), "not before synced");
    stream.cut();
    follower.recovers().await;
}

#[tokio::test]
async fn a_cut_inside_a_frame_changes_nothing() {
    let (follower, stream) = Follower::settled().await;
    stream.send_bytes(&b"{\"type\":\"synced\",\"position\":\"7-1"[..]);
    drop(stream);
    follower.recovers().await;
}

/// F003: an agent whose position is too old receives and applies the full state.
#[tokio::test]
async fn an_unknown_token_is_answered_with_a_full_state_which_replaces_all() {
    let mut follower = Follower::start(StandIn::start().await, Some("6-900"));
    let stream = follower.control.accept().await;
    assert_eq!(stream.resume.as_deref(), Some("6-900"));
    stream.send(&full_frames("7-10", vec![service(1, 1, 9)]));
    assert_eq!(follower.batch().await.mode, StartMode::Full);
    stream.cut();
    assert_eq!(follower.control.accept().await.resume.as_deref(), Some("7-10"));
}

#[tokio::test]
async fn an_unknown_node_registers_itself_and_connects() {
    let control = StandIn::start().await;
    control.said().knows_node = false;
    let mut follower = Follower::start(control, None);
    let _stream = follower.control.accept().await;
    follower.is_known.wait_for(|is_known| *is_known).await.unwrap();
    let said = follower.control.said();
    assert_eq!(said.requests, ["GET state", "POST nodes", "GET state"]);
    let node = &said.registrations[0];
    assert_eq!(node["kind"], "Node");
    assert_eq!(node["metadata"]["name"], "n1");
    assert_eq!(node["spec"]["addresses"], serde_json::json!(["192.0.2.7"]));
    assert_eq!(node["spec"]["workloadCIDRs"], serde_json::json!(["10.244.1.0/24"]));
}

#[tokio::test]
async fn a_refused_registration_is_tried_again_and_the_node_is_not_known_before() {
    let control = StandIn::start().await;
    {
        let mut said = control.said();
        (said.knows_node, said.refuses_nodes) = (false, true);
    }
    let mut follower = Follower::start(control, None);
    follower.control.until("three attempts", |said| said.registrations.len() >= 3).await;
    assert!(!*follower.is_known.borrow());
    follower.control.said().refuses_nodes = false;
    follower.control.accept().await;
}

/// Sends a valid state, then `bytes`, and asserts that the agent disconnects.
async fn leaves(bytes: Vec<u8>) {
    let (follower, stream) = Follower::settled().await;
    stream.send_bytes(bytes);
    stream.left().await;
    follower.recovers().await;
}

#[tokio::test]
async fn a_line_that_is_no_frame_ends_the_stream() {
    for line in ["{\"type\":\"service\"\n", "{\"type\":\"unheard\"}\n", "\n", "\u{fffd}\n", "[]\n"] {
        leaves(line.as_bytes().to_vec()).await;
    }
    leaves(vec![0xff, 0xfe, b'\n']).await;
}

#[tokio::test]
async fn a_line_over_the_limit_ends_the_stream() {
    leaves(vec![b' '; LINE_BYTES_MAX + 2]).await;
}

#[tokio::test]
async fn a_second_start_ends_the_stream() {
    let mut line = serde_json::to_vec(&start(StartMode::Full, "7-20")).unwrap();
    line.push(b'\n');
    leaves(line).await;
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_start_is_left() {
    let (mut follower, stream) = Follower::settled().await;
    drop(stream);
    let stream = follower.control.accept().await;
    stream.send(&[set(service(3, 1, 11)), synced("7-11")]);
    stream.left().await;
    follower.recovers().await;
}

#[tokio::test]
async fn silence_beyond_three_heartbeats_ends_the_stream_and_heartbeats_keep_it() {
    let (mut follower, stream) = Follower::settled().await;
    for _ in 0..10 {
        stream.send(&[heartbeat("7-10")]);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(follower.tally.feed_connects.get(), 1, "longer than the limit, but never silent");
    assert!(follower.batches.try_recv().is_err(), "a heartbeat without news is no batch");
    stream.left().await;
    follower.recovers().await;
}

#[tokio::test]
async fn an_older_history_is_refused_and_the_state_held_stays() {
    let (mut follower, mut stream) = Follower::settled().await;
    for (count, older) in ["7-9", "6-900"].into_iter().enumerate() {
        drop(stream);
        stream = follower.control.accept().await;
        assert_eq!(stream.resume.as_deref(), Some("7-10"));
        stream.send(&full_frames(older, Vec::new())[..1]);
        stream.left().await;
        assert_eq!(follower.tally.feed_refusals.get(), count as u64 + 1);
    }
    follower.recovers().await;
}

#[tokio::test]
async fn a_question_goes_to_who_answers_and_is_no_part_of_the_state() {
    let (mut follower, stream) = Follower::settled().await;
    let by = follower.ways.servers().next().unwrap();
    let asked = |id| ReceivedQuery { by, id: AskId(id), question: Question::Doctor };
    let ask = |id| Frame::Ask { id: AskId(id), question: Question::Doctor };
    let crowd = QUESTIONS_WAITING_MAX as u64;
    let questions = (1..=crowd + 5).map(ask);
    stream.send(&questions.chain([set(service(2, 1, 11)), ask(1000), synced("7-11")]).collect::<Vec<_>>());
    assert_eq!(follower.batch().await, delta("7-11", vec![service(2, 1, 11)]));
    for id in 1..=crowd {
        assert_eq!(follower.asked.try_recv().unwrap(), asked(id));
    }
    assert!(follower.asked.try_recv().is_err(), "what finds no room is left, and holds up nothing");
}
