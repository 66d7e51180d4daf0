//! Settings for announcing addresses, validated by the caller.

use std::{num::NonZeroU8, time::Duration};

use crate::ownership::io_traits::OnExit;

/// Validated settings for the monitoring of other nodes by BFD, and for announced addresses when the agent
/// stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnounceConfig {
    /// Interval between BFD packets to each other node.
    pub peer_interval: Duration,
    /// Number of consecutive missing BFD packets after which a node counts as down (Detect Mult of RFC 5880).
    pub peer_multiplier: NonZeroU8,
    /// Handling of announced addresses when the agent stops: handed over to other nodes, or kept for a
    /// restart of this agent.
    pub on_exit: OnExit,
}

impl AnnounceConfig {
    /// Returns the detection time: interval times multiplier. A node from which no packet arrives for this
    /// time counts as down.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.peer_interval * u32::from(self.peer_multiplier.get())
    }
}
