//! Query-only feed for an agent that receives its state from another control server: queries and heartbeats,
//! no state.
//!
//! With several control servers, each agent receives its state from one of them. Through this stream the others
//! can query the agent, too.

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

/// Parameters of the query-only feed of one agent.
pub(crate) struct Questions {
    /// Node of the agent.
    pub(crate) node: Name,
    /// Holder of the published state, whose position the heartbeats contain.
    pub(crate) hub: Arc<Hub>,
    /// Metrics of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// Token that is cancelled to end the feed, for example at shutdown or after the agent reconnects.
    pub(crate) stop: CancellationToken,
}

impl Questions {
    /// Sends queries to the agent until it disconnects or its Node is deleted. `asks` receives the lines with
    /// queries. Returns true if the agent has disconnected.
    pub(crate) async fn run(self, pieces: Pieces, gzip: bool, mut asks: mpsc::Receiver<Bytes>) -> bool {
        let mut sink = Sink::new(pieces, gzip, Arc::clone(&self.metrics));
        let served = self.serve(&mut sink, &mut asks).await;
        sink.finish().await;
        served.is_err()
    }

    async fn serve(&self, sink: &mut Sink, asks: &mut mpsc::Receiver<Bytes>) -> Result<(), Gone> {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                () = sink.closed() => return Err(Gone),
                // The first tick is immediate: the stream begins with a heartbeat.
                _ = heartbeat.tick() => {
                    let published = self.hub.load();
                    if !exists(&published, &self.node) {
                        return Ok(());
                    }
                    sink.line(&line(&Frame::Heartbeat { position: published.position() })).await?;
                    sink.flush().await?;
                }
                ask = asks.recv() => {
                    // The channel closed because a newer feed of the node replaced this one.
                    let Some(ask) = ask else { return Ok(()) };
                    sink.line(&ask).await?;
                    sink.flush().await?;
                }
            }
        }
    }
}
