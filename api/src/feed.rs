//! The feed to one agent: the complete state once, or what it lacks, then changes as they are published.
//!
//! The task holds a position and nothing else. Each turn sends what lies between it and the newest state, so a slow
//! reader skips over what was changed twice, and what is queued for it never grows.

use std::{io::Write, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use model::{
    feed::{Frame, NetworkState, NodeState, StartMode},
    name::Name,
    quantity::{Position, Revision},
    resource::{Kind, ObjectKey},
};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{
    compiled_set::{Delta, line},
    hub::{Hub, Published},
    metrics::Metrics,
    stream::{Gone, HEARTBEAT, PIECE_BYTES, Pieces},
};

mod questions;

pub(crate) use questions::Questions;

/// What a feed works with.
pub(crate) struct Feed {
    /// The node.
    pub(crate) node: Name,
    /// Where the agent is, if it says so.
    pub(crate) resume: Option<Position>,
    /// Where the state comes from.
    pub(crate) hub: Arc<Hub>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Ends the feed.
    pub(crate) stop: CancellationToken,
}

/// What the agent has been sent.
struct Sent {
    revision: Revision,
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
        let mut bell = self.hub.subscribe();
        let published = self.hub.load();
        let epoch = published.epoch;
        let mut sent = self.start(&published, sink).await?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.pieces.closed() => return Err(End::Gone),
                changed = bell.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let published = self.hub.load();
                    if published.epoch != epoch || !exists(&published, &self.node) {
                        return Err(End::Restart);
                    }
                    if self.follow(&published, &mut sent, sink).await? {
                        heartbeat.reset();
                    }
                }
                Some(ask) = asks.recv() => {
                    sink.line(&ask).await?;
                    sink.flush().await?;
                }
                _ = heartbeat.tick() => {
                    let position = Position { epoch, revision: sent.revision };
                    sink.line(&line(&Frame::Heartbeat { position })).await?;
                    sink.flush().await?;
                }
            }
        }
    }

    /// Sends the first batch.
    async fn start(&self, published: &Published, sink: &mut Sink) -> Result<Sent, End> {
        let position = published.position();
        let known = self.resume.filter(|at| at.epoch == position.epoch && at.revision <= position.revision);
        let deltas = known.and_then(|at| deltas(published, at.revision));
        let mode = if deltas.is_some() { StartMode::Delta } else { StartMode::Full };
        let sent = Sent {
            revision: position.revision,
            network: Arc::clone(&published.network),
            node: published.node_state(&self.node),
        };
        sink.line(&line(&Frame::Start { mode, position })).await?;
        sink.line(&line(&Frame::Network((*sent.network).clone()))).await?;
        sink.line(&line(&Frame::Node(sent.node.clone()))).await?;
        if let Some(deltas) = deltas {
            sink.objects(deltas).await?;
        } else {
            self.metrics.feed_full_starts.inc();
            sink.objects(everything(published)).await?;
        }
        sink.synced(position).await?;
        Ok(sent)
    }

    /// Sends what changed since the last batch; says whether there was anything.
    async fn follow(&self, published: &Published, sent: &mut Sent, sink: &mut Sink) -> Result<bool, End> {
        let deltas = deltas(published, sent.revision).ok_or(End::Restart)?;
        let node = published.node_state_after(&self.node, sent.revision).filter(|node| *node != sent.node);
        let network_changed = sent.network != published.network;
        let anything = network_changed || node.is_some() || !deltas.is_empty();
        sent.revision = published.snapshot.revision();
        if !anything {
            return Ok(false);
        }
        if network_changed {
            sent.network = Arc::clone(&published.network);
            sink.line(&line(&Frame::Network((*sent.network).clone()))).await?;
        }
        if let Some(node) = node {
            sent.node = node;
            sink.line(&line(&Frame::Node(sent.node.clone()))).await?;
        }
        sink.objects(deltas).await?;
        sink.synced(published.position()).await?;
        Ok(true)
    }
}

fn exists(published: &Published, node: &Name) -> bool {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    published.snapshot.get(&key).is_some()
}

/// The lines of what a position lacks; `None` when that is no longer known.
fn deltas(published: &Published, position: Revision) -> Option<Vec<Bytes>> {
    let services = published.compiled.since(position)?.map(Delta::line);
    let addresses = published.addresses.since(position)?.map(Delta::line);
    Some(services.chain(addresses).collect())
}

/// The lines of everything.
fn everything(published: &Published) -> Vec<Bytes> {
    let services = published.compiled.after(None).map(|(_, entry)| entry.line());
    let addresses = published.addresses.after(None).map(|(_, entry)| entry.line());
    services.chain(addresses).collect()
}

/// Gathers lines into pieces, compressed if the agent takes it.
struct Sink {
    pieces: Pieces,
    buffer: Buffer,
    metrics: Arc<Metrics>,
}

enum Buffer {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Sink {
    fn new(pieces: Pieces, gzip: bool, metrics: Arc<Metrics>) -> Self {
        let buffer = if gzip {
            // Level 1: the feed is repetitive text, and the writer serves many agents.
            Buffer::Gzip(GzEncoder::new(Vec::new(), Compression::fast()))
        } else {
            Buffer::Plain(Vec::new())
        };
        Self { pieces, buffer, metrics }
    }

    async fn line(&mut self, line: &Bytes) -> Result<(), Gone> {
        self.metrics.feed_bytes.inc_by(line.len() as u64);
        let gathered = match &mut self.buffer {
            Buffer::Plain(buffer) => {
                buffer.extend_from_slice(line);
                buffer.len()
            }
            Buffer::Gzip(encoder) => {
                encoder.write_all(line).map_err(|_| Gone)?;
                encoder.get_ref().len()
            }
        };
        if gathered >= PIECE_BYTES { self.send().await } else { Ok(()) }
    }

    async fn objects(&mut self, lines: Vec<Bytes>) -> Result<(), Gone> {
        for line in lines {
            self.metrics.feed_objects.inc();
            self.line(&line).await?;
        }
        Ok(())
    }

    /// Ends a batch: everything before this line is on its way to the agent.
    async fn synced(&mut self, position: Position) -> Result<(), Gone> {
        self.line(&line(&Frame::Synced { position })).await?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        if let Buffer::Gzip(encoder) = &mut self.buffer {
            encoder.flush().map_err(|_| Gone)?;
        }
        self.send().await
    }

    async fn send(&mut self) -> Result<(), Gone> {
        let buffer = match &mut self.buffer {
            Buffer::Plain(buffer) => buffer,
            Buffer::Gzip(encoder) => encoder.get_mut(),
        };
        if buffer.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(buffer));
        self.metrics.feed_wire_bytes.inc_by(piece.len() as u64);
        self.pieces.send(piece).await
    }

    /// Closes the compressed stream properly, if the agent still listens.
    async fn finish(self) {
        if let Buffer::Gzip(encoder) = self.buffer
            && let Ok(rest) = encoder.finish()
        {
            let _ = self.pieces.send(Bytes::from(rest)).await;
        }
    }
}
