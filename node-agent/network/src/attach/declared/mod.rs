//! Interfaces that Workloads declare: TAP interfaces of virtual machines and other interfaces of the node, which exist
//! without the agent, and veth pairs of named network namespaces, which the agent creates.
//!
//! ```text
//!  feed ─▶ declared interfaces ─▶ claims (addresses) ─▶ judged links ─▶ table, routes ─▶ parameters, gateways
//!                                     │                    └── refused, missing: fault in the Attachment
//!                                     └── interfaces.json: claims, and the former settings of each changed link
//! ```
//! Invariants: the former settings of a link are on disk before the first change, so that the end of the declaration
//! restores them, also after a restart. An interface that the node itself needs is not changed.

pub mod file;
pub mod link;
pub mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use attach_socket::AttachmentKey;
use model::{
    kinds::attachment::{
        AttachmentKind, FAULT_MESSAGE_LENGTH_MAX, InterfaceFault, InterfaceFaultReason, WorkloadKey,
    },
    wire::workload_network::DeclaredInterface,
};
use serde::{Deserialize, Serialize};

use super::names;

/// Name under which the agent manages the veth pairs that Workloads declare.
pub const MANAGER: &str = "tidegate-declared";

/// Addresses of a declared interface, which stay the same until the end of the declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Addresses of the Workload.
    pub addresses: Vec<IpAddr>,
    /// Number of the Attachment: the time of the claim in seconds since 1970.
    pub generation: u64,
}

/// Former settings of a link that the agent has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkRecord {
    /// Index of the link.
    pub index: u32,
    /// True if the link was administratively up.
    pub was_up: bool,
    /// Former values of kernel parameters, by the path below `/proc/sys/net` with `{}` for the name of the link.
    pub parameters: BTreeMap<String, String>,
    /// Addresses of gateways that the agent adds.
    pub gateways: BTreeSet<IpAddr>,
    /// Addresses with permanent neighbor entries that the agent adds.
    #[serde(default)]
    pub neighbors: BTreeSet<IpAddr>,
    /// Addresses of the Workloads for which all settings were applied, so that packets may be routed to the link.
    #[serde(default)]
    pub workloads: BTreeSet<IpAddr>,
}

/// Declared interface as reported to the control server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownInterface {
    /// Identity of the Attachment.
    pub key: AttachmentKey,
    /// Interface that the Workload declares.
    pub declared: DeclaredInterface,
    /// Name of the interface on the node.
    pub host_interface: String,
    /// Addresses of the Workload; empty if none could be assigned.
    pub addresses: Vec<IpAddr>,
    /// Number of the Attachment.
    pub generation: u64,
    /// Reason why the interface is not configured; `None` if it is.
    pub fault: Option<InterfaceFault>,
}

/// Link that the agent may configure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedLink {
    /// Index of the link.
    pub index: u32,
    /// True if the link is administratively up.
    pub is_up: bool,
    /// Kind of the interface, `Tap` or `Host`.
    pub kind: AttachmentKind,
    /// Addresses of the Workloads behind the link, with their link-layer addresses if those are stated.
    pub workloads: BTreeMap<IpAddr, Option<String>>,
}

/// Declared interfaces of a node. The engine keeps them.
#[derive(Debug, Default)]
pub struct DeclaredInterfaces {
    /// File with the claims and the former settings.
    pub(super) file: file::DeclaredFile,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Interfaces of kinds `Tap` and `Host` that the agent may configure, by name.
    pub(super) accepted: BTreeMap<String, AcceptedLink>,
    /// Routes to Workloads behind completely configured links.
    pub(super) routes: BTreeMap<IpAddr, u32>,
    /// Reasons why interfaces are not configured.
    pub(super) faults: BTreeMap<WorkloadKey, InterfaceFault>,
}

impl DeclaredInterfaces {
    /// True if nothing is declared, and nothing of former declarations is left.
    pub(super) fn is_empty(&self) -> bool {
        self.file.claims.is_empty() && self.file.links.is_empty() && self.faults.is_empty()
    }
}

/// Returns the identity of the Attachment of a declared interface.
#[must_use]
pub fn key_of(workload: &WorkloadKey, declared: &DeclaredInterface) -> AttachmentKey {
    let named = AttachmentKey { container_id: workload.to_string(), interface: String::new() };
    AttachmentKey {
        container_id: format!("declared-{}", names::id(&named)),
        interface: declared.name.clone(),
    }
}

/// Creates a fault. A long message is cut.
pub(super) fn fault(reason: InterfaceFaultReason, message: impl Into<String>) -> InterfaceFault {
    let mut message: String = message.into();
    let end = (0..=FAULT_MESSAGE_LENGTH_MAX).rev().find(|end| message.is_char_boundary(*end));
    message.truncate(end.unwrap_or_default());
    InterfaceFault { reason, message }
}
