//! Feed from a control server to an agent: NDJSON frames in the response to `GET /v1/nodes/{node}/state`.
//!
//! ```text
//! start(full) or start(delta)   complete state, or changes since the position that the agent requested
//! network, node, service, …     objects of the state
//! synced                        end of the batch
//! then repeatedly: changes (service, removed, address, …) and synced, or heartbeat
//! ```
//! The state is consistent only at `synced` frames. The agent therefore collects the frames before a `synced`
//! frame (a batch) and applies them together. The journal, in which an agent stores the state on disk,
//! contains frames of the same format.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::settings::BgpState,
    cluster::compiled::CompiledService,
    kinds::{
        address::Announcement,
        attachment::WorkloadKey,
        node::{ProxyMode, ProxyOptions},
        resource::ServiceKey,
    },
    policy::set::{ContentId, PolicySet, PolicyWorkload},
    primitives::{
        name::{Label, Name},
        public_key::PublicKey,
        quantity::{Position, Revision},
        secret::Secret,
        trace_parent::TraceParent,
    },
    wire::{
        ask::{AskId, Question},
        workload_network::{BlockState, DeclaredInterface, WorkloadNetworkState},
    },
};

/// Maximum number of trace contexts in one `synced` frame, so that a burst of recorded writes costs an agent no more
/// than half a kilobyte and a few spans.
pub const FRAME_TRACES_MAX: usize = 8;

/// Frame (one line of NDJSON) of the feed, the stream of state from a control server to an agent. The field
/// `type` selects the type of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Frame {
    /// First frame of a feed.
    Start {
        /// Content of the feed: `full` (complete state) or `delta` (changes since the requested position).
        mode: StartMode,
        /// Position (epoch and revision) that the next `synced` frame will have at least.
        position: Position,
    },
    /// Cluster-wide data on which the packet rules of every node depend.
    Network(NetworkState),
    /// Settings of the node that receives the feed.
    Node(NodeState),
    /// Service that was created or changed.
    Service {
        /// Compiled form of the Service, with its addresses, ports and endpoints.
        #[schema(value_type = CompiledService)]
        service: Arc<CompiledService>,
    },
    /// Service that was deleted, or that nodes no longer need.
    Removed {
        /// Removed Service, as `namespace/name`.
        service: ServiceKey,
        /// Revision of the change that removed the Service.
        revision: Revision,
    },
    /// Load balancer address that was assigned or changed.
    Address {
        /// Services with the address, and the nodes that may announce the address.
        #[schema(value_type = AddressState)]
        address: Arc<AddressState>,
    },
    /// Load balancer address that no Service has any longer.
    AddressRemoved {
        /// Removed address, such as `192.0.2.10`.
        #[schema(value_type = String)]
        address: IpAddr,
        /// Revision of the change that removed the address.
        revision: Revision,
    },
    /// WorkloadNetwork that was created or changed. Sent only to agents that request workload networks, as are the
    /// next three types.
    WorkloadNetwork {
        /// Settings of the WorkloadNetwork, with its name.
        #[schema(value_type = WorkloadNetworkState)]
        network: Arc<WorkloadNetworkState>,
    },
    /// WorkloadNetwork that was deleted.
    WorkloadNetworkRemoved {
        /// Name of the removed WorkloadNetwork.
        network: Name,
        /// Revision of the change that removed the WorkloadNetwork.
        revision: Revision,
    },
    /// Block that a Node got, or whose Node changed.
    Block {
        /// Addresses of the block, with the Node that has it.
        #[schema(value_type = BlockState)]
        block: Arc<BlockState>,
    },
    /// Block that no Node has any longer.
    BlockRemoved {
        /// Addresses of the removed block, such as `10.64.0.0/26`.
        #[schema(value_type = String)]
        cidr: IpNet,
        /// Revision of the change that removed the block.
        revision: Revision,
    },
    /// Set of compiled rules of network policy that workloads have. Sent only to agents that request network policy, as are
    /// the next three types.
    PolicySet {
        /// Rules of the set, with its id.
        #[schema(value_type = PolicySet)]
        set: Arc<PolicySet>,
    },
    /// Set that no workload has any longer.
    PolicySetRemoved {
        /// Id of the removed set, as 16 hexadecimal digits.
        #[schema(value_type = String)]
        set: ContentId,
        /// Revision of the change that removed the set.
        revision: Revision,
    },
    /// Workload whose network policy was created or changed.
    PolicyWorkload {
        /// Addresses of the Workload, with its sets and the selectors that match it.
        #[schema(value_type = PolicyWorkload)]
        workload: Arc<PolicyWorkload>,
    },
    /// Workload that network policy no longer concerns, or that was deleted.
    PolicyWorkloadRemoved {
        /// Removed Workload, as `namespace/name`.
        #[schema(value_type = String)]
        workload: WorkloadKey,
        /// Revision of the change that removed the Workload.
        revision: Revision,
    },
    /// Query to the agent, which replies with the request `PUT /v1/nodes/{node}/answers/{id}`. Queries are
    /// not part of the state, and are sent between batches.
    Ask {
        /// Id of the query, which the reply repeats.
        id: AskId,
        /// Content of the query.
        question: Question,
    },
    /// End of a batch: all changes up to the position have been sent. The agent applies the batch as a whole.
    Synced {
        /// Position (epoch and revision) of the state after this batch. An agent that reconnects sends this
        /// position as `resume`, to receive only later changes.
        position: Position,
        /// Trace contexts (header `traceparent` of W3C Trace Context) of recorded writes in this batch, at most 8.
        /// The agent records its update of the kernel in these traces. Absent if there are none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        traces: Vec<TraceParent>,
        /// True if the state at this position includes the WorkloadNetworks and blocks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        workload_networks: bool,
        /// True if the state at this position includes the network policy.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        network_policy: bool,
    },
    /// Frame without changes, sent at intervals to show that the connection still works.
    Heartbeat {
        /// Position of the last `synced` frame or, if nothing changed for the node, a later one.
        position: Position,
    },
}

/// Content of a feed: `full` (complete state; objects that are absent until the next `synced` do not exist)
/// or `delta` (changes since the requested position).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum StartMode {
    /// Complete state. Objects that are not sent before the next `synced` do not exist.
    Full,
    /// Changes since the requested position.
    Delta,
}

/// Cluster-wide data on which the packet rules of every node depend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkState {
    /// Workload networks of all Nodes and networks of all WorkloadNetworks, such as `10.1.0.0/16`.
    #[serde(default, rename = "workloadCIDRs")]
    #[schema(value_type = Vec<String>)]
    pub workload_cidrs: BTreeSet<IpNet>,
    /// Networks from which cluster IPs are allocated, such as `10.96.0.0/16`. Absent if the control server does
    /// not send them.
    #[serde(default, rename = "serviceCIDRs", skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub service_cidrs: BTreeSet<IpNet>,
    /// Key that authenticates BFD between two nodes (RFC 5880 §6.7) if one of them has no key in
    /// `peerPublicKeys` of the address, in base64. The same for all nodes, so each of them could use it to speak
    /// as another one. Absent if nodes do not monitor each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer_key: Option<Secret>,
    /// True if agents check endpoints of single TCP ports by default, if nobody else checks them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_check: bool,
    /// Names of the Nodes with a live agent. Some of them also check the health of endpoints that have no
    /// Node, or whose Node has no live agent.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub checkers: BTreeSet<Name>,
}

/// Load balancer address with its Services and announcing nodes, as sent to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressState {
    /// Load balancer address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Revision of the last change to this data.
    pub revision: Revision,
    /// Services with this address, as `namespace/name`. A node announces the address only if all of them are
    /// programmed.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Nodes that may announce the address by ARP or NDP, in order of rank, and the Advertisements that
    /// announce it by BGP.
    pub announcement: Announcement,
    /// Public keys of the candidates by node (X25519, RFC 7748), each as base64 of 32 bytes. Two candidates that
    /// both have one authenticate BFD between them by keys that they derive from it. Absent for the candidates
    /// whose agents have reported none. Not a part of the candidates, whose unknown fields older agents reject.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub peer_public_keys: BTreeMap<Name, PublicKey>,
}

/// Settings of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Proxy mode: `nftables`, `iptables`, `ipvs` or `userspace`. Absent if the agent uses its own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Failure zone of the node. Absent if the node has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Options of the proxy.
    #[serde(default)]
    pub proxy: ProxyOptions,
    /// Workload networks and blocks of this node, such as `10.1.13.0/24`. With policy Local, connections from these
    /// networks to external addresses and node ports may use the endpoints of all nodes. Absent if the control
    /// server does not send them; the workload networks of all Nodes then count.
    #[serde(default, rename = "workloadCIDRs", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub workload_cidrs: Option<BTreeSet<IpNet>>,
    /// BGP settings of the node. Absent if the node has no BGP peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<Box<BgpState>>,
    /// Interfaces of the node that Workloads declare, by Workload (`namespace/name`). Older agents ignore them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, DeclaredInterface>)]
    pub interfaces: BTreeMap<WorkloadKey, DeclaredInterface>,
}
