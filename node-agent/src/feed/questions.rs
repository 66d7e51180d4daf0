//! Query streams from the control servers that are not the source of the state (`?asks=only`).
//!
//! ```text
//! the state comes from this server, or from none ◀───────┐
//!        │ it comes from another server                  │ it comes from this server
//!        ▼                                               │
//!     opening a stream ───heartbeat──▶ listening ────────┤
//!        ▲         │ cut, silent, rejected     │         │
//!        └ backoff◀┴───────────────────────────┘─────────┘
//! ```
//! Invariant: no state is accepted from these streams.

use std::{sync::Arc, time::Duration};

use base::{backoff::Backoff, chain, entropy};
use client::Lines;
use model::{primitives::name::Name, wire::feed::Frame};
use reqwest::StatusCode;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tracing::debug;

use super::{HEARTBEATS_MISSED_MAX, LINE_BYTES_MAX, StreamEnd, accepted};
use crate::{
    control::{Control, ServerId, board::StreamUse},
    feed::ReceivedQuery,
};

/// Delay before a server that does not support query streams is tried again. Such a server must first be
/// upgraded.
const UNHEARD_WAIT: Duration = Duration::from_secs(60);

/// Task that receives queries from one control server.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Connections to the control servers.
    pub control: Arc<Control>,
    /// Server from which queries are received.
    pub server: ServerId,
    /// Name of this node; the queries concern this node.
    pub node: Name,
    /// Maximum interval between heartbeats, which the agent requests from the server.
    pub heartbeat_interval: Duration,
    /// Minimum delay before a reconnect, at the start of the backoff.
    pub reconnect_floor: Duration,
    /// Maximum delay before a reconnect.
    pub reconnect_cap: Duration,
    /// Queue for received queries, which are dropped if it is full.
    pub questions: mpsc::Sender<ReceivedQuery>,
}

impl Listener {
    /// Receives queries until the future is dropped.
    pub async fn listen(self) {
        let mut backoff = Backoff::new(self.reconnect_floor, self.reconnect_cap);
        loop {
            self.until_state_comes(|from| from.is_some_and(|from| from != self.server)).await;
            let begun = Instant::now();
            let end = tokio::select! {
                end = self.stay() => end,
                () = self.until_state_comes(|from| from == Some(self.server)) => {
                    self.control.board.ended(self.server, StreamUse::Questions, None);
                    continue;
                }
            };
            if begun.elapsed() >= self.heartbeat_interval {
                backoff.reset();
            }
            let pause = if is_unheard(&end) { UNHEARD_WAIT } else { backoff.next_delay(entropy()) };
            let text = chain(&end);
            debug!(server = %self.control.base(self.server), error = text, "the query stream was \
                                                                            disconnected");
            self.control.board.ended(self.server, StreamUse::Questions, Some(text));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.until_state_comes(|from| from == Some(self.server)) => {}
            }
        }
    }

    async fn until_state_comes(&self, is_so: impl Fn(Option<ServerId>) -> bool) {
        let mut serving = self.control.serving.subscribe();
        let _sender_lives = serving.wait_for(|from| is_so(*from)).await.is_ok();
    }

    async fn stay(&self) -> StreamEnd {
        let patience = self.heartbeat_interval * HEARTBEATS_MISSED_MAX;
        let response = match self.open(patience).await {
            Ok(response) => response,
            Err(end) => return end,
        };
        let mut lines = Lines::new(response, LINE_BYTES_MAX, patience);
        let mut is_open = false;
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return StreamEnd::Closed,
                Err(error) => return error.into(),
            };
            if let Err(end) = self.take(&line) {
                return end;
            }
            if !std::mem::replace(&mut is_open, true) {
                self.control.board.opened(self.server, StreamUse::Questions);
            }
        }
    }

    fn take(&self, line: &[u8]) -> Result<(), StreamEnd> {
        match serde_json::from_slice(line)? {
            Frame::Heartbeat { .. } => Ok(()),
            Frame::Ask { id, question } => {
                if self.questions.try_send(ReceivedQuery { by: self.server, id, question }).is_err() {
                    debug!(id = id.0, "a query was dropped because the queue is full");
                }
                Ok(())
            }
            Frame::Start { .. }
            | Frame::Network(_)
            | Frame::Node(_)
            | Frame::Service { .. }
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
            | Frame::PolicyWorkloadRemoved { .. }
            | Frame::Synced { .. } => Err(StreamEnd::NotOnlyQuestions),
        }
    }

    async fn open(&self, patience: Duration) -> Result<reqwest::Response, StreamEnd> {
        let url = self.control.url(self.server, &format!("/v1/nodes/{}/state", self.node));
        let request = self.control.client().get(url).query(&[("asks", "only")]);
        let response =
            timeout(patience, request.send()).await.map_err(|_elapsed| StreamEnd::Silent(patience))?;
        accepted(response.map_err(StreamEnd::Unreachable)?).await
    }
}

/// Returns true if the stream ended because the control server does not support query streams.
fn is_unheard(end: &StreamEnd) -> bool {
    match end {
        StreamEnd::NotOnlyQuestions => true,
        StreamEnd::Refused { status, body: _ } => *status == StatusCode::BAD_REQUEST,
        StreamEnd::Unreachable(_)
        | StreamEnd::Unregistered(_)
        | StreamEnd::Silent(_)
        | StreamEnd::Broken(_)
        | StreamEnd::TooLong(_)
        | StreamEnd::Closed
        | StreamEnd::NotAFrame(_)
        | StreamEnd::Fault(_)
        | StreamEnd::LoopGone => false,
    }
}
