//! Connection tracking after a change: flows that would stay on a target that is gone, whichever backend programmed it.
//!
//! ```text
//! pass ─▶ follow: which frontends lost what ─▶ dues ─▶ one dump ─▶ judge each flow ─▶ delete
//!                             └─ drain ─▶ deadlines ────────┘
//! ```
//! The target of a flow is chosen at its first packet and kept while the flow lives. A UDP client that goes on sending
//! from one port would talk to a removed endpoint for ever, or to nobody if the Service came after its first packet. So
//! flows of UDP and SCTP whose target is none of the current ones are deleted; the next packet is a new flow.
//!
//! A TCP connection may be finishing its work on a target that goes: what happens is the Service's removal policy. *Keep*
//! does nothing. *Reset* deletes the entry at once, *drain* after its time. The client's next packet then belongs to no
//! known connection and is placed anew: whoever gets it, a target or the rule that refuses, answers with a reset. So that
//! clients that only listen are told as well, each is made to send a packet (`nudge`). This takes `nf_conntrack_tcp_loose`, which
//! Linux sets by default. Where nothing answers any more (the Service and its address are gone, or the verdict for this
//! client is to drop) no reset can come, and the client's own timeout ends it. A backend whose kernel part deletes entries itself
//! says which clients these were (`Dataplane::take_cut`).
//!
//! A target that drains (`Route::leaving`) keeps its connections whatever the policy says, until its deadline by the
//! clock of the node; then they are deleted like those of *drain*. That is state, not an event: an agent that starts
//! in the middle goes on with it.
//!
//! The table also says what flows carry and how many are open (`account`), for modes whose rules cannot. For that the
//! agent sets `net.netfilter.nf_conntrack_acct` when it first looks, and leaves it set when it ends: others may have come to
//! rely on it, and it costs two additions a packet.
//!
//! What must not happen here: a walk of the kernel's table for a change that concerns no such flow, and the deletion of a
//! flow to somebody else's address. A failure leaves the dues for the next attempt; the programmed state is right
//! without it.

pub mod account;
mod cleaner;
mod kernel;
pub mod memory;
pub mod nudge;
pub mod plan;
pub mod risk;
pub mod wire;

use std::{collections::BTreeSet, io, net::IpAddr, time::Instant};

use model::{
    kinds::service::Protocol,
    primitives::{net::IpFamily, quantity::Port},
};

use self::{account::Sighting, nudge::wire::Nudge};
pub use self::{
    cleaner::Cleaner,
    kernel::{KernelFlows, clients},
};

/// A tracked flow, as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Where the client sent to.
    pub destination: IpAddr,
    /// The port that it sent to.
    pub port: Port,
    /// Who answers.
    pub target: IpAddr,
    /// From which port.
    pub target_port: Port,
}

/// What all flows of interest have in common, so that the kernel can leave the others out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// The family.
    pub family: Option<IpFamily>,
    /// The transport protocol.
    pub protocol: Option<Protocol>,
    /// Where the client sent to.
    pub destination: Option<IpAddr>,
    /// The port that it sent to.
    pub port: Option<Port>,
}

/// The flows that a kernel tracks.
pub trait FlowTable: Send {
    /// Looks at every flow that the filter lets through (and perhaps at others, and perhaps twice) and removes those that
    /// are condemned; answers how many.
    ///
    /// # Errors
    /// When the kernel does not show its table, or takes no request.
    fn remove(&mut self, filter: &Filter, condemned: &mut dyn FnMut(&Flow) -> bool) -> io::Result<u64>;

    /// Tells clients that their flows are gone, whoever removed them.
    fn tell(&mut self, _clients: Vec<Nudge>, _now: Instant) {}

    /// Tells clients whose flows were removed once more, about once a second; the first time may not have reached them.
    fn tell_again(&mut self, _now: Instant) {}

    /// Shows every flow whose destination was translated, perhaps some of them twice.
    ///
    /// # Errors
    /// When the kernel does not show its table.
    fn show(&mut self, each: &mut dyn FnMut(&Sighting)) -> io::Result<()>;

    /// Has packets and bytes of flows counted that begin from here on; answers whether they are.
    fn count(&mut self) -> bool;

    /// The node's own addresses, without loopback ones.
    ///
    /// # Errors
    /// When they cannot be read.
    fn local_addresses(&mut self) -> io::Result<BTreeSet<IpAddr>>;
}
