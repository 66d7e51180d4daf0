//! Removal of stale flows after a change, in any proxy mode: flows that would stay on a removed target.
//!
//! After a pass (update of the kernel), `follow` compares the old and new packet programs (frontends with
//! their targets). `dues` are the frontends whose flows must be checked; a single dump of the conntrack table
//! serves all of them. Flows to draining targets are deleted only at a deadline.
//! ```text
//! pass ─▶ follow: targets lost per frontend ─▶ dues ─▶ one dump ─▶ judge each flow ─▶ delete
//!                             └─ drain ─▶ deadlines ────────┘
//! ```
//!
//! The target of a flow is chosen at its first packet and kept for the lifetime of the flow. A UDP client
//! that keeps sending from one port would reach a removed endpoint forever, or no endpoint at all if the
//! Service was created after its first packet. Therefore UDP and SCTP flows to targets other than the current
//! ones are deleted; the next packet starts a new flow.
//!
//! A TCP connection that began before its Service existed is tracked without translation, and each retransmission
//! of the client would prolong that. If a frontend is added, such connections without an answer to it are deleted
//! in every mode, and the next SYN segment is translated.
//!
//! A TCP connection to a removed target may still be finishing its work. Therefore the Service's removal
//! policy applies. *Keep* does nothing. *Reset* deletes the entry at once, *drain* after a delay. The
//! client's next packet then belongs to no tracked connection and is load-balanced anew; the new target, or a
//! reject rule, responds with a reset. Clients that only receive are made to send a packet
//! (`kernel::conntrack::nudge`). This requires `nf_conntrack_tcp_loose`, which Linux enables by default. If
//! no machine responds any more (the Service and its address are gone, or the verdict for this client is to
//! drop), the client's own timeout ends the connection. A backend whose kernel part deletes entries itself
//! reports the affected clients (`Dataplane::take_cut`).
//!
//! A draining target (`Route::leaving`) keeps its connections under every policy until its wall-clock deadline;
//! then they are deleted as with *drain*. A drain is state, not an event: an agent that restarts during a drain
//! continues it.
//!
//! The table also provides traffic counters and the number of open flows (`account`) for modes whose rules do not.
//! For this the agent sets `net.netfilter.nf_conntrack_acct` at the first reading and leaves it set when it ends,
//! because other programs may rely on it by then. The cost is two additions per packet.
//!
//! Invariants: no walk of the kernel's table for a change without affected flows, and no deletion of a flow to a
//! foreign address. After a failure the pending work is kept for the next attempt; the programmed state does not
//! depend on it.

pub mod account;
mod cleaner;
mod kernel_flows;
pub mod memory;
pub mod plan;
pub mod risk;

use std::{collections::BTreeSet, io, net::IpAddr, time::Instant};

use kernel::conntrack::{Filter, Flow, Sighting, nudge::wire::Nudge};

pub use self::{cleaner::Cleaner, kernel_flows::KernelFlows};

/// Conntrack table of a network namespace, or a test fake.
pub trait FlowTable: Send {
    /// Visits every flow that passes the filter (and possibly others, and some twice) and deletes those for
    /// which `condemned` returns true. Returns the number of deleted flows.
    ///
    /// # Errors
    /// Returns an error if the kernel does not dump its table, or accepts no request.
    fn remove(&mut self, filter: &Filter, condemned: &mut dyn FnMut(&Flow) -> bool) -> io::Result<u64>;

    /// Sends a challenge (a TCP segment that provokes an ACK) to clients whose flows were deleted, by this
    /// table or by other means; the ACK is then answered by a reset.
    fn tell(&mut self, _clients: Vec<Nudge>, _now: Instant) {}

    /// Repeats the challenges sent by [`Self::tell`], because the first packet may have been lost. Called about
    /// once a second.
    fn tell_again(&mut self, _now: Instant) {}

    /// Calls `each` for every flow with destination NAT, possibly twice for some flows.
    ///
    /// # Errors
    /// Returns an error if the kernel does not dump its table.
    fn show(&mut self, each: &mut dyn FnMut(&Sighting)) -> io::Result<()>;

    /// Enables packet and byte counters for new flows. Returns true if they are enabled.
    fn count(&mut self) -> bool;

    /// Returns the node's own addresses, without loopback addresses.
    ///
    /// # Errors
    /// Returns an error if the addresses cannot be read.
    fn local_addresses(&mut self) -> io::Result<BTreeSet<IpAddr>>;
}
