//! Preview of a write: the changes that the write would make to objects, to announcements of addresses, and
//! to the kernel objects of each node.
//!
//! The control server queries each node ([`super::ask`]), because only the node has access to its kernel. The
//! node computes the preview by the same functions by which it would apply the write.

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

/// Maximum number of changed lines that a plan lists for one node; further lines are only counted.
pub const PLAN_LINES_MAX: usize = 10_000;
/// Maximum number of failures, and of BGP session resets, listed for one node in a plan.
pub const PREVIEW_WORDS_MAX: usize = 1024;

/// Proposed state of a node, as the difference from its present state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// Services that would be created or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<CompiledService>)]
    pub services: Vec<Arc<CompiledService>>,
    /// Services that would be removed, as `namespace/name`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub removed: BTreeSet<ServiceKey>,
    /// Load balancer addresses that would be assigned or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<AddressState>)]
    pub addresses: Vec<Arc<AddressState>>,
    /// Load balancer addresses that would be removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub addresses_removed: BTreeSet<IpAddr>,
    /// New cluster-wide data. Absent if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkState>,
    /// New settings of the node. Absent if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeState>,
}

/// Two proposed states of a node, each as the difference from its present state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// First proposed state: the reply contains the changes from this state to `to`.
    pub from: Proposal,
    /// Second proposed state, to which the changes in the reply lead.
    pub to: Proposal,
}

/// Effect of a proposed state on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Preview {
    /// Lines that would be added to or removed from the listings of kernel objects, at most 10,000.
    #[serde(default)]
    #[schema(max_items = 10000)]
    pub kernel: Vec<LineChange>,
    /// Lines that would be added to or removed from the list of announcements by ARP, NDP and BGP, at most
    /// 10,000.
    #[serde(default)]
    #[schema(max_items = 10000)]
    pub announcements: Vec<LineChange>,
    /// Number of further changed lines, which are not listed because of the limits.
    #[serde(default)]
    pub omitted: u64,
    /// BGP sessions that would be reset, each with the reason, at most 1024.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub session_resets: Vec<String>,
    /// Number of established connections that would be closed or moved to another endpoint. `null` if the
    /// node cannot determine the number.
    #[serde(default)]
    pub connections_at_risk: Option<u64>,
    /// Changes that the node could not program, such as Services with unsupported settings, with the reason,
    /// at most 1024.
    #[serde(default)]
    #[schema(max_items = 1024)]
    pub failures: Vec<String>,
}

/// Line that would be added to or removed from a listing of the kernel or of the announcements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LineChange {
    /// Type of the change: `added` or `removed`.
    pub change: LineFate,
    /// Location of the line, at most 256 bytes: a table and map, a chain, a set or an interface, such as
    /// `map inet tidegate services4`.
    #[schema(max_length = 256)]
    pub place: String,
    /// Text of the line in the format of the tool of that kernel subsystem, such as `nft`, at most 65,536 bytes.
    #[schema(max_length = 65536)]
    pub line: String,
}

/// Type of the change of a line: `removed` or `added`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LineFate {
    /// The line would be removed.
    Removed,
    /// The line would be added.
    Added,
}

/// Plan: preview of the effect that a write would have on objects, on announcements and on every node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Id by which the plan can be applied, at most 64 bytes.
    #[schema(max_length = 64)]
    pub id: String,
    /// Position (epoch and revision) of the state on which the plan is based.
    pub position: Position,
    /// Time at which the server discards the plan (RFC 3339, UTC).
    pub expires: Timestamp,
    /// Objects that would be created, updated, deleted or pruned. Unchanged objects are absent.
    pub objects: Vec<ObjectPlan>,
    /// Load balancer addresses that would be assigned, released, or announced by different nodes.
    pub addresses: Vec<AddressPlan>,
    /// Messages about limits on large removals that the write exceeds. To apply the plan is to confirm these
    /// removals. Absent if no limit is exceeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub guards: Vec<String>,
    /// Preview of each node by name, or the reason why no preview is available.
    pub nodes: BTreeMap<Name, NodePlan>,
}

/// Effect of a plan on one object.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// Kind and name of the object, such as `Service default/web`.
    pub object: String,
    /// Type of the change: `created`, `updated`, `unchanged`, `deleted` or `pruned`.
    pub action: Action,
    /// Changed fields. Secrets are never included.
    pub fields: Vec<FieldChange>,
    /// Number of further changed fields, which are not listed because there are too many.
    pub omitted: usize,
}

/// Effect of a plan on one load balancer address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPlan {
    /// Load balancer address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Present use of the address. Absent if no Service uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<AddressUse>,
    /// Use of the address after the write. Absent if no Service would use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AddressUse>,
}

/// Services and announcing nodes of a load balancer address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressUse {
    /// Services with the address, as `namespace/name`.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Names of the nodes that announce the address by ARP or NDP: the owner, then the standbys.
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<Name>,
    /// Names of the Advertisements that announce the address by BGP.
    #[schema(value_type = Vec<String>)]
    pub advertisements: BTreeSet<Name>,
}

/// Effect of a plan on one node: either `preview`, or `error` if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// Preview computed by the agent. Absent if it is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Reason why no preview is available. Absent if there is a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Proposal {
    /// True if the proposal contains no changes.
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

/// Returns the line changes that lead from one proposed state to another. `from` and `to` are the line
/// changes that lead from the present listing to each of the two states. A line may occur several times in a
/// listing.
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
    /// Creates the use of an address from [`AddressState`], the data that nodes receive.
    #[must_use]
    pub fn of(state: &AddressState) -> Self {
        let AddressState { address: _, revision: _, services, announcement, peer_public_keys: _ } = state;
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
