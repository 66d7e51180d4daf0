//! Feed, the stream of state to one agent: first the full state, or the changes since the agent's position (a
//! delta); then changes as they are published.
//!
//! A feed task stores only the position that it has sent. Each transmission is the difference from that
//! position to the newest state, so that a slow agent skips intermediate states and no queue grows. `pacer`
//! decides when to send. `state::frame_batch` builds the payload; agents at the same position share the same
//! bytes.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    kinds::resource::{Kind, ObjectKey},
    primitives::{name::Name, quantity::Position},
    wire::feed::{Frame, NetworkState, NodeState, StartMode},
};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{
    base::body_stream::{Gone, HEARTBEAT, Pieces},
    state::{
        commit_traces::CommitTraces,
        compiled_set::line,
        published::{Hub, Published},
    },
    telemetry::metrics::Metrics,
};

pub(crate) mod pacer;
mod questions;
mod sink;

use self::{pacer::FanoutPacer, sink::Sink};
use crate::state::frame_batch::{Batches, FrameSelection};
pub(crate) use questions::Questions;

/// State that the feeds of all agents share.
#[derive(Debug)]
pub(crate) struct Feeding {
    /// Pacer that determines when feeds send the newest state.
    pub(crate) pacer: FanoutPacer,
    /// Cache of the batches of lines that feeds send.
    pub(crate) batches: Batches,
}

impl Feeding {
    /// Creates the shared state of feeds, starting at a published state.
    pub(crate) fn new(published: Arc<Published>, traces: Arc<CommitTraces>) -> Self {
        Self { pacer: FanoutPacer::new(published), batches: Batches::new(traces) }
    }
}

/// Parameters of the feed of one agent.
pub(crate) struct Feed {
    /// Node of the agent.
    pub(crate) node: Name,
    /// Position from which the agent resumes; `None` requests a full sync.
    pub(crate) resume: Option<Position>,
    /// Frames that the agent understands.
    pub(crate) selection: FrameSelection,
    /// Holder of the published state that the first batch is created from.
    pub(crate) hub: Arc<Hub>,
    /// Pacer and batch cache that all feeds share.
    pub(crate) feeding: Arc<Feeding>,
    /// Metrics of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// Token that is cancelled to end the feed, for example at shutdown or after the agent reconnects.
    pub(crate) stop: CancellationToken,
}

/// Position, cluster-wide settings and node settings that the agent has received.
struct SentPosition {
    position: Position,
    network: Arc<NetworkState>,
    node: NodeState,
}

/// Reason why a feed ends. No variant is an error of this server.
enum End {
    Gone,
    Restart,
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Feed {
    /// Sends state and queries to the agent until it disconnects or must resynchronize. `asks` receives the
    /// lines with queries; before each, the state published so far is sent.
    /// Returns true if the agent has closed the feed.
    pub(crate) async fn run(self, pieces: Pieces, gzip: bool, mut asks: mpsc::Receiver<Bytes>) -> bool {
        let node = self.node.clone();
        tracing::debug!(%node, resume = ?self.resume, "feed begins");
        let mut sink = Sink::new(pieces, gzip, Arc::clone(&self.metrics));
        let (has_left, reason) = match self.serve(&mut sink, &mut asks).await {
            Ok(()) => (false, "stopped"),
            Err(End::Gone) => (true, "agent went away"),
            Err(End::Restart) => (false, "agent must resynchronize"),
        };
        sink.finish().await;
        tracing::debug!(%node, reason, "feed ends");
        has_left
    }

    async fn serve(&self, sink: &mut Sink, asks: &mut mpsc::Receiver<Bytes>) -> Result<(), End> {
        let mut pacer = self.feeding.pacer.subscribe();
        let mut sent = self.start(&self.hub.load(), sink).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.closed() => return Err(End::Gone),
                changed = pacer.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let published = Arc::clone(&pacer.borrow_and_update());
                    if self.follow(&published, &mut sent, sink).await? {
                        heartbeat.reset();
                    }
                }
                Some(ask) = asks.recv() => {
                    // The caller of a query may have written before and means the state that holds its write.
                    self.follow(&self.hub.load(), &mut sent, sink).await?;
                    sink.line(&ask).await?;
                    sink.flush().await?;
                }
                _ = heartbeat.tick() => {
                    sink.line(&line(&Frame::Heartbeat { position: sent.position })).await?;
                    sink.flush().await?;
                }
            }
        }
    }

    /// Sends the first batch: the changes after the agent's position if they are in memory, otherwise the full
    /// state.
    async fn start(&self, published: &Published, sink: &mut Sink) -> Result<SentPosition, End> {
        let position = published.position();
        let known = self.resume.filter(|at| at.epoch == position.epoch && at.revision <= position.revision);
        let since = known.and_then(|at| self.feeding.batches.since(at.revision, published, self.selection));
        let mode = if since.is_some() { StartMode::Delta } else { StartMode::Full };
        let node = published.node_state(&self.node);
        sink.line(&line(&Frame::Start { mode, position })).await?;
        sink.chunk(&published.network_line).await?;
        sink.line(&line(&Frame::Node(node.clone()))).await?;
        match since {
            Some(since) => sink.batch(&since).await?,
            None => {
                self.metrics.feed_full_starts.inc();
                for batch in self.feeding.batches.whole(published, self.selection) {
                    sink.batch(&batch).await?;
                }
            }
        }
        Ok(SentPosition { position, network: Arc::clone(&published.network), node })
    }

    /// Sends the changes since the position last sent. Returns true if there were any, or an error if the
    /// feed must end.
    async fn follow(
        &self,
        published: &Published,
        sent: &mut SentPosition,
        sink: &mut Sink,
    ) -> Result<bool, End> {
        let position = published.position();
        // Another epoch: revisions are not comparable.
        if position.epoch != sent.position.epoch {
            return Err(End::Restart);
        }
        // The first state was the newest one, which the pacer may not have reached.
        if position <= sent.position {
            return Ok(false);
        }
        if !exists(published, &self.node) {
            return Err(End::Restart);
        }
        let revision = sent.position.revision;
        let batch = self.feeding.batches.since(revision, published, self.selection).ok_or(End::Restart)?;
        let node = published.node_state_after(&self.node, revision).filter(|node| *node != sent.node);
        let network_changed = sent.network != published.network;
        let anything = network_changed || node.is_some() || batch.objects > 0;
        sent.position = position;
        if !anything {
            return Ok(false);
        }
        if network_changed {
            sent.network = Arc::clone(&published.network);
            sink.chunk(&published.network_line).await?;
        }
        if let Some(node) = node {
            sent.node = node;
            sink.line(&line(&Frame::Node(sent.node.clone()))).await?;
        }
        sink.batch(&batch).await?;
        Ok(true)
    }
}

fn exists(published: &Published, node: &Name) -> bool {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    published.snapshot.get(&key).is_some()
}
