//! What announcing needs from outside: the wire, and who lives. Said in our words, so that tests can stand in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use model::{kinds::advertisement::InterfaceName, primitives::secret::Secret};

use super::owners::Pair;

/// What is done about an address on some interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The interfaces.
    pub interfaces: BTreeSet<InterfaceName>,
    /// Whether it is announced and answered for; otherwise others who announce it are told of, and nothing else.
    pub is_announced: bool,
    /// Whether it answers to ICMP echo requests while it is announced.
    pub answer_ping: bool,
}

/// Something heard on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireEvent {
    /// Somebody else announces an address.
    Conflict {
        /// The address.
        address: IpAddr,
        /// Who.
        by: Station,
    },
    /// A question is answered, or nobody answers it.
    Probed {
        /// The address.
        address: IpAddr,
        /// Who answers.
        by: Option<Station>,
    },
}

/// Somebody on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// The link-layer address, as `02:00:00:00:00:01`.
    pub mac: String,
    /// Where it was heard.
    pub interface: String,
}

/// What was sent for one address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Questions answered.
    pub replies: u64,
    /// Announcements that nobody asked for.
    pub gratuitous: u64,
    /// When the last of these was sent.
    pub last_gratuitous: Option<Instant>,
}

/// Answers for addresses.
pub trait Wire: Send {
    /// Changes what is done about addresses; `None`: nothing any longer. When it returns, nothing that was withdrawn is
    /// answered for.
    fn set(&mut self, changes: BTreeMap<IpAddr, Option<Presence>>);
    /// Announces an address once more.
    fn announce_again(&mut self, address: IpAddr);
    /// Asks who answers for an address; [`WireEvent::Probed`] follows within half a second.
    fn probe(&mut self, address: IpAddr, interfaces: &BTreeSet<InterfaceName>);
    /// What is left behind when the agent ends and comes back; called before everything is withdrawn.
    fn leave(&mut self, _on_exit: OnExit) {}
    /// What was sent for every address.
    fn sent(&self) -> BTreeMap<IpAddr, Sent>;
}

/// How one session with another node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// It is up.
    Up,
    /// It is not.
    Down,
    /// The other node has said that its addresses are to be taken over.
    HandedOver,
    /// The other node has said that it restarts.
    Restarting {
        /// When it said so.
        since: Instant,
    },
}

/// Watches other nodes.
pub trait Watch: Send {
    /// Says whom to watch; sessions that stay are not touched.
    fn set_peers(&mut self, pairs: &BTreeSet<Pair>, key: Option<&Secret>);
    /// How every session stands.
    fn sessions(&self) -> BTreeMap<Pair, Session>;
    /// Tells the others that this node stops: to take over what it had, or to wait for it.
    fn leave(&mut self, on_exit: OnExit);
}

/// Who is who on the links.
pub trait Neighbours: Send {
    /// The link-layer addresses of neighbours, as the kernel knows them.
    fn macs(&mut self) -> BTreeMap<IpAddr, String>;
}

/// What an agent that ends does about its addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExit {
    /// It hands them over, and answers until the others have them.
    #[default]
    Handover,
    /// It asks the others to wait for its return.
    Keep,
}
