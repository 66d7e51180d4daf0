//! The feed to an agent that takes its state from another control server: questions and heartbeats, and no state.
//!
//! With several control servers each agent follows one of them. Through this stream the others can ask it too.

use std::sync::Arc;

use bytes::Bytes;
use model::{primitives::name::Name, wire::feed::Frame};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{Gone, exists, sink::Sink};
use crate::{
    base::body_stream::{HEARTBEAT, Pieces},
    state::{compiled_set::line, published::Hub},
    telemetry::metrics::Metrics,
};

/// What such a feed works with.
pub(crate) struct Questions {
    /// The node.
    pub(crate) node: Name,
    /// Where the position of heartbeats comes from.
    pub(crate) hub: Arc<Hub>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Ends the feed.
    pub(crate) stop: CancellationToken,
}

impl Questions {
    /// Serves the agent until it goes away, or its Node does. `asks` are lines of questions.
    pub(crate) async fn run(self, pieces: Pieces, gzip: bool, mut asks: mpsc::Receiver<Bytes>) {
        let mut sink = Sink::new(pieces, gzip, Arc::clone(&self.metrics));
        // The agent went away: there is nobody to tell.
        let _ = self.serve(&mut sink, &mut asks).await;
        sink.finish().await;
    }

    async fn serve(&self, sink: &mut Sink, asks: &mut mpsc::Receiver<Bytes>) -> Result<(), Gone> {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.closed() => return Err(Gone),
                // The first tick is at once: the stream begins with a heartbeat.
                _ = heartbeat.tick() => {
                    let published = self.hub.load();
                    if !exists(&published, &self.node) {
                        return Ok(());
                    }
                    sink.line(&line(&Frame::Heartbeat { position: published.position() })).await?;
                    sink.flush().await?;
                }
                ask = asks.recv() => {
                    // Without a post nobody can ask by this stream: another one of the node has begun.
                    let Some(ask) = ask else { return Ok(()) };
                    sink.line(&ask).await?;
                    sink.flush().await?;
                }
            }
        }
    }
}
