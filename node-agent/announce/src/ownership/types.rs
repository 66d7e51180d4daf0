//! Input, output and status types of the ownership state machine. Pure.

use std::time::Instant;

use base::Gate;
use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

/// Liveness of another candidate node, as derived from BFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No packet was received yet; counts as alive until `until`.
    Unknown {
        /// Time after which the node counts as down.
        until: Instant,
    },
    /// The BFD session is up.
    Up,
    /// The BFD session was up and is down.
    Down,
    /// The node has handed over its addresses and counts as down.
    HandedOver,
    /// Has announced its restart; counts as alive until `until`.
    Restarting {
        /// Time after which the node counts as down.
        until: Instant,
    },
}

/// Ranked candidates for an address, as ordered by control.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CandidateOrder {
    /// Epoch of the order; control increases it with every change.
    pub epoch: u64,
    /// Names of the candidate nodes; the first has the highest rank.
    pub candidates: Vec<Name>,
    /// Behavior of an owner that reaches neither control nor another candidate: keep announcing, or stop.
    pub when_isolated: WhenIsolated,
    /// True if the order comes from the journal, so another node may have taken the address since it was
    /// written.
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

/// Station that was observed to announce or answer for the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedStation {
    /// Candidate or stranger that the MAC address belongs to.
    pub party: Party,
    /// MAC address as text, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// Name of the interface on which the station was observed.
    pub interface: String,
}

/// Event for the ownership state machine of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// New candidate order from control or from the journal.
    Ordered(CandidateOrder),
    /// Changed liveness of a candidate.
    Peer(Name, Liveness),
    /// Changed gate: open if this node can serve the address, otherwise closed with a reason.
    Gate(Gate),
    /// Changed reachability of control: true if reachable.
    Control(bool),
    /// Observation of another station that announces the address.
    Heard(ObservedStation),
    /// Result of [`Output::Probe`]: the station that replied, or `None`.
    Probed(Option<ObservedStation>),
    /// Expiry of a timer at the time returned by [`Ownership::poll_timeout`].
    Timeout,
}

/// Action requested by the ownership state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Announce the address with a burst and answer for it from now on.
    Announce,
    /// Repeat the burst of announcements, as a defense or a reminder.
    Reannounce,
    /// Stop answering for the address.
    Withdraw,
    /// Probe for another owner of the address.
    Probe,
}

/// Reason for which this node does not own the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Another node is to announce the address, according to the candidate order.
    Unordered,
    /// The gate is closed for this reason, such as a Service that is not programmed.
    Closed(String),
    /// The node is isolated, and the order demands silence in that case.
    Isolated,
    /// This candidate of higher rank is alive.
    Before(Name),
    /// This candidate of higher rank has sent no packet yet and still counts as alive.
    Unheard(Name),
    /// This candidate of higher rank restarts and still counts as alive.
    Restarting(Name),
    /// This station announces the address or replied to a probe.
    Answered(ObservedStation),
}

/// Event by which this node became owner of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// This node is first in the candidate order.
    First,
    /// The BFD session with the previous owner went down.
    Silent(Name),
    /// The previous owner handed its addresses over.
    HandedOver(Name),
    /// No station replied to this node's probe.
    NobodyAnswered,
}

/// Phase of the ownership state machine; see the diagram in [`super::machine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// This node is not a candidate.
    Away,
    /// This node is a candidate but does not announce, for this reason.
    Standby(Why),
    /// A probe for another owner is running; it ends at this time at the latest.
    Probing(Instant),
    /// This node announces the address, and became owner for this cause.
    Owner(Cause),
}

/// Conflict with another announcer, shown in the status for one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipConflict {
    /// Station that announced the address.
    pub heard: ObservedStation,
    /// Time at which the conflict was last observed.
    pub at: Instant,
}
