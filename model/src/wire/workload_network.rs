//! WorkloadNetworks and blocks in the form that nodes receive.
//!
//! Every node receives all of them, and derives from them its routes to the workloads of the other nodes. A block in its
//! cooldown is of no node and is not sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        address_pool::AddressRange,
        attachment::{AttachmentKind, WorkloadKey},
        network_keys::block_key,
        resource::{Kind, ObjectKey},
        workload::WorkloadInterface,
        workload_network::{EncapsulateWhen, Encapsulation, WorkloadNetworkSpec},
    },
    primitives::{name::Name, quantity::Revision},
};

/// Header of the request for a feed by which an agent declares that it understands the frames of workload networks.
/// Older agents reject these frames, and older control servers ignore the header.
pub const WORKLOAD_NETWORKS_HEADER: &str = "tidegate-workload-networks";
/// Value of [`WORKLOAD_NETWORKS_HEADER`] of an agent whose state at `resume` includes workload networks.
pub const WORKLOAD_NETWORKS_KNOWN: &str = "known";
/// Value of [`WORKLOAD_NETWORKS_HEADER`] of an agent whose state does not include workload networks, so that it needs a
/// complete state.
pub const WORKLOAD_NETWORKS_NEW: &str = "new";

/// Settings of a WorkloadNetwork, as sent to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadNetworkState {
    /// Name of the WorkloadNetwork.
    pub name: Name,
    /// Revision of the last change to this data.
    pub revision: Revision,
    /// Networks of the addresses of workloads, such as `10.64.0.0/16`.
    #[schema(value_type = Vec<String>)]
    pub cidrs: BTreeSet<IpNet>,
    /// Encapsulation of packets between nodes: `Vxlan`, `Ipip` or `None`.
    pub encapsulation: Encapsulation,
    /// Nodes to which packets are encapsulated: `CrossSubnet` or `Always`.
    pub when: EncapsulateWhen,
    /// True if nodes masquerade packets from workloads to destinations outside of all workload networks.
    #[serde(default)]
    pub nat_outgoing: bool,
    /// Destinations that are not masqueraded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub nat_except: BTreeSet<IpNet>,
    /// Addresses that workloads never get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub reserved: Vec<AddressRange>,
    /// Time in seconds for which a released address is given to no other workload.
    #[serde(default)]
    pub cooldown_seconds: u32,
    /// MTU of the interfaces of workloads. Absent if nodes derive it from their interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// Block of a WorkloadNetwork with its node, as sent to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockState {
    /// Addresses of the block, such as `10.64.0.0/26`.
    #[schema(value_type = String)]
    pub cidr: IpNet,
    /// Revision of the last change to this data.
    pub revision: Revision,
    /// Name of the WorkloadNetwork to which the block belongs.
    pub network: Name,
    /// Name of the Node that assigns the addresses of the block.
    pub node: Name,
    /// Addresses of the Node, primary first, to which other nodes send packets for the block.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub node_addresses: Vec<IpAddr>,
    /// True if the Node assigns no further addresses of the block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// Interface that a Workload declares, as sent to its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredInterface {
    /// Name of the WorkloadNetwork of the addresses.
    pub network: Name,
    /// Kind of the interface: `Veth`, `Tap` or `Host`.
    pub kind: AttachmentKind,
    /// Name of the interface: on the node or, for `Veth`, in the network namespace.
    pub name: String,
    /// Name of the network namespace of a `Veth` below `/run/netns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_namespace: Option<String>,
    /// Link-layer address of the Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Identifier of the Workload. One that is created again has another, and its interface is reported again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub uid: Option<uuid::Uuid>,
    /// Addresses of the Workload, at most one per IP family. Without them, the node assigns addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
}

/// Compiles the interfaces that Workloads declare on a node, by Workload.
#[must_use]
pub fn compile_interfaces(snapshot: &Snapshot, node: &Name) -> BTreeMap<WorkloadKey, DeclaredInterface> {
    let declared = snapshot.declared_on(node).filter_map(|key| {
        let object = snapshot.get(&key.object_key())?;
        let spec = object.as_workload()?;
        let WorkloadInterface { network, kind, name, network_namespace, mac } =
            spec.interface.as_deref()?.clone();
        let (uid, addresses) = (object.metadata.uid, spec.addresses.clone());
        let state = DeclaredInterface { network, kind, name, network_namespace, mac, uid, addresses };
        Some((key.clone(), state))
    });
    declared.collect()
}

/// Compiles a WorkloadNetwork to the form that nodes receive. Returns `None` if it does not exist. The revision in the
/// result is zero; the caller sets it to the revision of the commit.
#[must_use]
pub fn compile_network(snapshot: &Snapshot, name: &Name) -> Option<WorkloadNetworkState> {
    let key = ObjectKey { kind: Kind::WorkloadNetwork, namespace: None, name: name.clone() };
    let WorkloadNetworkSpec {
        cidrs,
        block_size: _,
        encapsulation,
        when,
        nat_outgoing,
        nat_except,
        node_selectors: _,
        namespaces: _,
        reserved_labels: _,
        reserved,
        cooldown_seconds,
        mtu,
        interfaces: _,
    } = snapshot.get(&key)?.as_workload_network()?;
    Some(WorkloadNetworkState {
        name: name.clone(),
        revision: Revision(0),
        cidrs: cidrs.iter().copied().collect(),
        encapsulation: *encapsulation,
        when: *when,
        nat_outgoing: *nat_outgoing,
        nat_except: nat_except.iter().copied().collect(),
        reserved: reserved.clone(),
        cooldown_seconds: *cooldown_seconds,
        mtu: *mtu,
    })
}

/// Compiles a block to the form that nodes receive. Returns `None` if no Node has the block. The revision in the result
/// is zero; the caller sets it to the revision of the commit.
#[must_use]
pub fn compile_block(snapshot: &Snapshot, cidr: &IpNet) -> Option<BlockState> {
    let block = snapshot.get(&block_key(cidr))?.as_block().filter(|block| block.is_held())?;
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: block.node.clone() };
    let node = snapshot.get(&key).and_then(|object| object.as_node());
    Some(BlockState {
        cidr: block.cidr,
        revision: Revision(0),
        network: block.network.clone(),
        node: block.node.clone(),
        node_addresses: node.map(|spec| spec.addresses.clone()).unwrap_or_default(),
        draining: block.draining,
    })
}
