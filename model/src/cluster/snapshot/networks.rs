//! Index of workload networks: the networks of WorkloadNetworks, blocks by their addresses and Nodes, and Attachments by
//! their addresses, Nodes and Workloads.

use std::net::IpAddr;

use imbl::{OrdMap, OrdSet};
use ipnet::IpNet;

use super::{Entry, Snapshot};
use crate::{
    kinds::{
        attachment::{AttachmentSpec, WorkloadKey},
        block::BlockSpec,
        network_keys::block_key,
        resource::{Kind, Object, ObjectKey, Spec},
        selector::Selector,
        workload::WorkloadSpec,
        workload_network::WorkloadNetworkSpec,
    },
    primitives::{
        name::Name,
        net::{IpFamily, overlaps, to_number},
        non_empty_set::NonEmptySet,
        quantity::Timestamp,
    },
};

/// Index of WorkloadNetworks, blocks and Attachments in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NetworkIndex {
    /// WorkloadNetworks by each of their networks, which do not overlap.
    cidrs: OrdMap<IpNet, Name>,
    /// Blocks, held and in cooldown, by their first address. Blocks do not overlap, so the last entry at or below an
    /// address is the only one that can contain it.
    blocks: OrdMap<(IpFamily, u128), IpNet>,
    /// Blocks that Nodes have.
    blocks_by_node: OrdMap<Name, NonEmptySet<IpNet>>,
    /// Blocks in cooldown, by the Nodes that had them.
    cooling_by_node: OrdMap<Name, NonEmptySet<IpNet>>,
    /// Blocks of each network, held and in cooldown.
    blocks_by_network: OrdMap<Name, NonEmptySet<IpNet>>,
    /// Ends of cooldowns.
    cooldown_ends: OrdSet<(Timestamp, IpNet)>,
    /// Pairs of a WorkloadNetwork and a Node that it selects, and that has no block of one of its IP families. Drained
    /// blocks do not count.
    lacking: OrdSet<(Name, Name)>,
    attachments_by_address: OrdMap<IpAddr, Name>,
    attachments_by_node: OrdMap<Name, NonEmptySet<Name>>,
    attachments_by_workload: OrdMap<WorkloadKey, NonEmptySet<Name>>,
    /// Workloads that declare an interface, by their Nodes.
    declared_by_node: OrdMap<Name, NonEmptySet<WorkloadKey>>,
}

impl NetworkIndex {
    pub(super) fn index_network(&mut self, name: &Name, spec: &WorkloadNetworkSpec, entry: Entry) {
        for cidr in &spec.cidrs {
            entry.map(&mut self.cidrs, *cidr, name);
        }
    }

    pub(super) fn index_block(&mut self, spec: &BlockSpec, entry: Entry) {
        let cidr = spec.cidr;
        entry.map(&mut self.blocks, (IpFamily::of_net(&cidr), to_number(cidr.network())), &cidr);
        entry.set(&mut self.blocks_by_network, spec.network.clone(), cidr);
        match spec.cooldown_until {
            Some(until) => {
                entry.member(&mut self.cooldown_ends, (until, cidr));
                entry.set(&mut self.cooling_by_node, spec.node.clone(), cidr);
            }
            None => entry.set(&mut self.blocks_by_node, spec.node.clone(), cidr),
        }
    }

    pub(super) fn index_attachment(&mut self, name: &Name, spec: &AttachmentSpec, entry: Entry) {
        for address in &spec.addresses {
            entry.map(&mut self.attachments_by_address, *address, name);
        }
        entry.set(&mut self.attachments_by_node, spec.node.clone(), name.clone());
        entry.set(&mut self.attachments_by_workload, spec.workload.clone(), name.clone());
    }

    pub(super) fn index_workload(&mut self, key: &WorkloadKey, spec: &WorkloadSpec, entry: Entry) {
        if let Some(node) = spec.node.as_ref().filter(|_| spec.interface.is_some()) {
            entry.set(&mut self.declared_by_node, node.clone(), key.clone());
        }
    }
}

impl Snapshot {
    /// Returns the spec of a WorkloadNetwork, or `None` if it does not exist.
    #[must_use]
    pub fn workload_network(&self, name: &Name) -> Option<&WorkloadNetworkSpec> {
        let key = ObjectKey { kind: Kind::WorkloadNetwork, namespace: None, name: name.clone() };
        self.objects.get(&key)?.as_workload_network()
    }

    /// Returns the networks of all WorkloadNetworks, each with the name of its WorkloadNetwork.
    pub fn network_cidrs(&self) -> impl Iterator<Item = (&IpNet, &Name)> {
        self.networks.cidrs.iter()
    }

    /// Returns a network of a WorkloadNetwork that overlaps `net`, with the name of the WorkloadNetwork; `None` if there
    /// is none.
    #[must_use]
    pub fn workload_network_overlapping(&self, net: &IpNet) -> Option<(&IpNet, &Name)> {
        self.network_cidrs().find(|(cidr, _)| overlaps(cidr, net))
    }

    /// Returns the record of a block, or `None` if it is free.
    #[must_use]
    pub fn block(&self, cidr: &IpNet) -> Option<&BlockSpec> {
        self.objects.get(&block_key(cidr))?.as_block()
    }

    /// Returns the record of the block that contains an address, held or in cooldown; `None` if there is none.
    #[must_use]
    pub fn block_with(&self, address: IpAddr) -> Option<&BlockSpec> {
        let number = to_number(address);
        self.block(&self.block_overlapping(IpFamily::of(address), number, number)?)
    }

    /// Returns the last block, held or in cooldown, with an address from `first` to `last`, given as integers; `None` if
    /// there is none.
    #[must_use]
    pub fn block_overlapping(&self, family: IpFamily, first: u128, last: u128) -> Option<IpNet> {
        let ((found, _), cidr) = self.networks.blocks.get_prev(&(family, last))?;
        (*found == family && to_number(cidr.broadcast()) >= first).then_some(*cidr)
    }

    /// Returns the blocks that a Node has.
    pub fn blocks_of<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a IpNet> + 'a {
        self.networks.blocks_by_node.get(node).into_iter().flatten()
    }

    /// Returns the blocks in cooldown that a Node had before.
    pub(crate) fn cooling_of<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a IpNet> + 'a {
        self.networks.cooling_by_node.get(node).into_iter().flatten()
    }

    /// Returns the time at which the next cooldown of a block ends, if any.
    #[must_use]
    pub fn next_cooldown_end(&self) -> Option<Timestamp> {
        self.networks.cooldown_ends.get_min().map(|(until, _)| *until)
    }

    /// Returns the blocks whose cooldown has ended at `now`, the earliest first.
    pub(crate) fn cooldowns_ended(&self, now: Timestamp) -> impl Iterator<Item = IpNet> + '_ {
        let ends = self.networks.cooldown_ends.iter();
        ends.take_while(move |(until, _)| *until <= now).map(|(_, cidr)| *cidr)
    }

    /// Returns the blocks of a WorkloadNetwork, held and in cooldown.
    pub fn blocks_in<'a>(&'a self, network: &Name) -> impl Iterator<Item = &'a IpNet> + 'a {
        self.networks.blocks_by_network.get(network).into_iter().flatten()
    }

    /// Returns the number of blocks of a WorkloadNetwork, held and in cooldown.
    #[must_use]
    pub fn block_count(&self, network: &Name) -> usize {
        self.networks.blocks_by_network.get(network).map_or(0, NonEmptySet::len)
    }

    /// Returns the pairs of a WorkloadNetwork and a Node that it selects, but that has no block of one of its IP families.
    /// Nodes that are lost are included.
    pub fn lacking_blocks(&self) -> impl Iterator<Item = &(Name, Name)> {
        self.networks.lacking.iter()
    }

    /// Returns the number of pairs of [`Self::lacking_blocks`].
    #[must_use]
    pub fn lacking_block_count(&self) -> usize {
        self.networks.lacking.len()
    }

    /// Updates the Nodes that lack a block after the insertion or removal of an object.
    pub(super) fn update_lacking(&mut self, object: &Object) {
        let name = &object.metadata.name;
        let names = |kind| {
            let objects = self.list(kind, None, None);
            objects.map(|object| object.metadata.name.clone()).collect::<Vec<_>>()
        };
        if let Spec::Block(block) = &object.spec {
            self.update_lacking_pair(&block.network, &block.node);
        } else if object.as_node().is_some() {
            names(Kind::WorkloadNetwork).iter().for_each(|network| self.update_lacking_pair(network, name));
        } else if object.as_workload_network().is_some() {
            names(Kind::Node).iter().for_each(|node| self.update_lacking_pair(name, node));
        }
    }

    fn update_lacking_pair(&mut self, network: &Name, node: &Name) {
        let pair = (network.clone(), node.clone());
        if self.lacks_block(network, node) {
            self.networks.lacking.insert(pair);
        } else {
            self.networks.lacking.remove(&pair);
        }
    }

    /// True if a network selects a Node that has no block of one of the IP families of the network.
    fn lacks_block(&self, network: &Name, node: &Name) -> bool {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
        let (Some(spec), Some(object)) = (self.workload_network(network), self.objects.get(&key)) else {
            return false;
        };
        let has_block = |family| {
            let mut blocks = self.blocks_of(node).filter(|cidr| IpFamily::of_net(cidr) == family);
            blocks.any(|cidr| {
                self.block(cidr).is_some_and(|block| block.network == *network && !block.draining)
            })
        };
        Selector::any_matches(&spec.node_selectors, &object.metadata.labels)
            && spec.families().any(|family| !has_block(family))
    }

    /// Returns the Attachment that has an address, or `None` if no Attachment has it.
    #[must_use]
    pub fn attachment_with(&self, address: IpAddr) -> Option<&Name> {
        self.networks.attachments_by_address.get(&address)
    }

    /// Returns the addresses of Attachments in a network.
    pub fn attached_in(&self, cidr: &IpNet) -> impl Iterator<Item = IpAddr> + '_ {
        self.networks.attachments_by_address.range(cidr.network()..=cidr.broadcast()).map(|(ip, _)| *ip)
    }

    /// Returns the Attachments of a Node.
    pub fn attachments_of_node<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a Object> + 'a {
        let names = self.networks.attachments_by_node.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachment(name))
    }

    /// Returns the number of Attachments of a Node.
    #[must_use]
    pub fn attachment_count(&self, node: &Name) -> usize {
        self.networks.attachments_by_node.get(node).map_or(0, NonEmptySet::len)
    }

    /// Returns the Attachments of a Workload.
    pub fn attachments_of_workload<'a>(
        &'a self,
        workload: &WorkloadKey,
    ) -> impl Iterator<Item = &'a Object> + 'a {
        let names = self.networks.attachments_by_workload.get(workload).into_iter().flatten();
        names.filter_map(|name| self.attachment(name))
    }

    /// Returns the Workloads that declare an interface of a Node.
    pub fn declared_on<'a>(&'a self, node: &Name) -> impl Iterator<Item = &'a WorkloadKey> + 'a {
        self.networks.declared_by_node.get(node).into_iter().flatten()
    }

    fn attachment(&self, name: &Name) -> Option<&Object> {
        let key = ObjectKey { kind: Kind::Attachment, namespace: None, name: name.clone() };
        self.objects.get(&key).map(|object| &**object)
    }
}
