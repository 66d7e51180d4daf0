//! The seam between the loop and a kernel: what should be, how much of it to look at, and what came of it.
//!
//! A backend remembers what it last saw or wrote (its mirror of the kernel) and plans differences against that, so that
//! the cost of a pass follows its scope. Every backend recognises its own kernel objects without memory of having made
//! them, never touches others, and survives being killed between any two kernel calls.

pub mod addresses;
pub mod claims;
pub mod iptables;
pub mod ipvs;
pub mod memory;
pub mod nftables;
mod trace;
pub mod userspace;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    kinds::{
        node::{Naming, ProxyMode, ProxyOptions},
        resource::ServiceKey,
        service::Protocol,
    },
    primitives::quantity::Revision,
    program::{Program, Target, oracle::Networks},
    wire::{
        plan::LineChange,
        report::FailureReason,
        trace::{Packet, Traced},
        traffic_counts::TargetFailures,
    },
};
use serde::{Deserialize, Serialize};

use crate::conntrack::nudge::wire::Nudge;

/// What the kernel of this node should hold.
#[derive(Debug, Clone, Default)]
pub struct Desired {
    /// The packet program of every Service that can be carried out here.
    pub programs: BTreeMap<ServiceKey, DesiredProgram>,
    /// The networks that the rules tell apart.
    pub networks: Networks,
}

/// The packet program of one Service.
#[derive(Debug, Clone)]
pub struct DesiredProgram {
    /// The revision of the compiled Service it was made from.
    pub revision: Revision,
    /// The program.
    pub program: Arc<Program>,
}

/// How much of the desired state a pass looks at. What lies outside is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All of it, and everything of ours in the kernel: for start, drift and recovery.
    Everything,
    /// These Services (also ones that are no longer desired), and the networks if they changed.
    Services(BTreeSet<ServiceKey>),
}

/// What came of a pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// Of every Service in scope that is desired.
    pub outcomes: BTreeMap<ServiceKey, Outcome>,
    /// Kernel objects that had to be changed.
    pub writes: u64,
    /// A failure of the whole pass, after which nothing is known: the next pass must observe again.
    pub failed: Option<KernelError>,
}

/// What came of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The kernel holds it, read back after a change (or observed, when nothing had to change).
    Verified,
    /// It is not in the kernel as it should be; other Services are not affected.
    Failed {
        /// The machine word.
        reason: FailureReason,
        /// The cause in words.
        message: String,
    },
}

/// What a backend has done to the kernel since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Transactions committed.
    pub transactions: u64,
    /// Netlink messages (or lines) in them.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Conntrack entries deleted.
    pub conntrack_deletions: u64,
}

/// A failed exchange with the kernel.
#[derive(Debug, thiserror::Error)]
#[error("{action} failed")]
pub struct KernelError {
    /// What was tried, such as `committing 12 nf_tables messages`.
    pub action: String,
    /// What the kernel said.
    #[source]
    pub source: std::io::Error,
}

/// One way of programming a kernel. All calls block; the loop makes them on a thread of its own.
pub trait Dataplane: Send {
    /// Which one.
    fn mode(&self) -> ProxyMode;

    /// Gets what the backend needs beside the kernel, such as a process; the kernel is not touched. Not called by who only
    /// wants to clean up.
    ///
    /// # Errors
    /// When it cannot be had.
    fn begin(&mut self) -> Result<(), KernelError>;

    /// Reads everything of ours in the kernel into the mirror. Writes nothing.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn observe(&mut self) -> Result<(), KernelError>;

    /// Whether anybody else may have changed the kernel since the last `observe` or `apply`. Cheap: one exchange.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn is_disturbed(&mut self) -> Result<bool, KernelError>;

    /// Brings the kernel to the desired state within the scope: plans against the mirror, commits, reads back.
    /// Withdraws nothing outside the scope and makes no kernel write when nothing differs.
    fn apply(&mut self, desired: &Desired, scope: &Scope) -> Pass;

    /// Does what time brings, about once a second: takes away what has drained. Most backends have nothing to do.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn upkeep(&mut self) -> Result<(), KernelError>;

    /// Clients whose TCP connections the kernel has ended, since this was asked last, because of what the backend did: they
    /// are not to be found in connection tracking any more, and are to be told.
    fn take_cut(&mut self) -> Vec<Nudge>;

    /// Leaves the node to another backend that has programmed everything: catches no new connection from here on, but
    /// lets established ones end where the kernel allows it. Answers whether nothing is left; until then it is called
    /// again about once a second, and neither `observe` nor `apply` is.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn retire(&mut self) -> Result<bool, KernelError>;

    /// Leaves the kernel objects to another backend of the same mode that goes on with them: what this one has beside them
    /// is not needed. Writes nothing.
    fn abandon(&mut self);

    /// Whether the kernel's connection tracking shows the targets, so that flows on targets that are gone can be found
    /// there. Not where a relay stands between.
    fn is_tracked(&self) -> bool;

    /// What went through, as far as the backend counts it, since it programmed each target. Not on the way of a change. Targets
    /// that were given nothing may be left out.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError>;

    /// Whether the backend sees that targets refuse connections.
    fn sees_refusals(&self) -> bool;

    /// The targets that have refused connections since the last one that they took.
    ///
    /// # Errors
    /// When whoever sees it cannot be asked.
    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError>;

    /// Whether packets, bytes and open connections are to be had from connection tracking: the backend counts connections
    /// only. Where it counts everything itself, and where a relay stands between, they are not.
    fn is_counted_by_flows(&self) -> bool;

    /// The lines by which the kernel's listings would differ if `desired` were applied within the scope, planned by what would
    /// carry it out, against the mirror. Writes nothing and changes no mirror. `None`: this backend cannot say.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn preview(&mut self, desired: &Desired, scope: &Scope) -> Result<Option<Vec<LineChange>>, KernelError>;

    /// What the kernel would do with each of these first packets of connections, by what it holds, read anew, once for all of
    /// them. `None`: this backend cannot say.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<Traced>>, KernelError>;

    /// Removes everything of ours from the kernel, whoever made it; answers how many objects that were.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn cleanup(&mut self) -> Result<u64, KernelError>;

    /// What was done since the backend was opened.
    fn counters(&self) -> KernelCounters;

    /// Bytes of memory in use by the process that carries connections for the backend, as it said last; nothing where
    /// there is none but the kernel.
    fn relay_heap_bytes(&self) -> Option<u64>;
}

/// What went to one target of one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The Service.
    pub service: ServiceKey,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The target.
    pub target: Target,
    /// Connections given to it.
    pub connections: u64,
    /// Packets in both directions, where they are counted.
    pub packets: Option<u64>,
    /// Bytes in both directions, where they are counted.
    pub bytes: Option<u64>,
    /// Established connections, where they are known.
    pub active: Option<u64>,
    /// Connections that are known but not established, where that is known.
    pub inactive: Option<u64>,
    /// Connections that the target did not take or broke off, where somebody sees that.
    pub failed: Option<TargetFailures>,
}

/// Connections that a target of a Service has refused since the last one that it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// The Service.
    pub service: ServiceKey,
    /// The target.
    pub target: Target,
    /// How many; more than none.
    pub in_a_row: u64,
}

/// How a backend programs. Another value means another backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendOptions {
    /// The packet mark that asks for masquerading; exactly one bit.
    pub masquerade_mark: u32,
    /// The packet mark that asks for dropping, where a backend needs one; exactly one bit.
    pub drop_mark: u32,
    /// How chains and sets are named in iptables and ipvs mode.
    pub naming: Naming,
    /// In ipvs mode, answer ARP only for addresses of the interface asked.
    pub strict_arp: bool,
}

impl Default for BackendOptions {
    fn default() -> Self {
        Self::of(&ProxyOptions::default())
    }
}

impl BackendOptions {
    /// The options that a Node asks for.
    #[must_use]
    pub fn of(options: &ProxyOptions) -> Self {
        Self {
            masquerade_mark: options.masquerade_mark(),
            drop_mark: options.drop_mark(),
            naming: options.naming,
            strict_arp: options.strict_arp,
        }
    }
}

/// Why a backend could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel did not play along.
    #[error("the kernel gives no access")]
    Kernel(#[from] KernelError),
}

/// Opens the backend of a mode in the network namespace of the calling thread. The relay of userspace mode is in this
/// process, and ends with it; an agent has it in a process of its own ([`userspace::process::Relays::opener`]).
///
/// # Errors
/// When there is no such backend, or the kernel gives no access.
pub fn open(mode: ProxyMode, options: &BackendOptions) -> Result<Box<dyn Dataplane>, OpenError> {
    match mode {
        ProxyMode::Nftables => {
            let options = nftables::NftablesOptions {
                mark_bit: options.masquerade_mark,
                ..nftables::NftablesOptions::default()
            };
            Ok(Box::new(nftables::NftablesBackend::open(options)?))
        }
        ProxyMode::Iptables => {
            let options = iptables::IptablesOptions::of(options);
            Ok(Box::new(iptables::IptablesBackend::open(&options)?))
        }
        ProxyMode::Userspace => {
            let limits = userspace::Limits::default();
            Ok(Box::new(userspace::UserspaceBackend::open(options.masquerade_mark, limits)?))
        }
        ProxyMode::Ipvs => Ok(Box::new(ipvs::IpvsBackend::open(options)?)),
    }
}
