//! Assembles the frames of a feed (stream of state from the control server) into batches of changes. Pure,
//! and used for the network feed and for the journal.
//!
//! ```text
//! AwaitStart ──start──▶ Collecting(first) ──synced──▶ Collecting(next) ─┐
//!                              ▲   frames are collected, no batch yet   │ synced ─▶ batch
//!                              └────────────────────────────────────────┘ heartbeat, nothing collected ─▶ batch
//! ```
//! A `start` frame begins a stream, a `synced` frame ends a batch, and a `heartbeat` frame contains only a
//! position. Invariant: no batch leads to a position (epoch and revision) older than the current one.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use model::{
    cluster::compiled::CompiledService,
    kinds::{attachment::WorkloadKey, resource::ServiceKey},
    policy::set::{ContentId, PolicySet, PolicyWorkload},
    primitives::{
        name::Name,
        quantity::{Position, Revision},
        trace_parent::TraceParent,
    },
    wire::{
        feed::{AddressState, FRAME_TRACES_MAX, Frame, NetworkState, NodeState, StartMode},
        workload_network::{BlockState, WorkloadNetworkState},
    },
};

/// Maximum number of Services, of addresses, of blocks, and of workloads, in one batch of state changes: a hundred times the largest
/// benchmarked cluster. A larger number indicates a broken server.
pub const BATCH_SERVICES_MAX: usize = 1_000_000;

/// Changes between two positions (epoch and revision), to be applied together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Type of the batch: a full state, which replaces the current one, or a delta, which changes it.
    pub mode: StartMode,
    /// Cluster-wide settings, if they were sent.
    pub network: Option<NetworkState>,
    /// Settings of this node, if they were sent.
    pub node: Option<NodeState>,
    /// Final change of each Service that was sent.
    pub services: BTreeMap<ServiceKey, ServiceChange>,
    /// Final state of each load balancer address that was sent; `None` if removed.
    pub addresses: BTreeMap<IpAddr, Option<Arc<AddressState>>>,
    /// Changes of WorkloadNetworks and blocks.
    pub networks: NetworkChanges,
    /// Changes of network policy.
    pub policy: PolicyUpdates,
    /// Position (epoch and revision) of the state after the batch is applied.
    pub position: Position,
    /// Trace contexts of recorded writes in the batch, at most [`FRAME_TRACES_MAX`].
    pub traces: Vec<TraceParent>,
}

/// Changes of WorkloadNetworks and blocks in a batch of state changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkChanges {
    /// Final state of each WorkloadNetwork that was sent; `None` if removed.
    pub networks: BTreeMap<Name, Option<Arc<WorkloadNetworkState>>>,
    /// Final state of each block that was sent; `None` if removed.
    pub blocks: BTreeMap<IpNet, Option<Arc<BlockState>>>,
    /// True if the state after the batch includes all WorkloadNetworks and blocks, false if the control server does not
    /// send them; `None` if it is as before the batch.
    pub are_included: Option<bool>,
}

/// Changes of network policy in a batch of state changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyUpdates {
    /// Sets of rules that were sent; `None` if removed.
    pub sets: BTreeMap<ContentId, Option<Arc<PolicySet>>>,
    /// Final policy of each workload that was sent; `None` if removed.
    pub workloads: BTreeMap<WorkloadKey, Option<Arc<PolicyWorkload>>>,
    /// True if the state after the batch includes all network policy, false if the control server does not send it; `None`
    /// if it is as before the batch.
    pub is_included: Option<bool>,
}

/// Final change of one Service in a batch of state changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceChange {
    /// The Service was added or replaced; contains its compiled form, with resolved endpoints.
    Set(Arc<CompiledService>),
    /// The Service was removed at this revision.
    Removed(Revision),
}

/// Reason why the stream of state from a control server must be closed. The agent keeps its current state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// The server offered an older position (epoch and revision). It has not caught up with another server,
    /// or its store was restored without a new epoch.
    #[error("position {offered} is older than {held}, the current position of this agent")]
    OlderThanHeld {
        /// Position (epoch and revision) of the agent's state.
        held: Position,
        /// Older position (epoch and revision) that the server offered.
        offered: Position,
    },
    /// The server sent a delta that starts from a state which this agent does not have.
    #[error("changes up to {offered} do not follow from {}", .held.map_or_else(|| "nothing".to_owned(), |p| p.to_string()))]
    NoCommonGround {
        /// Position (epoch and revision) of the agent's state; `None` if it has no state.
        held: Option<Position>,
        /// Position (epoch and revision) to which the delta leads.
        offered: Position,
    },
    /// The server sent a frame (message) that the protocol does not allow at this point of the stream.
    #[error("unexpected frame `{0}`")]
    OutOfPlace(&'static str),
    /// The server sent more than [`BATCH_SERVICES_MAX`] Services, addresses, blocks or workloads in one batch.
    #[error(
        "more than {BATCH_SERVICES_MAX} Services, addresses, blocks or workloads between two `synced` frames"
    )]
    TooMany,
}

/// Assembler of the frames (messages) of one stream from a control server into batches of state changes.
#[derive(Debug)]
pub struct Assembler {
    held: Option<Position>,
    in_force: Option<Position>,
    stage: Stage,
    collected: CollectedFrames,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    AwaitStart,
    Collecting { mode: StartMode, is_first: bool },
}

#[derive(Debug, Default)]
struct CollectedFrames {
    network: Option<NetworkState>,
    node: Option<NodeState>,
    services: BTreeMap<ServiceKey, ServiceChange>,
    addresses: BTreeMap<IpAddr, Option<Arc<AddressState>>>,
    networks: NetworkChanges,
    policy: PolicyUpdates,
}

impl Assembler {
    /// Creates the assembler for a new stream of state from a control server. `held` is the position (epoch
    /// and revision) of the agent's state.
    #[must_use]
    pub fn new(held: Option<Position>) -> Self {
        Self::holding_back(held, held)
    }

    /// Creates the assembler for a stream of state that starts while the state at position `held` awaits
    /// confirmation and the state at position `in_force` is applied. Deltas must start from `held`; a full
    /// state must not be older than `in_force`.
    #[must_use]
    pub fn holding_back(held: Option<Position>, in_force: Option<Position>) -> Self {
        Self { held, in_force, stage: Stage::AwaitStart, collected: CollectedFrames::default() }
    }

    /// Returns the position (epoch and revision) of the last batch, or that of the agent's state if no batch
    /// is complete yet; `None` if the agent has no state.
    #[must_use]
    pub const fn held(&self) -> Option<Position> {
        self.held
    }

    /// Returns true if the `start` frame, the first message of the stream, has arrived.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.stage != Stage::AwaitStart
    }

    /// Adds a frame (message) of the stream. Returns a batch of state changes if the frame completes one,
    /// otherwise `None`.
    ///
    /// # Errors
    ///
    /// Returns [`StreamFault`] if the stream violates the protocol or leads to an older position. The stream
    /// must then be closed.
    pub fn push(&mut self, frame: Frame) -> Result<Option<Batch>, StreamFault> {
        let Stage::Collecting { mode, is_first } = self.stage else {
            return self.start(frame).map(|()| None);
        };
        match frame {
            Frame::Start { .. } => Err(StreamFault::OutOfPlace("start")),
            Frame::Network(network) => {
                self.collected.network = Some(network);
                Ok(None)
            }
            Frame::Node(node) => {
                self.collected.node = Some(node);
                Ok(None)
            }
            Frame::Service { service } => {
                let key = service.service.clone();
                self.collect(key, ServiceChange::Set(service))
            }
            Frame::Removed { service, revision } => self.collect(service, ServiceChange::Removed(revision)),
            Frame::Address { address } => self.collect_address(address.address, Some(address)),
            Frame::AddressRemoved { address, revision: _ } => self.collect_address(address, None),
            Frame::WorkloadNetwork { network } => {
                self.collected.networks.networks.insert(network.name.clone(), Some(network));
                Ok(None)
            }
            Frame::WorkloadNetworkRemoved { network, revision: _ } => {
                self.collected.networks.networks.insert(network, None);
                Ok(None)
            }
            Frame::Block { block } => self.collect_block(block.cidr, Some(block)),
            Frame::BlockRemoved { cidr, revision: _ } => self.collect_block(cidr, None),
            Frame::PolicySet { set } => self.collect_set(set.id, Some(set)),
            Frame::PolicySetRemoved { set, revision: _ } => self.collect_set(set, None),
            Frame::PolicyWorkload { workload } => {
                self.collect_workload(workload.workload.clone(), Some(workload))
            }
            Frame::PolicyWorkloadRemoved { workload, revision: _ } => self.collect_workload(workload, None),
            // Not part of the state.
            Frame::Ask { .. } => Ok(None),
            Frame::Synced { position, traces, workload_networks, network_policy } => {
                self.collected.networks.are_included = Some(workload_networks);
                self.collected.policy.is_included = Some(network_policy);
                self.complete(mode, position, traces).map(Some)
            }
            Frame::Heartbeat { position } => {
                let moved = self.held.is_none_or(|held| position != held);
                if is_first || !moved || !self.collected.is_empty() {
                    return Ok(None);
                }
                self.complete(mode, position, Vec::new()).map(Some)
            }
        }
    }

    fn start(&mut self, frame: Frame) -> Result<(), StreamFault> {
        let (mode, position) = match frame {
            Frame::Start { mode, position } => (mode, position),
            Frame::Network(_) => return Err(StreamFault::OutOfPlace("network")),
            Frame::Node(_) => return Err(StreamFault::OutOfPlace("node")),
            Frame::Service { .. } => return Err(StreamFault::OutOfPlace("service")),
            Frame::Removed { .. } => return Err(StreamFault::OutOfPlace("removed")),
            Frame::Address { .. } => return Err(StreamFault::OutOfPlace("address")),
            Frame::AddressRemoved { .. } => return Err(StreamFault::OutOfPlace("addressRemoved")),
            Frame::WorkloadNetwork { .. } => return Err(StreamFault::OutOfPlace("workloadNetwork")),
            Frame::WorkloadNetworkRemoved { .. } => {
                return Err(StreamFault::OutOfPlace("workloadNetworkRemoved"));
            }
            Frame::Block { .. } => return Err(StreamFault::OutOfPlace("block")),
            Frame::BlockRemoved { .. } => return Err(StreamFault::OutOfPlace("blockRemoved")),
            Frame::PolicySet { .. } => return Err(StreamFault::OutOfPlace("policySet")),
            Frame::PolicySetRemoved { .. } => return Err(StreamFault::OutOfPlace("policySetRemoved")),
            Frame::PolicyWorkload { .. } => return Err(StreamFault::OutOfPlace("policyWorkload")),
            Frame::PolicyWorkloadRemoved { .. } => {
                return Err(StreamFault::OutOfPlace("policyWorkloadRemoved"));
            }
            Frame::Ask { .. } => return Err(StreamFault::OutOfPlace("ask")),
            Frame::Synced { .. } => return Err(StreamFault::OutOfPlace("synced")),
            Frame::Heartbeat { .. } => return Err(StreamFault::OutOfPlace("heartbeat")),
        };
        self.held = match mode {
            StartMode::Full => self.in_force,
            StartMode::Delta => self.held,
        };
        // Checked early, before large data arrives that would be discarded.
        check(self.held, mode, position)?;
        self.stage = Stage::Collecting { mode, is_first: true };
        Ok(())
    }

    fn collect(&mut self, key: ServiceKey, change: ServiceChange) -> Result<Option<Batch>, StreamFault> {
        self.collected.services.insert(key, change);
        if self.collected.services.len() > BATCH_SERVICES_MAX {
            return Err(StreamFault::TooMany);
        }
        Ok(None)
    }

    fn collect_address(
        &mut self,
        address: IpAddr,
        change: Option<Arc<AddressState>>,
    ) -> Result<Option<Batch>, StreamFault> {
        self.collected.addresses.insert(address, change);
        if self.collected.addresses.len() > BATCH_SERVICES_MAX {
            return Err(StreamFault::TooMany);
        }
        Ok(None)
    }

    fn collect_block(
        &mut self,
        cidr: IpNet,
        change: Option<Arc<BlockState>>,
    ) -> Result<Option<Batch>, StreamFault> {
        let blocks = &mut self.collected.networks.blocks;
        blocks.insert(cidr, change);
        if blocks.len() > BATCH_SERVICES_MAX { Err(StreamFault::TooMany) } else { Ok(None) }
    }

    fn collect_set(
        &mut self,
        id: ContentId,
        change: Option<Arc<PolicySet>>,
    ) -> Result<Option<Batch>, StreamFault> {
        let sets = &mut self.collected.policy.sets;
        sets.insert(id, change);
        if sets.len() > BATCH_SERVICES_MAX { Err(StreamFault::TooMany) } else { Ok(None) }
    }

    fn collect_workload(
        &mut self,
        key: WorkloadKey,
        change: Option<Arc<PolicyWorkload>>,
    ) -> Result<Option<Batch>, StreamFault> {
        let workloads = &mut self.collected.policy.workloads;
        workloads.insert(key, change);
        if workloads.len() > BATCH_SERVICES_MAX { Err(StreamFault::TooMany) } else { Ok(None) }
    }

    fn complete(
        &mut self,
        mode: StartMode,
        position: Position,
        mut traces: Vec<TraceParent>,
    ) -> Result<Batch, StreamFault> {
        check(self.held, mode, position)?;
        self.held = Some(position);
        self.stage = Stage::Collecting { mode: StartMode::Delta, is_first: false };
        let CollectedFrames { network, node, services, addresses, networks, policy } =
            std::mem::take(&mut self.collected);
        traces.truncate(FRAME_TRACES_MAX);
        Ok(Batch { mode, network, node, services, addresses, networks, policy, position, traces })
    }
}

impl CollectedFrames {
    fn is_empty(&self) -> bool {
        let Self { network, node, services, addresses, networks, policy } = self;
        let is_empty = network.is_none() && node.is_none() && services.is_empty() && addresses.is_empty();
        let has_networks = !networks.networks.is_empty() || !networks.blocks.is_empty();
        is_empty && !has_networks && policy.sets.is_empty() && policy.workloads.is_empty()
    }
}

/// Checks if the agent may go from the position (epoch and revision) `held` of its state to the position
/// `offered` by the control server.
///
/// # Errors
/// Returns [`StreamFault`] if the offered position is older, or if a delta starts from a state that the agent
/// does not have.
pub fn check(held: Option<Position>, mode: StartMode, offered: Position) -> Result<(), StreamFault> {
    if let Some(held) = held.filter(|held| offered < *held) {
        return Err(StreamFault::OlderThanHeld { held, offered });
    }
    match mode {
        StartMode::Full => Ok(()),
        StartMode::Delta if held.is_some_and(|held| held.epoch == offered.epoch) => Ok(()),
        StartMode::Delta => Err(StreamFault::NoCommonGround { held, offered }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Position {
        text.parse().unwrap()
    }

    fn start(mode: StartMode, position: &str) -> Frame {
        Frame::Start { mode, position: at(position) }
    }

    fn removed(name: &str) -> Frame {
        Frame::Removed { service: format!("default/{name}").try_into().unwrap(), revision: Revision(1) }
    }

    #[test]
    fn nothing_leaves_before_synced() {
        let mut assembler = Assembler::new(None);
        assert_eq!(assembler.push(start(StartMode::Full, "1-5")), Ok(None));
        assert_eq!(assembler.push(removed("a")), Ok(None));
        assert_eq!(assembler.push(Frame::Heartbeat { position: at("1-5") }), Ok(None));
        let batch = assembler
            .push(Frame::Synced {
                position: at("1-6"),
                traces: Vec::new(),
                workload_networks: false,
                network_policy: false,
            })
            .unwrap()
            .unwrap();
        assert_eq!((batch.mode, batch.position, batch.services.len()), (StartMode::Full, at("1-6"), 1));
        assert_eq!(assembler.held(), Some(at("1-6")));
    }

    #[test]
    fn batches_after_the_first_are_differences() {
        let mut assembler = Assembler::new(None);
        assembler.push(start(StartMode::Full, "1-5")).unwrap();
        assembler
            .push(Frame::Synced {
                position: at("1-5"),
                traces: Vec::new(),
                workload_networks: false,
                network_policy: false,
            })
            .unwrap();
        let batch = assembler
            .push(Frame::Synced {
                position: at("1-6"),
                traces: Vec::new(),
                workload_networks: false,
                network_policy: false,
            })
            .unwrap()
            .unwrap();
        assert_eq!(batch.mode, StartMode::Delta);
    }

    #[test]
    fn an_idle_heartbeat_moves_the_position_and_a_busy_one_does_not() {
        let mut assembler = Assembler::new(Some(at("1-5")));
        assembler.push(start(StartMode::Delta, "1-5")).unwrap();
        assert_eq!(
            assembler.push(Frame::Heartbeat { position: at("1-7") }),
            Ok(None),
            "before the first synced"
        );
        assembler
            .push(Frame::Synced {
                position: at("1-5"),
                traces: Vec::new(),
                workload_networks: false,
                network_policy: false,
            })
            .unwrap();
        assert_eq!(assembler.push(Frame::Heartbeat { position: at("1-5") }), Ok(None));
        let batch = assembler.push(Frame::Heartbeat { position: at("1-8") }).unwrap().unwrap();
        assert_eq!((batch.position, batch.services.len()), (at("1-8"), 0));
        assembler.push(removed("a")).unwrap();
        assert_eq!(assembler.push(Frame::Heartbeat { position: at("1-9") }), Ok(None));
    }

    #[test]
    fn older_positions_are_refused_at_start_and_at_synced() {
        for older in ["2-4", "1-900"] {
            let fault = StreamFault::OlderThanHeld { held: at("2-5"), offered: at(older) };
            for mode in [StartMode::Full, StartMode::Delta] {
                let mut assembler = Assembler::new(Some(at("2-5")));
                assert_eq!(assembler.push(start(mode, older)), Err(fault.clone()));
            }
            let mut assembler = Assembler::new(Some(at("2-5")));
            assembler.push(start(StartMode::Full, "2-5")).unwrap();
            assert_eq!(
                assembler.push(Frame::Synced {
                    position: at(older),
                    traces: Vec::new(),
                    workload_networks: false,
                    network_policy: false
                }),
                Err(fault)
            );
        }
    }

    #[test]
    fn a_newer_epoch_is_taken_only_as_full_state() {
        let mut assembler = Assembler::new(Some(at("2-5")));
        let fault = StreamFault::NoCommonGround { held: Some(at("2-5")), offered: at("3-1") };
        assert_eq!(assembler.push(start(StartMode::Delta, "3-1")), Err(fault));
        let mut assembler = Assembler::new(Some(at("2-5")));
        assembler.push(start(StartMode::Full, "3-1")).unwrap();
        assert!(
            assembler
                .push(Frame::Synced {
                    position: at("3-1"),
                    traces: Vec::new(),
                    workload_networks: false,
                    network_policy: false
                })
                .unwrap()
                .is_some()
        );
        let mut assembler = Assembler::new(None);
        assert!(assembler.push(start(StartMode::Delta, "1-1")).is_err(), "a difference to nothing");
    }

    #[test]
    fn beside_a_state_that_is_held_back_control_may_return_to_the_one_in_force_and_not_further() {
        let begin = || Assembler::holding_back(Some(at("9-3")), Some(at("2-5")));
        let mut assembler = begin();
        assembler.push(start(StartMode::Delta, "9-4")).unwrap();
        assert!(
            assembler
                .push(Frame::Synced {
                    position: at("9-4"),
                    traces: Vec::new(),
                    workload_networks: false,
                    network_policy: false
                })
                .unwrap()
                .is_some()
        );
        let mut assembler = begin();
        assembler.push(start(StartMode::Full, "2-5")).unwrap();
        assert!(
            assembler
                .push(Frame::Synced {
                    position: at("2-6"),
                    traces: Vec::new(),
                    workload_networks: false,
                    network_policy: false
                })
                .unwrap()
                .is_some()
        );
        let fault = StreamFault::OlderThanHeld { held: at("2-5"), offered: at("2-4") };
        assert_eq!(begin().push(start(StartMode::Full, "2-4")), Err(fault));
        assert!(
            begin().push(start(StartMode::Delta, "2-6")).is_err(),
            "differences follow from what is held back"
        );
    }

    #[test]
    fn a_stream_starts_once() {
        assert_eq!(Assembler::new(None).push(removed("a")), Err(StreamFault::OutOfPlace("removed")));
        let mut assembler = Assembler::new(None);
        assembler.push(start(StartMode::Full, "1-1")).unwrap();
        assert_eq!(assembler.push(start(StartMode::Full, "1-1")), Err(StreamFault::OutOfPlace("start")));
    }
}
