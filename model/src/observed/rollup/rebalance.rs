//! Plan that spreads load balancer addresses evenly over the nodes that may announce them.
//!
//! After failures, addresses stay on the nodes that took them over. The plan names the moves that restore an even
//! distribution, and changes nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AddressStanding, AnnouncementInputs, address_standing, saturating};
use crate::{
    kinds::{
        address::AddressSpec,
        resource::{Kind, ServiceKey},
    },
    observed::assign::{Eligibility, EligibleNode, evaluate, rendezvous},
    primitives::name::Name,
};

/// Maximum number of moves in one plan. Moves are carried out one after the other, so a longer plan would be outdated
/// before its end.
pub const PLANNED_MOVES_MAX: usize = 200;
/// Smallest difference between the numbers of addresses of two nodes that a move reduces.
const DIFFERENCE_MIN: usize = 2;

/// Moves of addresses that restore an even distribution over the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebalancePlan {
    /// Moves in the order in which they are to be carried out, at most 200.
    #[schema(max_items = 200)]
    pub moves: Vec<PlannedMove>,
    /// Number of addresses of each node before and after the moves, ordered by name.
    pub nodes: Vec<NodeLoad>,
    /// Number of addresses that stay because they are not settled: the recorded owner does not announce them, or
    /// another machine announces them as well.
    pub unsettled: u64,
}

/// Planned move of an address from its owner to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// Load balancer address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Services with this address.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Node that announces the address at present.
    #[schema(value_type = String)]
    pub from: Name,
    /// Node that would announce the address.
    #[schema(value_type = String)]
    pub to: Name,
}

/// Number of addresses of which a node is the first candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLoad {
    /// Name of the Node.
    #[schema(value_type = String)]
    pub node: Name,
    /// Number of addresses at present.
    pub addresses: u64,
    /// Number of addresses after all moves of the plan.
    pub after: u64,
}

/// Address that may move.
struct Movable<'a> {
    record: &'a AddressSpec,
    owner: Name,
    /// Nodes with the highest weight among those that may announce the address, preferred ones first.
    choices: Vec<Name>,
}

/// Plans moves after which the numbers of addresses of the nodes differ as little as possible. Each address moves at
/// most once, and only if its recorded owner announces it. As for a new address, only the nodes with the highest weight
/// of `preferredNodeSelectors` are considered; an address on another node moves to one of them.
#[must_use]
pub fn rebalance(of: &AnnouncementInputs<'_>) -> RebalancePlan {
    let records = of.scene.snapshot.list(Kind::Address, None, None);
    let (mut movable, mut unsettled) = (Vec::new(), 0);
    let mut before: BTreeMap<Name, usize> =
        of.scene.nodes.iter().filter(|view| view.is_connected).map(|view| (view.name.clone(), 0)).collect();
    for record in records.filter_map(|object| object.as_address()) {
        let Some(owner) = record.announcement.candidates.first().map(|first| &first.node) else { continue };
        *before.entry(owner.clone()).or_insert(0) += 1;
        match choices(of, record, owner) {
            Some(choices) => movable.push(Movable { record, owner: owner.clone(), choices }),
            None => unsettled += 1,
        }
    }
    let mut after = before.clone();
    let moves = spread(movable, &mut after);
    let load = |(node, count): (Name, usize)| {
        let after = saturating(after.get(&node).copied().unwrap_or(0)).into();
        NodeLoad { node, addresses: saturating(count).into(), after }
    };
    RebalancePlan { moves, nodes: before.into_iter().map(load).collect(), unsettled }
}

/// Returns the nodes to which a settled address may move, including its owner; `None` if the address is not settled.
fn choices(of: &AnnouncementInputs<'_>, record: &AddressSpec, owner: &Name) -> Option<Vec<Name>> {
    if address_standing(of, record) != (AddressStanding::Announced, Some(owner)) {
        return None;
    }
    let evaluation = evaluate(&of.scene, record.address)?;
    let fits: Vec<&EligibleNode> = evaluation
        .nodes
        .iter()
        .filter_map(|(_, eligibility)| match eligibility {
            Eligibility::Eligible(fit) => Some(fit),
            Eligibility::NotReady { .. } | Eligibility::Ineligible(_) => None,
        })
        .collect();
    if fits.iter().all(|fit| fit.candidate.node != *owner) {
        return None;
    }
    let highest = fits.iter().map(|fit| fit.weight).max()?;
    let mut choices: Vec<Name> =
        fits.into_iter().filter(|fit| fit.weight == highest).map(|fit| fit.candidate.node.clone()).collect();
    choices.sort_by_cached_key(|node| Reverse(rendezvous(record.address, node)));
    Some(choices)
}

/// Selects the moves one by one, each from the node with the most addresses if possible, and counts them.
fn spread(mut movable: Vec<Movable<'_>>, counts: &mut BTreeMap<Name, usize>) -> Vec<PlannedMove> {
    let mut moves = Vec::new();
    while moves.len() < PLANNED_MOVES_MAX {
        let Some((at, to)) = next_move(&movable, counts) else { break };
        let Movable { record, owner, .. } = movable.remove(at);
        if let Some(count) = counts.get_mut(&owner) {
            *count = count.saturating_sub(1);
        }
        *counts.entry(to.clone()).or_insert(0) += 1;
        let services = record.services.clone();
        moves.push(PlannedMove { address: record.address, services, from: owner, to });
    }
    moves
}

/// Returns the place of the address whose move reduces the differences most, and the node that gets it.
fn next_move(movable: &[Movable<'_>], counts: &BTreeMap<Name, usize>) -> Option<(usize, Name)> {
    let count = |node: &Name| counts.get(node).copied().unwrap_or(0);
    let highest = counts.values().max()?;
    let greatest = highest - counts.values().min()?;
    let mut best: Option<(usize, usize, &Name)> = None;
    for (at, one) in movable.iter().enumerate() {
        let Some(to) = one.choices.iter().min_by_key(|node| count(node)) else { continue };
        let difference = if one.choices.contains(&one.owner) {
            count(&one.owner).saturating_sub(count(to))
        } else {
            usize::MAX
        };
        if difference >= DIFFERENCE_MIN && best.is_none_or(|(least, ..)| difference > least) {
            best = Some((difference, at, to));
            if difference >= greatest {
                break;
            }
        }
    }
    best.map(|(_, at, to)| (at, to.clone()))
}
