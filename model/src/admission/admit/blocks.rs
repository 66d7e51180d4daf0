//! Allocation and release of blocks in one write.
//!
//! ```text
//! free ──given──▶ held ──no longer selected──▶ draining ──last Attachment gone──▶ cooling ──cooldown over──▶ free
//!                  │  ◀──────selected again────────┘                                 ▲  │
//!                  └── no longer selected, without Attachments ──────────────────────┘  └── former Node ──▶ held
//! ```
//! Invariants: blocks do not overlap, a block has one Node, a block with an Attachment keeps its Node, and no other Node
//! gets a released block before the end of its cooldown. All decisions follow from the state, the write and the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use super::staged_object::StagedObject;
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        block::{BlockSpec, block_name},
        metadata::Metadata,
        network_keys::block_key,
        resource::{Kind, Object, ObjectKey, Spec},
        selector::Selector,
        workload_network::{BLOCKS_MAX, WorkloadNetworkSpec},
    },
    primitives::{
        name::Name,
        net::{IpFamily, from_number, to_number},
        quantity::Timestamp,
    },
    wire::attachments::WantedBlock,
};

/// Maximum number of blocks that one write gives to Nodes, which limits its size. Nodes that still lack one get it in the
/// next writes of the task that retries allocations.
pub const BLOCKS_GIVEN_MAX: usize = super::OPERATIONS_MAX;
/// Maximum number of ended cooldowns that one write clears.
const COOLDOWNS_CLEARED_MAX: usize = 1024;
/// Time in seconds for which a Node that counts as lost keeps blocks without Attachments: one hour.
pub const BLOCK_GRACE_SECONDS: i64 = 3600;
/// Number of blocks of one network and IP family that an agent may request although its Attachments do not need them:
/// addresses in their cooldown are unknown to the control server.
const BLOCKS_FREE_OF_REASON: u64 = 2;
/// Number of times that the addresses of a Node's blocks may exceed those of its Attachments, if its agent requests more.
const BLOCKS_EXCESS_MAX: u64 = 4;

/// Blocks during one write.
pub(super) struct BlockLedger<'a> {
    before: &'a Snapshot,
    now: Timestamp,
    touched: BTreeSet<IpNet>,
    /// Nodes to review in each network.
    pairs: BTreeSet<(Name, Name)>,
    /// Address below which a network has no free block of a family. Valid in one write, because blocks are released
    /// before others are given.
    floors: BTreeMap<(Name, IpFamily), u128>,
    given: usize,
}

impl<'a> BlockLedger<'a> {
    pub(super) const fn new(before: &'a Snapshot, now: Timestamp) -> Self {
        Self {
            before,
            now,
            touched: BTreeSet::new(),
            pairs: BTreeSet::new(),
            floors: BTreeMap::new(),
            given: 0,
        }
    }

    /// Gives and releases the blocks that a write concerns. `changed` are the keys of the objects that the write changes or
    /// deletes, `attached` the Nodes whose Attachments it changes. `is_timed` is true if the request comes from the task that retries allocations, which
    /// also ends the grace periods of lost Nodes, and gives blocks to the Nodes that an earlier write left without one.
    pub(super) fn settle<'k>(
        &mut self,
        working: &mut Snapshot,
        changed: impl Iterator<Item = &'k ObjectKey>,
        attached: &BTreeSet<Name>,
        wanted: &[(Name, WantedBlock)],
        is_timed: bool,
    ) {
        let reopened = self.clear_ended(working);
        for key in changed {
            match key.kind {
                Kind::WorkloadNetwork => self.review_network(working, &key.name),
                Kind::Node => self.review_node(working, &key.name),
                Kind::AddressPool
                | Kind::BfdProfile
                | Kind::BgpPeer
                | Kind::Advertisement
                | Kind::DnsZone
                | Kind::Certificate
                | Kind::Gateway
                | Kind::HttpRoute
                | Kind::TlsRoute
                | Kind::NetworkPolicy
                | Kind::Workload
                | Kind::Service
                | Kind::EndpointSet
                | Kind::Address
                | Kind::EndpointHealth
                | Kind::Block
                | Kind::Attachment => {}
            }
        }
        attached.iter().for_each(|node| self.review_node(working, node));
        // Other Nodes do not need the blocks that have become free.
        let lacking = working.lacking_blocks().filter(|(network, _)| is_timed || reopened.contains(network));
        self.pairs.extend(lacking.cloned());
        if is_timed {
            for node in lost_for_long(working, self.now) {
                self.review_node(working, &node);
            }
        }
        let pairs = std::mem::take(&mut self.pairs);
        for (network, node) in &pairs {
            self.release(working, network, node);
        }
        for (network, node) in &pairs {
            self.supply(working, network, node);
        }
        for (node, WantedBlock { network, family }) in wanted {
            if is_due(working, network, node, *family) {
                self.give(working, network, node, *family);
            }
        }
    }

    /// Returns the records of blocks that the write has changed, as staged objects.
    pub(super) fn into_staged(self, working: &Snapshot) -> Vec<StagedObject> {
        let changed = self.touched.iter().filter_map(|cidr| {
            let key = block_key(cidr);
            let (old, new) = (self.before.get(&key), working.get(&key));
            if old.is_none() && new.is_none() || old.zip(new).is_some_and(|(old, new)| old.spec == new.spec) {
                return None;
            }
            Some(StagedObject::of_record(key, old.cloned(), new.map(|new| Object::clone(new))))
        });
        changed.collect()
    }

    /// Removes the records of blocks whose cooldown is over. Returns their networks.
    fn clear_ended(&mut self, working: &mut Snapshot) -> BTreeSet<Name> {
        let ended: Vec<_> = working.cooldowns_ended(self.now).take(COOLDOWNS_CLEARED_MAX).collect();
        let mut networks = BTreeSet::new();
        for cidr in ended {
            networks.extend(working.block(&cidr).map(|block| block.network.clone()));
            working.remove(&block_key(&cidr));
            self.touched.insert(cidr);
        }
        networks
    }

    fn review_network(&mut self, working: &Snapshot, network: &Name) {
        let nodes = working.list(Kind::Node, None, None).map(|node| node.metadata.name.clone());
        let holders = working.blocks_in(network).filter_map(|cidr| Some(working.block(cidr)?.node.clone()));
        self.pairs.extend(nodes.chain(holders).map(|node| (network.clone(), node)));
    }

    fn review_node(&mut self, working: &Snapshot, node: &Name) {
        let networks = working.list(Kind::WorkloadNetwork, None, None).map(|one| one.metadata.name.clone());
        let held = working.blocks_of(node).filter_map(|cidr| Some(working.block(cidr)?.network.clone()));
        self.pairs.extend(networks.chain(held).map(|network| (network, node.clone())));
    }

    /// Releases or drains the blocks of a Node that the network no longer selects, and ends the drain of the others.
    fn release(&mut self, working: &mut Snapshot, network: &Name, node: &Name) {
        let spec = working.workload_network(network).cloned();
        let is_selected = spec.as_ref().is_some_and(|spec| selects(working, spec, node, self.now));
        let is_lost = working.is_lost(node);
        let blocks: Vec<_> = working.blocks_of(node).copied().collect();
        for cidr in blocks {
            let Some(block) = working.block(&cidr).filter(|block| block.network == *network).cloned() else {
                continue;
            };
            let is_inside =
                spec.as_ref().is_some_and(|spec| spec.cidrs.iter().any(|one| one.contains(&cidr)));
            let has_attachments = working.attached_in(&cidr).next().is_some();
            if is_selected && is_inside {
                self.put(working, BlockSpec { draining: false, ..block });
            } else if has_attachments {
                // The Attachments of a lost Node may still exist, and a Node that returns goes on with its blocks.
                let draining = block.draining || !is_lost;
                self.put(working, BlockSpec { draining, ..block });
            } else {
                // The cooldown of a deleted network is that of its last state.
                let old = self.before.workload_network(network);
                let seconds = spec.as_ref().or(old).map_or(0, |spec| spec.cooldown_seconds);
                let until = Timestamp::from_unix_seconds(self.now.unix_seconds() + i64::from(seconds));
                let released = BlockSpec { draining: false, cooldown_until: Some(until), ..block };
                self.put(working, released);
            }
        }
    }

    /// Gives a Node a block of each IP family of which it has none, if the network selects the Node.
    fn supply(&mut self, working: &mut Snapshot, network: &Name, node: &Name) {
        let Some(spec) = working.workload_network(network) else { return };
        if !selects(working, spec, node, self.now) {
            return;
        }
        let families: Vec<_> = spec.families().collect();
        for family in families {
            let has_one = held(working, network, node, family).any(|block| !block.draining);
            if !has_one {
                self.give(working, network, node, family);
            }
        }
    }

    /// Gives a Node a block of a network: one that it had before, or the first free one. None if there is none.
    fn give(&mut self, working: &mut Snapshot, network: &Name, node: &Name, family: IpFamily) {
        if self.given >= BLOCKS_GIVEN_MAX {
            return;
        }
        let Some(spec) = working.workload_network(network) else { return };
        let floor = self.floors.get(&(network.clone(), family)).copied().unwrap_or_default();
        let former = former_block(working, spec, network, node, family);
        let has_room = working.block_count(network) < BLOCKS_MAX;
        let free = || if has_room { free_block(working, spec, family, floor) } else { None };
        let Some(cidr) = former.or_else(free) else {
            // The other Nodes of this write need not search either.
            self.floors.insert((network.clone(), family), u128::MAX);
            return;
        };
        if former.is_none() {
            self.floors.insert((network.clone(), family), to_number(cidr.broadcast()));
        }
        self.given += 1;
        let block = BlockSpec {
            network: network.clone(),
            cidr,
            node: node.clone(),
            since: self.now,
            draining: false,
            cooldown_until: None,
        };
        self.put(working, block);
    }

    fn put(&mut self, working: &mut Snapshot, block: BlockSpec) {
        let cidr = block.cidr;
        let key = block_key(&cidr);
        let metadata = working.get(&key).or_else(|| self.before.get(&key));
        let metadata =
            metadata.map_or_else(|| Metadata::named(block_name(&cidr), None), |known| known.metadata.clone());
        working.put(Arc::new(Object { metadata, spec: Spec::Block(block) }));
        self.touched.insert(cidr);
    }
}

/// True if a network selects a Node, which exists and has not been lost for longer than the grace period.
fn selects(working: &Snapshot, spec: &WorkloadNetworkSpec, node: &Name, now: Timestamp) -> bool {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    working.get(&key).is_some_and(|object| {
        let lost_since = object.as_node().and_then(|node| node.lost_since);
        let is_gone = lost_since.is_some_and(|since| has_passed(since, now));
        !is_gone && Selector::any_matches(&spec.node_selectors, &object.metadata.labels)
    })
}

fn has_passed(since: Timestamp, now: Timestamp) -> bool {
    since.unix_seconds().saturating_add(BLOCK_GRACE_SECONDS) <= now.unix_seconds()
}

/// Returns the lost Nodes whose grace period is over and that have a block without an Attachment.
fn lost_for_long(working: &Snapshot, now: Timestamp) -> Vec<Name> {
    let lost = working.lost_nodes().filter(|(node, since)| {
        has_passed(*since, now)
            && working.blocks_of(node).any(|cidr| working.attached_in(cidr).next().is_none())
    });
    lost.map(|(node, _)| node.clone()).collect()
}

/// Returns the time of the next change of blocks that no write causes: the end of a cooldown, or of the grace period of a
/// lost Node with a block that no Attachment uses. `None` if there is none.
#[must_use]
pub fn next_block_change(snapshot: &Snapshot) -> Option<Timestamp> {
    let graces = snapshot
        .lost_nodes()
        .filter(|(node, _)| snapshot.blocks_of(node).any(|cidr| snapshot.attached_in(cidr).next().is_none()))
        .map(|(_, since)| {
            Timestamp::from_unix_seconds(since.unix_seconds().saturating_add(BLOCK_GRACE_SECONDS))
        });
    graces.chain(snapshot.next_cooldown_end()).min()
}

/// True if a Node may get one more block of a network and family on the request of its agent: it has few, or its
/// Attachments need a considerable part of those that it has.
fn is_due(working: &Snapshot, network: &Name, node: &Name, family: IpFamily) -> bool {
    let (mut blocks, mut addresses, mut attached) = (0_u64, 0_u64, 0_u64);
    for block in held(working, network, node, family).filter(|block| !block.draining) {
        let host_bits = block.cidr.max_prefix_len() - block.cidr.prefix_len();
        blocks += 1;
        addresses += 1_u64.checked_shl(host_bits.into()).unwrap_or(u64::MAX);
        attached += u64::try_from(working.attached_in(&block.cidr).count()).unwrap_or(u64::MAX);
    }
    (1..BLOCKS_FREE_OF_REASON).contains(&blocks)
        || blocks > 0 && addresses < attached.saturating_mul(BLOCKS_EXCESS_MAX)
}

/// Returns the blocks of a network and family that a Node has.
fn held<'a>(
    working: &'a Snapshot,
    network: &'a Name,
    node: &Name,
    family: IpFamily,
) -> impl Iterator<Item = &'a BlockSpec> + 'a {
    let blocks = working.blocks_of(node).filter(move |cidr| IpFamily::of_net(cidr) == family);
    blocks.filter_map(|cidr| working.block(cidr)).filter(move |block| block.network == *network)
}

/// Returns the first block in cooldown that the Node had before and that is still one of the network.
fn former_block(
    working: &Snapshot,
    spec: &WorkloadNetworkSpec,
    network: &Name,
    node: &Name,
    family: IpFamily,
) -> Option<IpNet> {
    let blocks = working.cooling_of(node).filter_map(|cidr| working.block(cidr));
    let mut usable = blocks.filter(|block| {
        block.network == *network
            && IpFamily::of_net(&block.cidr) == family
            && spec.cidrs.iter().any(|cidr| cidr.contains(&block.cidr))
            && !spec.reserves_all_of(&block.cidr)
    });
    usable.next().map(|block| block.cidr)
}

/// Returns the lowest free block of a network and family that begins at or above the address `floor`, given as an
/// integer; `None` if there is none.
fn free_block(
    working: &Snapshot,
    spec: &WorkloadNetworkSpec,
    family: IpFamily,
    floor: u128,
) -> Option<IpNet> {
    let size = spec.block_size.of(family);
    let length = 1_u128 << (family.bits() - size);
    let mut cidrs: Vec<_> = spec.cidrs.iter().filter(|cidr| IpFamily::of_net(cidr) == family).collect();
    cidrs.sort();
    for cidr in cidrs {
        let (first, end) = (to_number(cidr.network()), to_number(cidr.broadcast()));
        let mut next = align(first.max(floor), length);
        while let Some((at, last)) = next.and_then(|at| Some((at, at.checked_add(length - 1)?))) {
            if last > end {
                break;
            }
            if let Some(taken) = working.block_overlapping(family, at, last) {
                next = to_number(taken.broadcast()).checked_add(1).and_then(|free| align(free, length));
                continue;
            }
            let block = IpNet::new(from_number(family, at)?, size).ok()?;
            let reserved = spec
                .reserved
                .iter()
                .find(|range| range.contains(block.network()) && range.contains(block.broadcast()));
            let Some(reserved) = reserved else { return Some(block) };
            // Blocks that begin in the rest of the range are skipped, if they end in it too.
            let past = to_number(reserved.last()).checked_add(1);
            next = past.map(|past| past - past % length).filter(|past| *past > at).or(last.checked_add(1));
        }
    }
    None
}

/// Returns the lowest multiple of `length` that is at least `number`, or `None` if it is too large.
fn align(number: u128, length: u128) -> Option<u128> {
    number.checked_next_multiple_of(length)
}
