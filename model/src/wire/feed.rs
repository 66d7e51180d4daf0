//! What control tells an agent: one JSON object per line (NDJSON) on `GET /v1/nodes/{node}/state`.
//!
//! ```text
//! start(full)  ─▶ network, node, service* ─▶ synced ─▶ { (service | removed | network | node)* ─▶ synced | heartbeat }*
//! start(delta) ─▶ the same, from the position that the agent named
//! ```
//! Nothing between two `synced` frames may take effect before the second: only there is the state consistent. The file
//! in which an agent keeps its last good state is a recording of such a stream.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::settings::BgpState,
    cluster::compiled::CompiledService,
    kinds::{
        address::Announcement,
        node::{ProxyMode, ProxyOptions},
        resource::ServiceKey,
    },
    primitives::{
        name::{Label, Name},
        quantity::{Position, Revision},
        secret::Secret,
    },
    wire::ask::{AskId, Question},
};

/// One line of the feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Frame {
    /// The first line.
    Start {
        /// Whether the complete state follows, or only what changed since the agent's position.
        mode: StartMode,
        /// What the following `synced` will reach at least.
        position: Position,
    },
    /// Facts about the whole cluster.
    Network(NetworkState),
    /// The settings of this node.
    Node(NodeState),
    /// A Service that is new or changed.
    Service {
        /// Its whole compiled form.
        #[schema(value_type = CompiledService)]
        service: Arc<CompiledService>,
    },
    /// A Service that is gone, or that no node has to program.
    Removed {
        /// Which one.
        service: ServiceKey,
        /// The revision that removed it.
        revision: Revision,
    },
    /// A load balancer address that is new or changed.
    Address {
        /// Who has it, and who answers for it.
        #[schema(value_type = AddressState)]
        address: Arc<AddressState>,
    },
    /// A load balancer address that no Service has any longer.
    AddressRemoved {
        /// Which one.
        #[schema(value_type = String)]
        address: IpAddr,
        /// The revision that removed it.
        revision: Revision,
    },
    /// A question, to be answered at `PUT /v1/nodes/{node}/answers/{id}`. It is no part of the state.
    Ask {
        /// Which question.
        id: AskId,
        /// What is asked.
        question: Question,
    },
    /// Everything up to this position has been sent.
    Synced {
        /// The position, to be named as `resume` after a cut.
        position: Position,
    },
    /// Nothing happened; sent so that both sides know that the other is there.
    Heartbeat {
        /// The position reached.
        position: Position,
    },
}

/// What follows the first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum StartMode {
    /// The complete state: what is not sent before the next `synced` does not exist.
    Full,
    /// What changed since the position that the agent named.
    Delta,
}

/// Facts about the whole cluster that every node's rules depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkState {
    /// The workload networks of all Nodes.
    #[serde(default, rename = "workloadCIDRs")]
    #[schema(value_type = Vec<String>)]
    pub workload_cidrs: BTreeSet<IpNet>,
    /// The key with which nodes authenticate to each other when they watch who lives (BFD, RFC 5880 §6.7); base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer_key: Option<Secret>,
    /// The Nodes that check endpoints which have none of their own: those with an agent that lives.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub checkers: BTreeSet<Name>,
}

/// A load balancer address as nodes need to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressState {
    /// The address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The revision whose change made this form.
    pub revision: Revision,
    /// The Services that have it; it is announced only where all of them are programmed.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Who answers for it.
    pub announcement: Announcement,
}

/// The settings of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// How to program the kernel; the agent's own choice when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// The failure zone of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Options of the proxy.
    #[serde(default)]
    pub proxy: ProxyOptions,
    /// Its BGP; nothing where it has no peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<Box<BgpState>>,
}
