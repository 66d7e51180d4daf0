//! Feed client: receives the state as a long-lived stream of frames from one control server, continues at the
//! next server after a failure, and delivers complete batches of changes.
//!
//! Invariants: the task waits only for the network and the agent, and the state never goes back to an older
//! one.

pub mod machine;
pub mod questions;
pub mod register;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base::{backoff::Backoff, chain, entropy};
use client::{LineTooLong, Lines, StreamError};
use model::{
    primitives::{name::Name, quantity::Position},
    wire::{
        ask::{AskId, Question},
        feed::Frame,
        network_policy::{NETWORK_POLICY_HEADER, NETWORK_POLICY_KNOWN, NETWORK_POLICY_NEW},
        workload_network::{WORKLOAD_NETWORKS_HEADER, WORKLOAD_NETWORKS_KNOWN, WORKLOAD_NETWORKS_NEW},
    },
};
use reqwest::StatusCode;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::{
    machine::{Assembler, Batch, StreamFault},
    register::{RegisterError, Registration},
};
use crate::{
    control::{
        Control, ServerId,
        board::StreamUse,
        choice::{Choice, Pace},
    },
    tally::Tally,
};

/// Maximum length in bytes of a line (one message) in the stream from the control server and in the journal.
/// A Service with 100 ports, each with 2,000 endpoints, fits.
pub const LINE_BYTES_MAX: usize = 32 << 20;
/// Maximum interval between heartbeats of the control server on the stream that delivers the state.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Number of missed heartbeats after which a stream from a control server is considered dead.
const HEARTBEATS_MISSED_MAX: u32 = 3;
/// Maximum time to wait for response headers while another server could be tried. A server whose state is
/// older than the agent's may use half of this time to catch up.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of bytes of an error response that are read for logging.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Query from a control server, received on the stream that delivers the state or on a stream of queries
/// only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedQuery {
    /// Server that sent the query and receives the reply.
    pub by: ServerId,
    /// Identifier of the query, repeated in the reply.
    pub id: AskId,
    /// Query to carry out, such as a preview or a diagnosis.
    pub question: Question,
}

/// End of the channels by which this task and the state guard, which withholds some states, exchange
/// positions (epoch and revision).
#[derive(Debug, Clone)]
pub struct FeedEnd {
    /// Position (epoch and revision) of the applied state while a newer state is held pending confirmation;
    /// the control server may go back to this position. `None` while no state is held.
    pub in_force: watch::Receiver<Option<Position>>,
    /// Last position (epoch and revision) offered by the control server, if it was older than that of the
    /// applied state.
    pub behind: watch::Sender<Option<Position>>,
}

/// Settings of the task that receives the state from a control server.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// Name of this node, whose state is requested.
    pub node: Name,
    /// Data with which the node is registered if the control server has no Node object for it.
    pub registration: Registration,
    /// Maximum interval between heartbeats, which the agent requests from the control server.
    pub heartbeat_interval: Duration,
    /// Minimum delay before a reconnect, at the start of the backoff.
    pub reconnect_floor: Duration,
    /// Maximum delay before a reconnect.
    pub reconnect_cap: Duration,
}

/// Part of a complete state that the agent has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceivedPart {
    /// Position (epoch and revision) of the state; `None` if the agent has no state.
    pub position: Option<Position>,
    /// True if the state includes the WorkloadNetworks and blocks.
    pub has_workload_networks: bool,
    /// True if the state includes the network policy.
    pub has_network_policy: bool,
}

/// Channels into which the task that receives the state puts the received data.
#[derive(Debug, Clone)]
pub struct Outlets {
    /// Queue to the agent for complete batches of state changes. The feed waits while the queue is full.
    pub batches: mpsc::Sender<Batch>,
    /// Queries from the control server; dropped if the queue is full.
    pub questions: mpsc::Sender<ReceivedQuery>,
    /// True once the control server has accepted this node; reports sent earlier would be rejected.
    pub is_known: watch::Sender<bool>,
    /// Channels by which this task and the state guard exchange positions (epoch and revision).
    pub link: FeedEnd,
    /// Metric counters of the agent, some of which this task increases.
    pub tally: Tally,
}

/// Reason why a stream from a control server ended or could not be opened.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("control cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("control rejected the feed with {status}: {body}")]
    Refused { status: StatusCode, body: String },
    #[error("control does not know this node, and the registration failed")]
    Unregistered(#[from] RegisterError),
    #[error("no data from control for {0:?}")]
    Silent(Duration),
    #[error("the stream broke")]
    Broken(#[source] reqwest::Error),
    #[error("the stream broke")]
    TooLong(#[source] LineTooLong),
    #[error("the stream ended")]
    Closed,
    #[error("a line is not a valid frame")]
    NotAFrame(#[from] serde_json::Error),
    #[error("the stream cannot be followed")]
    Fault(#[from] StreamFault),
    #[error("the server sends more than the questions it was asked for")]
    NotOnlyQuestions,
    #[error("the agent has stopped")]
    LoopGone,
}

impl From<StreamError> for StreamEnd {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Broken(cause) => Self::Broken(cause),
            StreamError::Silent(patience) => Self::Silent(patience),
            StreamError::TooLong(cause) => Self::TooLong(cause),
        }
    }
}

/// Receives the state from one control server at a time until stopped. `held` describes the agent's initial state.
pub async fn follow(
    control: Arc<Control>,
    options: FeedOptions,
    held: ReceivedPart,
    outlets: Outlets,
    stop: CancellationToken,
) {
    let mut follower = Follower { control, options, held, outlets, last_errors: BTreeMap::new() };
    let _stopped = stop.run_until_cancelled(follower.run()).await;
    follower.outlets.tally.feed_connected.set(0);
    follower.control.serving.send_replace(None);
}

struct Follower {
    control: Arc<Control>,
    options: FeedOptions,
    held: ReceivedPart,
    outlets: Outlets,
    /// Last error of each server since the last received batch, so that repeated errors are logged only once.
    last_errors: BTreeMap<ServerId, String>,
}

impl Follower {
    async fn run(&mut self) {
        let mut backoff = Backoff::new(self.options.reconnect_floor, self.options.reconnect_cap);
        let mut choice = Choice::new(&self.options.node, &self.control.urls);
        loop {
            let (begun, server) = (Instant::now(), choice.server());
            let end = self.follow_one(server).await;
            self.outlets.tally.feed_connected.set(0);
            self.control.serving.send_replace(None);
            if matches!(end, StreamEnd::LoopGone) {
                return;
            }
            // A stream that lasted for a heartbeat interval was healthy; a shorter one means a failing
            // server.
            let has_worked = begun.elapsed() >= self.options.heartbeat_interval;
            if has_worked {
                backoff.reset();
            }
            self.note(server, &end);
            match choice.go_on(has_worked) {
                Pace::AtOnce => {}
                Pace::AfterWait => tokio::time::sleep(backoff.next_delay(entropy())).await,
            }
        }
    }

    /// Logs the end of a stream from a server. A repeated error is logged only at debug level.
    fn note(&mut self, server: ServerId, end: &StreamEnd) {
        if let StreamEnd::Refused { status: StatusCode::UNAUTHORIZED, .. } = end {
            self.control.rejected.notify_one();
        }
        self.outlets.tally.feed_errors.inc();
        let text = chain(end);
        self.control.board.ended(server, StreamUse::State, Some(text.clone()));
        let text =
            if self.control.has_several() { format!("{}: {text}", self.control.base(server)) } else { text };
        let last = self.last_errors.insert(server, text.clone());
        if last.as_ref() == Some(&text) {
            debug!(error = text, "the feed was disconnected");
            return;
        }
        if let StreamEnd::Fault(StreamFault::OlderThanHeld { .. }) = end {
            error!(
                error = text,
                "control is behind this agent; the last good state stays until it has caught up"
            );
        } else {
            warn!(error = text, "the feed was disconnected; reconnecting");
        }
    }

    async fn follow_one(&mut self, server: ServerId) -> StreamEnd {
        let response = match self.connect(server).await {
            Ok(response) => response,
            Err(end) => return end,
        };
        self.outlets.tally.feed_connects.inc();
        self.outlets.tally.feed_connected.set(1);
        self.outlets.is_known.send_replace(true);
        self.control.serving.send_replace(Some(server));
        self.control.board.opened(server, StreamUse::State);
        let mut lines = Lines::new(response, LINE_BYTES_MAX, self.patience());
        let in_force = *self.outlets.link.in_force.borrow();
        let mut assembler = Assembler::holding_back(self.held.position, in_force.or(self.held.position));
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return StreamEnd::Closed,
                Err(error) => return error.into(),
            };
            if let Err(end) = self.take(server, &mut assembler, &line).await {
                return end;
            }
        }
    }

    async fn take(
        &mut self,
        server: ServerId,
        assembler: &mut Assembler,
        line: &[u8],
    ) -> Result<(), StreamEnd> {
        self.outlets.tally.feed_bytes.inc_by(line.len() as u64 + 1);
        let frame: Frame = serde_json::from_slice(line)?;
        match &frame {
            Frame::Service { .. }
            | Frame::Removed { .. }
            | Frame::Address { .. }
            | Frame::AddressRemoved { .. }
            | Frame::WorkloadNetwork { .. }
            | Frame::WorkloadNetworkRemoved { .. }
            | Frame::Block { .. }
            | Frame::BlockRemoved { .. }
            | Frame::PolicySet { .. }
            | Frame::PolicySetRemoved { .. }
            | Frame::PolicyWorkload { .. }
            | Frame::PolicyWorkloadRemoved { .. } => {
                self.outlets.tally.objects_received.inc();
            }
            Frame::Start { .. }
            | Frame::Network(_)
            | Frame::Ask { .. }
            | Frame::Node(_)
            | Frame::Synced { .. }
            | Frame::Heartbeat { .. } => {}
        }
        if let Frame::Ask { id, question } = &frame
            && assembler.has_started()
        {
            let asked = ReceivedQuery { by: server, id: *id, question: question.clone() };
            if self.outlets.questions.try_send(asked).is_err() {
                debug!(id = id.0, "a query was dropped because the queue is full");
            }
            return Ok(());
        }
        let batch = assembler.push(frame).inspect_err(|fault| {
            if let StreamFault::OlderThanHeld { held: _, offered } = fault {
                self.outlets.tally.feed_refusals.inc();
                self.outlets.link.behind.send_replace(Some(*offered));
            }
        })?;
        let Some(batch) = batch else { return Ok(()) };
        let position = batch.position;
        let has_workload_networks = batch.networks.are_included.unwrap_or(self.held.has_workload_networks);
        let has_network_policy = batch.policy.is_included.unwrap_or(self.held.has_network_policy);
        // Set before the agent receives the batch, so that the report of the new state does not claim that
        // control is behind.
        self.outlets.link.behind.send_replace(None);
        self.outlets.batches.send(batch).await.map_err(|_closed| StreamEnd::LoopGone)?;
        self.held = ReceivedPart { position: Some(position), has_workload_networks, has_network_policy };
        if !std::mem::take(&mut self.last_errors).is_empty() {
            let server = self.control.base(server);
            info!(%position, %server, "the feed is connected again");
        }
        Ok(())
    }

    /// Opens the stream that delivers the state. Registers the node first if the control server has no Node
    /// object for it.
    async fn connect(&self, server: ServerId) -> Result<reqwest::Response, StreamEnd> {
        let response = self.open(server).await?;
        let status = response.status();
        if status != StatusCode::NOT_FOUND {
            return accepted(response).await;
        }
        let body = read_error(response).await;
        if !register::is_unknown_node(&body) {
            return Err(StreamEnd::Refused { status, body });
        }
        register::register(&self.control, server, &self.options.node, &self.options.registration).await?;
        info!(node = %self.options.node, "registered with control");
        accepted(self.open(server).await?).await
    }

    async fn open(&self, server: ServerId) -> Result<reqwest::Response, StreamEnd> {
        let url = self.control.url(server, &format!("/v1/nodes/{}/state", self.options.node));
        let ReceivedPart { position, has_workload_networks, has_network_policy } = self.held;
        let networks = if has_workload_networks { WORKLOAD_NETWORKS_KNOWN } else { WORKLOAD_NETWORKS_NEW };
        let policy = if has_network_policy { NETWORK_POLICY_KNOWN } else { NETWORK_POLICY_NEW };
        let request = self.control.client().get(url).header(WORKLOAD_NETWORKS_HEADER, networks);
        let request = request.header(NETWORK_POLICY_HEADER, policy);
        let request = request.query(&position.map(|held| [("resume", held.to_string())]));
        let patience = self.patience();
        let patience = if self.control.has_several() { patience.min(OPEN_TIME_MAX) } else { patience };
        let response =
            timeout(patience, request.send()).await.map_err(|_elapsed| StreamEnd::Silent(patience))?;
        response.map_err(StreamEnd::Unreachable)
    }

    fn patience(&self) -> Duration {
        self.options.heartbeat_interval * HEARTBEATS_MISSED_MAX
    }
}

async fn accepted(response: reqwest::Response) -> Result<reqwest::Response, StreamEnd> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(StreamEnd::Refused { status, body: read_error(response).await })
}

/// Reads the beginning of the body of an error response, for logging.
pub(crate) async fn read_error(response: reqwest::Response) -> String {
    client::http::read_start(response, ERROR_BODY_BYTES_MAX).await
}
