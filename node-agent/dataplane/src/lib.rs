//! Backends of the four proxy modes, and their interface to the agent: desired state, scope of a pass (one
//! update of the kernel), and outcome per Service.
//!
//! A backend keeps a mirror of the kernel (its last observation or write) and plans differences against the
//! mirror, so that the cost of a pass depends on its scope only. Every backend recognizes its own kernel
//! objects without stored state, never touches the objects of others, and survives being killed between any
//! two kernel calls.

pub mod addresses;
pub mod claims;
pub mod iptables;
pub mod ipvs;
pub mod memory;
pub mod nftables;
pub mod policy;
mod trace;
pub mod userspace;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use base::Refusals;
use kernel::conntrack::nudge::wire::Nudge;
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
        trace::{Packet, PacketTrace},
        traffic_counts::TargetFailures,
    },
};
use serde::{Deserialize, Serialize};

/// Desired kernel state of this node.
#[derive(Debug, Clone, Default)]
pub struct DesiredState {
    /// Packet program of every Service that this node supports.
    pub programs: BTreeMap<ServiceKey, DesiredProgram>,
    /// Workload networks, masqueraded sources and node port addresses, which the rules of all Services share.
    pub networks: Networks,
}

/// Packet program of one Service (its frontends with their verdicts), with the revision from which it was
/// built.
#[derive(Debug, Clone)]
pub struct DesiredProgram {
    /// Revision of the compiled Service (the Service with its endpoints) from which the packet program was
    /// built.
    pub revision: Revision,
    /// Frontends of the Service, each with the verdict for new connections.
    pub program: Arc<Program>,
}

impl DesiredState {
    /// Returns, for each Service, the packet program that the kernel has after a pass (update of the kernel),
    /// or `None` if it has none. Services whose kernel state is unknown are left out. `known` are the
    /// Services that the kernel had before; a pass for all Services removes those that are no longer desired.
    #[must_use]
    pub fn programmed<'a>(
        &self,
        scope: &Scope,
        outcomes: &BTreeMap<ServiceKey, Outcome>,
        known: impl Iterator<Item = &'a ServiceKey>,
    ) -> Vec<(ServiceKey, Option<Arc<Program>>)> {
        let services: BTreeSet<ServiceKey> = match scope {
            Scope::Services(services) => services.clone(),
            Scope::Everything => known.cloned().chain(self.programs.keys().cloned()).collect(),
        };
        let programmed = |service: ServiceKey| {
            let program = self.programs.get(&service).map(|desired| &desired.program);
            let program = match outcomes.get(&service) {
                // The kernel rejects connections to the unsupported frontends, and serves the others as desired.
                Some(
                    Outcome::Verified | Outcome::Failed { reason: FailureReason::PartlyUnsupported, .. },
                ) => program.cloned(),
                // The kernel forwards nothing of this Service.
                Some(Outcome::Failed { reason: FailureReason::Unsupported, .. }) => None,
                // The kernel state of this Service is unknown; the pass is retried.
                Some(Outcome::Failed { .. }) => return None,
                None if program.is_some() => return None,
                None => None,
            };
            Some((service, program))
        };
        services.into_iter().filter_map(programmed).collect()
    }
}

/// Scope of a pass (one update of the kernel). Kernel objects outside of the scope are left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All Services, and all kernel objects of the backend. Used after a start, a change by another program,
    /// or a failure.
    Everything,
    /// These Services (including ones that are no longer desired), and the networks if they changed.
    Services(BTreeSet<ServiceKey>),
}

/// Result of a pass, which applies the desired state within a scope: an outcome per Service, or a failure of
/// the whole pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// Outcome of every Service in the scope of the pass that has a desired packet program.
    pub outcomes: BTreeMap<ServiceKey, Outcome>,
    /// Number of kernel objects (rules, set elements, virtual servers, …) that the pass created, changed or
    /// removed.
    pub writes: u64,
    /// Failure of the whole pass. The kernel state is then unknown, so that [`Dataplane::observe`] must be
    /// called before the next pass.
    pub failed: Option<KernelError>,
}

/// Services that the kernel rejected in a pass (update of the kernel), each with the failure to report.
pub(crate) type RejectedServices = BTreeMap<Arc<ServiceKey>, Outcome>;

/// Result of a pass (one update of the kernel) for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// State in which the kernel holds the packet program (frontends with verdicts) of the Service: read back
    /// after a change, or observed if no change was needed.
    Verified,
    /// State in which the kernel does not hold the packet program (frontends with verdicts) of the Service as
    /// desired; contains the cause. Other Services are not affected.
    Failed {
        /// Reason as a value that programs can evaluate.
        reason: FailureReason,
        /// Cause as text for operators.
        message: String,
    },
}

/// Counters of a backend's kernel writes since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Number of committed transactions: in iptables mode runs of `iptables-restore`, in ipvs mode batches of
    /// commands.
    pub transactions: u64,
    /// Number of netlink messages or lines of tool input in these transactions.
    pub messages: u64,
    /// Size in bytes of these messages or tool input.
    pub bytes: u64,
    /// Conntrack entries that the backend has deleted.
    pub conntrack_deletions: u64,
}

/// Error of a kernel call or of a tool that programs the kernel.
#[derive(Debug, thiserror::Error)]
#[error("{action} failed")]
pub struct KernelError {
    /// Description of the action that failed, such as `committing 12 nf_tables messages`.
    pub action: String,
    /// Error that the kernel or the tool returned.
    #[source]
    pub source: std::io::Error,
}

/// Backend that programs the kernel in one proxy mode. All calls block, so the agent's control loop makes them on
/// a separate thread.
pub trait Dataplane: Send {
    /// Returns the proxy mode that this backend implements.
    fn mode(&self) -> ProxyMode;

    /// Acquires resources outside the kernel, such as a relay process. Does not change the kernel. Callers that
    /// only clean up skip this call.
    ///
    /// # Errors
    /// Returns an error if a resource is unavailable.
    fn begin(&mut self) -> Result<(), KernelError>;

    /// Reads all kernel objects of the backend into its mirror (copy in memory). Writes nothing to the
    /// kernel.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    fn observe(&mut self) -> Result<(), KernelError>;

    /// Returns true if another program may have changed the kernel since the last `observe` or `apply`.
    /// Cheap: one round trip.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be queried.
    fn is_disturbed(&mut self) -> Result<bool, KernelError>;

    /// Applies the desired state within the scope: compares it with the mirror (copy of the kernel state in
    /// memory), writes the differences, and reads them back. Removes nothing outside of the scope, and writes
    /// nothing if nothing differs.
    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass;

    /// Runs periodic work, about once a second, such as removing drained servers. Most backends have none.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects a change.
    fn upkeep(&mut self) -> Result<(), KernelError>;

    /// Returns and clears the clients whose TCP connections the kernel has terminated because of this
    /// backend's changes. These connections are no longer in connection tracking, so their clients must be
    /// notified separately.
    fn take_cut(&mut self) -> Vec<Nudge>;

    /// Hands the node over to another backend that has programmed everything. From now on this backend
    /// matches no new connection, but established ones may finish where the kernel allows it. Returns true
    /// once nothing is left; until then it is called again about once a second, and neither `observe` nor
    /// `apply` is called.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects a change.
    fn retire(&mut self) -> Result<bool, KernelError>;

    /// Leaves the kernel objects to another backend of the same mode and releases other resources. Writes
    /// nothing.
    fn abandon(&mut self);

    /// Returns true if connection tracking shows the real targets of connections, so that stale flows can be
    /// found and deleted. False if a relay terminates the connections.
    fn is_tracked(&self) -> bool;

    /// Returns the traffic per target since the target was programmed, as far as the backend counts traffic.
    /// Not called while a change is being applied. Targets without traffic may be left out.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError>;

    /// Returns true if the backend can detect that targets refuse connections.
    fn sees_refusals(&self) -> bool;

    /// Returns the targets that have refused connections since the last one that they accepted.
    ///
    /// # Errors
    /// Returns an error if the source of this data cannot be queried.
    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError>;

    /// Returns true if the backend counts connections only, and packets, bytes and open connections must be
    /// read from connection tracking. False if the backend counts everything itself, or a relay terminates
    /// the connections.
    fn is_counted_by_flows(&self) -> bool;

    /// Returns the lines that would change in the listings of the kernel's tools if `desired` were applied
    /// within the scope. Computes the changes as `apply` does, but writes nothing and leaves the mirror
    /// unchanged. `None` if the backend does not support previews.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError>;

    /// Traces the first packets of connections through the kernel state, which is read once for all packets.
    /// `None` if the backend does not support traces.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError>;

    /// Removes all objects of the backend from the kernel, including objects that other processes of this
    /// program have created. Returns the number of removed objects.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects a change.
    fn cleanup(&mut self) -> Result<u64, KernelError>;

    /// Returns the counters of kernel writes since the backend was opened.
    fn counters(&self) -> KernelCounters;

    /// Returns the allocated bytes of the relay process, from its last report; `None` if there is no such
    /// process.
    fn relay_heap_bytes(&self) -> Option<u64>;
}

/// Counters of the traffic that one Service forwarded to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Service that forwards the connections.
    pub service: ServiceKey,
    /// Transport protocol of the connections.
    pub protocol: Protocol,
    /// Endpoint that receives the connections.
    pub target: Target,
    /// Number of connections forwarded to the target since it was programmed.
    pub connections: u64,
    /// Packets in both directions; `None` if the backend does not count packets.
    pub packets: Option<u64>,
    /// Bytes in both directions; `None` if the backend does not count bytes.
    pub bytes: Option<u64>,
    /// Number of connections established now; `None` if the backend cannot count them.
    pub active: Option<u64>,
    /// Number of tracked connections that are not established, such as closing ones; `None` if the backend
    /// cannot count them.
    pub inactive: Option<u64>,
    /// Failed connections to the target; `None` unless a relay connects to it, because only a relay sees the
    /// failures.
    pub failed: Option<TargetFailures>,
}

/// Options that are fixed while a backend is open. To change an option, another backend must be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendOptions {
    /// Packet mark that requests masquerading; exactly one bit.
    pub masquerade_mark: u32,
    /// Packet mark that requests a drop, in backends that need one; exactly one bit.
    pub drop_mark: u32,
    /// Naming scheme of chains and sets in iptables and ipvs mode.
    pub naming: Naming,
    /// True if, in ipvs mode, interfaces answer ARP only for their own addresses.
    pub strict_arp: bool,
    /// True if forwarded packets in the conntrack state INVALID are dropped. Without effect in userspace mode.
    pub drop_invalid: bool,
}

impl Default for BackendOptions {
    fn default() -> Self {
        Self::of(&ProxyOptions::default())
    }
}

impl BackendOptions {
    /// Returns the backend options for the proxy options in the spec of a Node.
    #[must_use]
    pub fn of(options: &ProxyOptions) -> Self {
        Self {
            masquerade_mark: options.masquerade_mark(),
            drop_mark: options.drop_mark(),
            naming: options.naming,
            strict_arp: options.strict_arp,
            drop_invalid: options.drops_invalid(),
        }
    }
}

/// Reason for which [`open`] returned no backend.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Failure of the kernel or of a tool, for example missing privileges.
    #[error("the kernel denied access")]
    Kernel(#[from] KernelError),
}

/// Function that opens the backend of a proxy mode in the network namespace of the calling thread.
pub type Opener = Box<dyn FnMut(ProxyMode, &BackendOptions) -> Result<Box<dyn Dataplane>, OpenError> + Send>;

/// Opens the backend of a mode in the network namespace of the calling thread. The relay of userspace mode
/// runs in this process and ends with it; the agent uses a separate process instead
/// ([`userspace::process::Relays::opener`]).
///
/// # Errors
/// Returns an error if there is no such backend, or the kernel denies access.
pub fn open(mode: ProxyMode, options: &BackendOptions) -> Result<Box<dyn Dataplane>, OpenError> {
    match mode {
        ProxyMode::Nftables => {
            let options = nftables::NftablesOptions {
                mark_bit: options.masquerade_mark,
                drop_invalid: options.drop_invalid,
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
