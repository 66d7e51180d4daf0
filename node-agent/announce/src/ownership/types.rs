//! Events, actions and states of the ownership state machine. Does no I/O.

use std::time::Instant;

use base::Gate;
use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

/// Liveness of another candidate node, as derived from BFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// No packet has been received from the node yet; it counts as alive until `until`.
    Unknown {
        /// Time after which the node counts as down.
        until: Instant,
    },
    /// The BFD session is up.
    Up,
    /// The BFD session was up and has gone down.
    Down,
    /// The node has handed over its addresses and counts as down.
    HandedOver,
    /// The node has announced its restart and counts as alive until `until`.
    Restarting {
        /// Time after which the node counts as down.
        until: Instant,
    },
}

/// Ranked candidates for an address, as ordered by the control server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CandidateOrder {
    /// Number of the candidate order; the control server increases it with every change of the order.
    pub epoch: u64,
    /// Names of the candidate nodes; the first has the highest rank.
    pub candidates: Vec<Name>,
    /// Behavior of an owner that can reach neither the control server nor another candidate: keep announcing,
    /// or stop.
    pub when_isolated: WhenIsolated,
    /// True if the order comes from the agent's journal on disk (stored before its restart), so that another
    /// node may have taken the address since it was written.
    pub is_old: bool,
    /// True if no node has announced the address yet, so that the first candidate probes before it announces
    /// the address.
    pub probe_first: bool,
}

/// Kind of station that announced the address or replied to a probe for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// Another candidate node, by name.
    Candidate(Name),
    /// Unknown station that is not a candidate.
    Stranger,
}

/// Station that was observed to announce the address or to reply to a probe for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedStation {
    /// Candidate with the station's MAC address, or a stranger.
    pub party: Party,
    /// MAC address as text, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// Name of the interface on which the station was observed.
    pub interface: String,
}

/// Event for the ownership state machine of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A new candidate order was received from the control server, or read from the agent's journal on disk
    /// after a restart.
    Ordered(CandidateOrder),
    /// The liveness of a candidate has changed.
    Peer(Name, Liveness),
    /// The ability of this node to serve the address has changed; a closed [`Gate`] contains the reason.
    Gate(Gate),
    /// The reachability of the control server has changed; true if reachable.
    Control(bool),
    /// Another station was observed to announce the address.
    Heard(ObservedStation),
    /// The probe requested by [`Output::Probe`] has ended, with the station that replied, or `None`.
    Probed(Option<ObservedStation>),
    /// The process was paused for longer than the detection time of the other nodes, which may have taken over.
    Resumed,
    /// The time returned by [`Ownership::poll_timeout`] has been reached.
    Timeout,
}

/// Action requested by the ownership state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Announce the address with a burst of frames, and reply to requests from now on.
    Announce,
    /// Repeat the burst of announcements, as a defense against another announcer or as a reminder.
    Reannounce,
    /// Stop replying to requests for the address.
    Withdraw,
    /// Stop repeating the announcement until the next [`Self::Announce`] or [`Self::Reannounce`]. Requests are
    /// still answered.
    Quiet,
    /// Send a probe to find out if another station uses the address.
    Probe,
}

/// Reason why this node does not own (announce) the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The candidate order assigns the address to another node.
    Unordered,
    /// This node cannot serve the address, for this reason, such as a Service that is not programmed.
    Closed(String),
    /// The node can reach neither the control server nor another candidate, and `when_isolated` of the
    /// candidate order requires it to stop announcing in that case.
    Isolated,
    /// This candidate of higher rank is alive.
    Before(Name),
    /// This candidate of higher rank has sent no packet yet, but still counts as alive.
    Unheard(Name),
    /// This candidate of higher rank is restarting and still counts as alive.
    Restarting(Name),
    /// The session with this candidate of higher rank is down, but fails repeatedly, so that the candidate
    /// still counts as alive.
    Unsteady(Name),
    /// This station announces the address, or has replied to a probe.
    Answered(ObservedStation),
}

/// Event by which this node became owner of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// This node is first in the candidate order.
    First,
    /// The BFD session with the previous owner went down.
    Silent(Name),
    /// The previous owner handed over its addresses.
    HandedOver(Name),
    /// No station replied to this node's probe for other users of the address.
    NobodyAnswered,
}

/// Phase of the ownership state machine; see the diagram in [`super::machine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// This node is not a candidate for the address.
    Away,
    /// This node is a candidate but does not announce, for this reason.
    Standby(Why),
    /// A probe for other users of the address is running; it ends at this time at the latest.
    Probing(Instant),
    /// This node announces the address; the cause is the event by which it became owner.
    Owner(Cause),
}

/// Conflict with a stranger that announces the address, or with another candidate that continues to announce it
/// after a defense. Shown in the status for one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipConflict {
    /// Station that announced the address.
    pub heard: ObservedStation,
    /// Time at which the conflict was last observed.
    pub at: Instant,
}
