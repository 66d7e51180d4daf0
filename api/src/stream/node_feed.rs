//! The feed to one agent: the complete state once, or what it lacks, then changes as they are published.
//!
//! The task holds a position and nothing else. Each turn sends what lies between it and the newest state, so a slow
//! reader skips over what was changed twice, and what is queued for it never grows. When there are turns, `beat` says; what is
//! sent in one, `batch`, the same bytes to all who lack the same.

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
        compiled_set::line,
        published::{Hub, Published},
    },
    telemetry::metrics::Metrics,
};

pub(crate) mod beat;
mod questions;
mod sink;

use self::{beat::Beat, sink::Sink};
use crate::state::frame_batch::Batches;
pub(crate) use questions::Questions;

/// What all feeds share.
#[derive(Debug)]
pub(crate) struct Feeding {
    /// When they are told.
    pub(crate) beat: Beat,
    /// What they are told.
    pub(crate) batches: Batches,
}

impl Feeding {
    /// Begins with a state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self { beat: Beat::new(published), batches: Batches::default() }
    }
}

/// What a feed works with.
pub(crate) struct Feed {
    /// The node.
    pub(crate) node: Name,
    /// Where the agent is, if it says so.
    pub(crate) resume: Option<Position>,
    /// Where the first state comes from.
    pub(crate) hub: Arc<Hub>,
    /// Where the later ones come from.
    pub(crate) feeding: Arc<Feeding>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Ends the feed.
    pub(crate) stop: CancellationToken,
}

/// What the agent has been sent.
struct Sent {
    position: Position,
    network: Arc<NetworkState>,
    node: NodeState,
}

/// Why a feed ends; none is an error of this server.
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
    /// Serves the agent until it goes away, or has to begin again. `asks` are lines of questions; each is sent behind the state
    /// that was published before it.
    pub(crate) async fn run(self, pieces: Pieces, gzip: bool, mut asks: mpsc::Receiver<Bytes>) {
        let node = self.node.clone();
        tracing::debug!(%node, resume = ?self.resume, "feed begins");
        let mut sink = Sink::new(pieces, gzip, Arc::clone(&self.metrics));
        let reason = match self.serve(&mut sink, &mut asks).await {
            Ok(()) => "stopped",
            Err(End::Gone) => "agent went away",
            Err(End::Restart) => "agent must begin again",
        };
        sink.finish().await;
        tracing::debug!(%node, reason, "feed ends");
    }

    async fn serve(&self, sink: &mut Sink, asks: &mut mpsc::Receiver<Bytes>) -> Result<(), End> {
        let mut beat = self.feeding.beat.subscribe();
        let mut sent = self.start(&self.hub.load(), sink).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.closed() => return Err(End::Gone),
                changed = beat.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let published = Arc::clone(&beat.borrow_and_update());
                    if self.follow(&published, &mut sent, sink).await? {
                        heartbeat.reset();
                    }
                }
                Some(ask) = asks.recv() => {
                    // Whoever asks may have written before, and means the state that holds it.
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

    /// Sends the first batch.
    async fn start(&self, published: &Published, sink: &mut Sink) -> Result<Sent, End> {
        let position = published.position();
        let known = self.resume.filter(|at| at.epoch == position.epoch && at.revision <= position.revision);
        let since = known.and_then(|at| self.feeding.batches.since(at.revision, published));
        let mode = if since.is_some() { StartMode::Delta } else { StartMode::Full };
        let node = published.node_state(&self.node);
        sink.line(&line(&Frame::Start { mode, position })).await?;
        sink.chunk(&published.network_line).await?;
        sink.line(&line(&Frame::Node(node.clone()))).await?;
        match since {
            Some(since) => sink.batch(&since).await?,
            None => {
                self.metrics.feed_full_starts.inc();
                for batch in self.feeding.batches.whole(published) {
                    sink.batch(&batch).await?;
                }
            }
        }
        Ok(Sent { position, network: Arc::clone(&published.network), node })
    }

    /// Sends what changed since the last batch; says whether there was anything.
    async fn follow(&self, published: &Published, sent: &mut Sent, sink: &mut Sink) -> Result<bool, End> {
        let position = published.position();
        // Another history, whichever of them has the higher number.
        if position.epoch != sent.position.epoch {
            return Err(End::Restart);
        }
        // The first state was the newest, which a beat may be behind.
        if position <= sent.position {
            return Ok(false);
        }
        if !exists(published, &self.node) {
            return Err(End::Restart);
        }
        let revision = sent.position.revision;
        let batch = self.feeding.batches.since(revision, published).ok_or(End::Restart)?;
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
