//! Input of the workload network, derived from the state of the cluster. Does no I/O.

use std::time::Duration;

use model::{
    kinds::workload_network::{EncapsulateWhen, Encapsulation as NetworkEncapsulation},
    wire::workload_network::{BlockState, WorkloadNetworkState},
};
use network::desired::{Block, DesiredNetwork, Encapsulation, NetworkSettings, TunnelKind};

use super::State;

/// Returns the workload networks with the blocks of all nodes.
#[must_use]
pub fn desired(state: &State) -> DesiredNetwork {
    let mut desired = DesiredNetwork::default();
    for network in state.workload_networks().values() {
        desired.networks.insert(network.name.clone(), settings(network));
    }
    for block in state.blocks().values() {
        let BlockState { cidr, revision: _, network, node, node_addresses, draining } = block.as_ref();
        let assigned = Block { network: network.clone(), node: node.clone(), is_draining: *draining };
        desired.blocks.insert(*cidr, assigned);
        desired.nodes.insert(node.clone(), node_addresses.clone());
    }
    desired.interfaces.clone_from(&state.node().interfaces);
    desired
}

fn settings(network: &WorkloadNetworkState) -> NetworkSettings {
    let encapsulated = match network.when {
        EncapsulateWhen::CrossSubnet => Encapsulation::CrossSubnet,
        EncapsulateWhen::Always => Encapsulation::Always,
    };
    let (encapsulation, tunnel) = match network.encapsulation {
        NetworkEncapsulation::None => (Encapsulation::None, TunnelKind::Vxlan),
        NetworkEncapsulation::Vxlan => (encapsulated, TunnelKind::Vxlan),
        NetworkEncapsulation::Ipip => (encapsulated, TunnelKind::Ipip),
    };
    NetworkSettings {
        cidrs: network.cidrs.clone(),
        nat_outgoing: network.nat_outgoing,
        nat_except: network.nat_except.clone(),
        encapsulation,
        tunnel,
        reserved: network.reserved.clone(),
        cooldown: Duration::from_secs(network.cooldown_seconds.into()),
        mtu: network.mtu.map(u32::from),
    }
}
