//! What a change would do on a node: the difference of the kernel's listings, and of what is announced.
//!
//! Control asks each node (`ask`), because only the node knows its kernel; what comes back is computed by the very
//! functions that would carry it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::{change::Action, compiled::CompiledService, history::FieldChange},
    kinds::resource::ServiceKey,
    primitives::{
        name::Name,
        quantity::{Position, Timestamp},
    },
    wire::feed::{AddressState, NetworkState, NodeState},
};

/// Lines of one node that a plan lists; further ones are counted.
pub const PLAN_LINES_MAX: usize = 10_000;
/// Failures, and resets of sessions, of one node that a plan lists.
pub const PREVIEW_WORDS_MAX: usize = 1024;

/// A state that may come: what differs from the one that the node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// Services that are new or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<CompiledService>)]
    pub services: Vec<Arc<CompiledService>>,
    /// Services that would be gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub removed: BTreeSet<ServiceKey>,
    /// Load balancer addresses that are new or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<AddressState>)]
    pub addresses: Vec<Arc<AddressState>>,
    /// Load balancer addresses that would be gone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub addresses_removed: BTreeSet<IpAddr>,
    /// The network, where it would differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkState>,
    /// The settings of the node, where they would differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeState>,
}

/// Two states that may come, each as what differs from the one that the node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The one.
    pub from: Proposal,
    /// The other.
    pub to: Proposal,
}

/// What a proposal would do on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Preview {
    /// The lines of the kernel's listings that go and come.
    #[serde(default)]
    #[schema(max_items = 10000)]
    pub kernel: Vec<LineChange>,
    /// What is announced, and to whom, that goes and comes.
    #[serde(default)]
    #[schema(max_items = 10000)]
    pub announcements: Vec<LineChange>,
    /// Lines that are not listed, for want of room.
    #[serde(default)]
    pub omitted: u64,
    /// BGP sessions that would begin anew, each with the reason.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub session_resets: Vec<String>,
    /// Established connections that would be cut or moved, where the node can tell.
    #[serde(default)]
    pub connections_at_risk: Option<u64>,
    /// What could not be carried out, in words.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub failures: Vec<String>,
}

/// A line of a listing that would go or come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LineChange {
    /// Whether it comes or goes.
    pub change: LineFate,
    /// Where it is listed: a table and map, a chain, a set, an interface; such as `map inet tidegate services4`.
    #[schema(max_length = 256)]
    pub place: String,
    /// The line, as the tool of the kernel's part prints it.
    #[schema(max_length = 65536)]
    pub line: String,
}

/// What would happen to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LineFate {
    /// It would go.
    Removed,
    /// It would come.
    Added,
}

/// What a write would do: to the objects, to who announces which address, and on every node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Its id, by which it can be applied.
    #[schema(max_length = 64)]
    pub id: String,
    /// The state that it was made on.
    pub position: Position,
    /// When it is forgotten.
    pub expires: Timestamp,
    /// The objects that would be created, updated, deleted or pruned. Objects that are so already are left out.
    pub objects: Vec<ObjectPlan>,
    /// The load balancer addresses that would come, go, or be answered for by other nodes.
    pub addresses: Vec<AddressPlan>,
    /// What a guard would hold until it is confirmed, in words. To apply the plan is to confirm it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub guards: Vec<String>,
    /// What would happen on each node, or why that is not known.
    pub nodes: BTreeMap<Name, NodePlan>,
}

/// What would become of one object.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// The object, as kind and name.
    pub object: String,
    /// What would happen to it.
    pub action: Action,
    /// The fields that would differ. Secrets are never among them.
    pub fields: Vec<FieldChange>,
    /// Fields that would differ and are not listed, for want of room.
    pub omitted: usize,
}

/// What would become of one load balancer address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPlan {
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// As it is; left out when nobody has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<AddressUse>,
    /// As it would be; left out when nobody would have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AddressUse>,
}

/// Who has a load balancer address, and who answers for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressUse {
    /// The Services that have it.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// The nodes that answer for it by ARP or NDP: the owner, then those that stand by.
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<Name>,
    /// The Advertisements by which routers are told of it.
    #[schema(value_type = Vec<String>)]
    pub advertisements: BTreeSet<Name>,
}

/// What would happen on one node: `preview` or `error`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// What its agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Proposal {
    /// Whether a node has nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { services, removed, addresses, addresses_removed, network, node } = self;
        services.is_empty()
            && removed.is_empty()
            && addresses.is_empty()
            && addresses_removed.is_empty()
            && network.is_none()
            && node.is_none()
    }
}

/// What leads from where some changes lead to where others lead that begin at the same listing. A listing may have a line
/// more than once.
#[must_use]
pub fn lines_between(from: &[LineChange], to: &[LineChange]) -> Vec<LineChange> {
    let mut counts: BTreeMap<(&str, &str), isize> = BTreeMap::new();
    for (changes, sign) in [(from, -1), (to, 1)] {
        for LineChange { change, place, line } in changes {
            *counts.entry((place, line)).or_default() += match change {
                LineFate::Added => sign,
                LineFate::Removed => -sign,
            };
        }
    }
    let lines = counts.into_iter().flat_map(|((place, line), count)| {
        let change = if count > 0 { LineFate::Added } else { LineFate::Removed };
        let line = LineChange { change, place: place.to_owned(), line: line.to_owned() };
        std::iter::repeat_n(line, count.unsigned_abs())
    });
    lines.collect()
}

impl AddressUse {
    /// Of an address as nodes know it.
    #[must_use]
    pub fn of(state: &AddressState) -> Self {
        let AddressState { address: _, revision: _, services, announcement } = state;
        Self {
            services: services.clone(),
            nodes: announcement.candidates.iter().map(|candidate| candidate.node.clone()).collect(),
            advertisements: announcement.advertisements.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(lines: &[&str]) -> Vec<LineChange> {
        let line = |text: &&str| {
            let (sign, line) = text.split_at(1);
            let change = if sign == "+" { LineFate::Added } else { LineFate::Removed };
            LineChange { change, place: "set x".to_owned(), line: line.to_owned() }
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn what_both_do_is_left_out_and_what_only_the_first_does_is_undone() {
        let between = |from: &[&str], to: &[&str]| lines_between(&changes(from), &changes(to));
        assert_eq!(between(&["+a", "-b"], &["+a", "-b"]), []);
        assert_eq!(between(&["+a", "-b"], &["+c"]), changes(&["-a", "+b", "+c"]));
        assert_eq!(between(&[], &["+a", "+a"]), changes(&["+a", "+a"]));
        assert_eq!(between(&["+a", "+a"], &["+a"]), changes(&["-a"]), "a line may be there twice");
        assert_eq!(between(&["-a"], &["+a"]), changes(&["+a", "+a"]));
    }
}
