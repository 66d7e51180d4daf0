//! Traits for the I/O of address ownership: announcing on the link and monitoring of other nodes. Tests
//! implement them in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use model::{kinds::advertisement::InterfaceName, primitives::secret::Secret};

use super::owners::{MonitoredPeer, Pair};

/// Desired presence of a load balancer address on some interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Names of the interfaces on which the address is announced, or watched for other announcers.
    pub interfaces: BTreeSet<InterfaceName>,
    /// True if this node announces the address and replies to ARP and NDP requests for it. Otherwise, other
    /// announcers of the address are only reported.
    pub is_announced: bool,
    /// True if the node replies to ICMP echo requests while it announces the address.
    pub answer_ping: bool,
}

/// Observation of the layer-2 announcer for one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireEvent {
    /// Another station announces the address.
    Conflict {
        /// Address that the other station announces.
        address: IpAddr,
        /// Station that announces the address.
        by: Station,
    },
    /// A probe started by [`Wire::probe`] has ended.
    Probed {
        /// Probed address.
        address: IpAddr,
        /// Station that replied to the probe, or `None` if no station did.
        by: Option<Station>,
    },
}

/// Station on a link, identified by its MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// MAC address as text, such as `02:00:00:00:00:01`.
    pub mac: String,
    /// Name of the interface on which the station was observed.
    pub interface: String,
}

/// Numbers of frames sent for one address since it was first set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentFrames {
    /// ARP replies and solicited Neighbor Advertisements sent.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited Neighbor Advertisements sent.
    pub gratuitous: u64,
    /// Time of the last gratuitous announcement.
    pub last_gratuitous: Option<Instant>,
}

/// Announcer for ARP, NDP and ping replies, as used by address ownership. Implemented by `L2` in `adapters`.
pub trait Wire: Send {
    /// Changes the presence of addresses; `None` removes an address. After the return, requests for withdrawn
    /// addresses are no longer answered.
    fn set(&mut self, changes: BTreeMap<IpAddr, Option<Presence>>);
    /// Announces an address again with a full burst of announcements, as a defense against another announcer
    /// or after the return of a candidate.
    fn announce_again(&mut self, address: IpAddr);
    /// Stops repeated announcements of an address until it is announced again. Requests are still answered.
    fn quiet(&mut self, address: IpAddr);
    /// Starts a probe that checks if another station uses the address. [`WireEvent::Probed`] follows within
    /// half a second.
    fn probe(&mut self, address: IpAddr, interfaces: &BTreeSet<InterfaceName>);
    /// Prepares the exit of the agent: with [`OnExit::Keep`], pings are answered while the agent restarts.
    /// Called before all addresses are withdrawn.
    fn leave(&mut self, _on_exit: OnExit) {}
    /// Returns the frame counters of every address.
    fn sent(&self) -> BTreeMap<IpAddr, SentFrames>;
}

/// State of the BFD session with another node, including the meaning of its AdminDown diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// The session is up.
    Up,
    /// The session is down.
    Down,
    /// The other node is in AdminDown with diagnostic 7: it has handed over its addresses.
    HandedOver,
    /// The other node is in AdminDown with diagnostic 0: it restarts and keeps its addresses.
    Restarting {
        /// Time at which AdminDown was received.
        since: Instant,
    },
}

/// Monitoring of other nodes, as used by address ownership. Implemented with BFD by `Peers` in `adapters`.
pub trait Watch: Send {
    /// Sets the nodes to monitor, and the key of all nodes, for nodes without a key of their own. Sessions with
    /// unchanged nodes continue.
    fn set_peers(&mut self, peers: &BTreeMap<Pair, MonitoredPeer>, shared_key: Option<&Secret>);
    /// Returns the session state of each monitored node, by the pair of addresses over which it is monitored.
    fn sessions(&self) -> BTreeMap<Pair, Session>;
    /// Sends AdminDown to the other nodes, with the diagnostic for a handover or for a restart.
    fn leave(&mut self, on_exit: OnExit);
}

/// Lookup of the MAC addresses of other nodes, by which an announcer of an address is identified.
pub trait Neighbours: Send {
    /// Returns the kernel's neighbor table: link-layer address by IP address.
    fn macs(&mut self) -> BTreeMap<IpAddr, String>;
}

/// Handling of addresses when the agent stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Hand the addresses over: reply to requests until other nodes have taken over, or for at most two
    /// seconds.
    #[default]
    Handover,
    /// Keep the addresses: the other nodes wait ten seconds for this node to return.
    Keep,
}
