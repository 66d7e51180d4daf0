//! Traits for the dependencies of announcing: the wire and peer monitoring. Tests replace them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use model::{kinds::advertisement::InterfaceName, primitives::secret::Secret};

use super::owners::Pair;

/// Desired presence of an address on some interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Interfaces.
    pub interfaces: BTreeSet<InterfaceName>,
    /// True if the address is announced and answered for; otherwise only other announcers are reported.
    pub is_announced: bool,
    /// True if the node replies to ICMP echo requests while it announces the address.
    pub answer_ping: bool,
}

/// An event on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireEvent {
    /// Another station announces an address.
    Conflict {
        /// Address in conflict.
        address: IpAddr,
        /// The other station.
        by: Station,
    },
    /// A probe has finished.
    Probed {
        /// Address in conflict.
        address: IpAddr,
        /// Station that replied, if any.
        by: Option<Station>,
    },
}

/// A station on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// Link-layer address, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// Interface on which it was observed.
    pub interface: String,
}

/// Frames sent for one address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentFrames {
    /// Replies sent.
    pub replies: u64,
    /// Gratuitous announcements sent.
    pub gratuitous: u64,
    /// Time of the last gratuitous announcement.
    pub last_gratuitous: Option<Instant>,
}

/// Announces and answers for addresses.
pub trait Wire: Send {
    /// Changes the presence of addresses; `None` removes an address. On return, withdrawn addresses are no
    /// longer answered for.
    fn set(&mut self, changes: BTreeMap<IpAddr, Option<Presence>>);
    /// Announces an address again.
    fn announce_again(&mut self, address: IpAddr);
    /// Probes for the owner of an address; [`WireEvent::Probed`] follows within half a second.
    fn probe(&mut self, address: IpAddr, interfaces: &BTreeSet<InterfaceName>);
    /// Sets the state to leave behind if the agent will restart; called before all addresses are withdrawn.
    fn leave(&mut self, _on_exit: OnExit) {}
    /// Returns the counters of every address.
    fn sent(&self) -> BTreeMap<IpAddr, SentFrames>;
}

/// State of a session with another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// The session is up.
    Up,
    /// The session is down.
    Down,
    /// The other node has handed over its addresses.
    HandedOver,
    /// The other node has announced its restart.
    Restarting {
        /// Time of that announcement.
        since: Instant,
    },
}

/// Monitors other nodes.
pub trait Watch: Send {
    /// Sets the nodes to monitor; unchanged sessions are not affected.
    fn set_peers(&mut self, pairs: &BTreeSet<Pair>, key: Option<&Secret>);
    /// Returns the state of every session.
    fn sessions(&self) -> BTreeMap<Pair, Session>;
    /// Announces to the other nodes that this node stops, with a handover or a restart.
    fn leave(&mut self, on_exit: OnExit);
}

/// Identifies stations on the links.
pub trait Neighbours: Send {
    /// Returns the link-layer addresses of the kernel's neighbor table.
    fn macs(&mut self) -> BTreeMap<IpAddr, String>;
}

/// Handling of addresses when the agent stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Hand them over, and answer until other nodes have taken over.
    #[default]
    Handover,
    /// Keep them: other nodes wait for this node to return.
    Keep,
}
