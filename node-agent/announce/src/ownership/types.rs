//! Input, output and status types of the ownership state machine. Pure.

use std::time::Instant;

use base::Gate;
use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

/// Liveness of another candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No packet was received yet; counts as alive until `until`.
    Unknown {
        /// End of that period.
        until: Instant,
    },
    /// Alive.
    Up,
    /// Was alive and is down.
    Down,
    /// Has handed over its addresses.
    HandedOver,
    /// Has announced its restart; counts as alive until `until`.
    Restarting {
        /// End of that period.
        until: Instant,
    },
}

/// Assignment of the address to ranked candidates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CandidateOrder {
    /// Increases with every change.
    pub epoch: u64,
    /// Candidates in order of rank.
    pub candidates: Vec<Name>,
    /// Behavior of an isolated owner.
    pub when_isolated: WhenIsolated,
    /// True if it was read from disk, so another node may have taken the address since.
    pub is_old: bool,
}

/// Station that announced or answered for the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// Another candidate.
    Candidate(Name),
    /// An unknown station.
    Stranger,
}

/// An observed station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedStation {
    /// Identity of the station.
    pub party: Party,
    /// Link-layer address as text.
    pub mac: String,
    /// Interface.
    pub interface: String,
}

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A new order.
    Ordered(CandidateOrder),
    /// Changed liveness of a candidate.
    Peer(Name, Liveness),
    /// The gate has opened or closed.
    Gate(Gate),
    /// Changed reachability of control: true if reachable.
    Control(bool),
    /// Another station announced the address.
    Heard(ObservedStation),
    /// Result of [`Output::Probe`].
    Probed(Option<ObservedStation>),
    /// The time returned by [`Ownership::poll_timeout`] has come.
    Timeout,
}

/// Action to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Announce the address and answer for it.
    Announce,
    /// Announce the address again.
    Reannounce,
    /// Stop answering for the address.
    Withdraw,
    /// Probe for another owner of the address.
    Probe,
}

/// Reason for which this node does not own the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No order was received.
    Unordered,
    /// The gate is closed.
    Closed(String),
    /// The node is isolated, and the order demands silence in that case.
    Isolated,
    /// A candidate of higher rank is alive.
    Before(Name),
    /// A candidate of higher rank has not been heard yet.
    Unheard(Name),
    /// A candidate of higher rank restarts.
    Restarting(Name),
    /// Another station answers for the address.
    Answered(ObservedStation),
}

/// Reason for which this node owns the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// First in the order.
    First,
    /// The previous owner went down.
    Silent(Name),
    /// The previous owner handed over.
    HandedOver(Name),
    /// A probe was not answered.
    NobodyAnswered,
}

/// Phase of this node for the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Not a candidate.
    Away,
    /// Waiting, for this reason.
    Standby(Why),
    /// Probing, until this time at most.
    Probing(Instant),
    /// Announcing, for this reason.
    Owner(Cause),
}

/// An observed conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipConflict {
    /// The other station.
    pub heard: ObservedStation,
    /// Time of the last observation.
    pub at: Instant,
}
