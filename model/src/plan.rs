//! What a change would do on a node: the difference of the kernel's listings, and of what is announced.
//!
//! Control asks each node (`ask`), because only the node knows its kernel; what comes back is computed by the very
//! functions that would carry it out.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    compiled::CompiledService,
    feed::{AddressState, NetworkState, NodeState},
    resource::ServiceKey,
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
