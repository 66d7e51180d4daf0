//! Settings of announcing, validated by the caller.

use std::{num::NonZeroU8, time::Duration};

use crate::ownership::io_traits::OnExit;

/// Settings for monitoring other nodes and for the shutdown behavior.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnounceConfig {
    /// Interval of packets to each other node.
    pub peer_interval: Duration,
    /// Number of missing packets after which a node is considered down.
    pub peer_multiplier: NonZeroU8,
    /// Handling of announced addresses when the agent stops.
    pub on_exit: OnExit,
}

impl AnnounceConfig {
    /// Returns the detection time: the time until a silent node is considered down.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.peer_interval * u32::from(self.peer_multiplier.get())
    }
}
