//! What the ownership of an address is told, what it answers, and what it says of itself. Pure.

use std::time::Instant;

use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

/// How another candidate is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing was heard of it yet; it counts as alive until then.
    Unknown {
        /// Until when.
        until: Instant,
    },
    /// It lives.
    Up,
    /// It lived and fell silent.
    Down,
    /// It said that its addresses are to be taken over.
    HandedOver,
    /// It said that it restarts; it counts as alive until then.
    Restarting {
        /// Until when.
        until: Instant,
    },
}

/// Who is to own the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Rises with every change.
    pub epoch: u64,
    /// Ranked.
    pub candidates: Vec<Name>,
    /// What an owner does that is cut off.
    pub when_isolated: WhenIsolated,
    /// Whether it was read from the disk, so that somebody may own the address since.
    pub is_old: bool,
}

/// Whether this node is able to serve the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// Everything that it leads to is programmed and read back.
    Open,
    /// It is not; why, in words.
    Closed(String),
}

/// Who was heard to announce the address or to answer for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// Another candidate.
    Candidate(Name),
    /// Nobody that is known here.
    Stranger,
}

/// Somebody who was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Who.
    pub party: Party,
    /// The link-layer address, in words.
    pub mac: String,
    /// Where.
    pub interface: String,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// An order has come.
    Ordered(Order),
    /// A candidate is seen otherwise.
    Peer(Name, Liveness),
    /// The gate has opened or closed.
    Gate(Gate),
    /// Whether control is reached.
    Control(bool),
    /// Somebody else announced the address.
    Heard(Heard),
    /// The answer to [`Output::Probe`].
    Probed(Option<Heard>),
    /// The time of [`Ownership::poll_timeout`] has come.
    Timeout,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Announce the address and answer for it.
    Announce,
    /// Announce it again.
    Reannounce,
    /// Stop answering for it.
    Withdraw,
    /// Ask who answers for it.
    Probe,
}

/// Why this node does not own the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No order was heard.
    Unordered,
    /// The gate is closed.
    Closed(String),
    /// It is cut off, and the order says to be silent then.
    Isolated,
    /// A candidate before it lives.
    Before(Name),
    /// A candidate before it has not been heard yet.
    Unheard(Name),
    /// A candidate before it restarts.
    Restarting(Name),
    /// Somebody answers for it.
    Answered(Heard),
}

/// Why this node owns the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The order says so.
    First,
    /// The owner fell silent.
    Silent(Name),
    /// The owner handed over.
    HandedOver(Name),
    /// Nobody answered for the address.
    NobodyAnswered,
}

/// What this node does about the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It has no part in it.
    Away,
    /// It waits.
    Standby(Why),
    /// It asks who answers, and waits until then at most.
    Probing(Instant),
    /// It announces.
    Owner(Cause),
}

/// A conflict that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who was heard.
    pub heard: Heard,
    /// When, last.
    pub at: Instant,
}
