//! Messages of the agent's socket for attachments, and a client of it.
//!
//! The socket speaks HTTP/1.1 with JSON. Only root can open it.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status?network=NAME` ([`StatusQuery`]) | [`NetworkStatus`] |
//! | `GET /v1/attachments` | [`AttachedList`] |
//! | `POST /v1/attachments` with [`AttachRequest`] | [`AttachedWorkload`] |
//! | `POST /v1/attachments/check` with [`AttachmentKey`] | [`AttachedWorkload`] |
//! | `POST /v1/attachments/detach` with [`AttachmentKey`] | [`DetachedCount`] |
//! | `POST /v1/attachments/collect` with [`CollectRequest`] | [`DetachedCount`] |
//!
//! A failed request is answered with [`AttachProblem`].

pub mod client;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

/// Path of the socket by default: in the default state directory of the agent.
pub const PATH_DEFAULT: &str = "/var/lib/tidegate-agent/network.sock";
/// Maximum size of a request in bytes.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Maximum length of the identifier of a container in bytes.
pub const CONTAINER_ID_BYTES_MAX: usize = 253;
/// Maximum length of the name of an interface in bytes (`IFNAMSIZ` without the terminating NUL).
pub const INTERFACE_BYTES_MAX: usize = 15;

/// Identity of an attachment, unique on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentKey {
    /// Identifier of the container: letters, digits, `_`, `.` and `-`, at most 253 characters.
    pub container_id: String,
    /// Name of the interface inside of the network namespace, at most 15 characters.
    pub interface: String,
}

impl AttachmentKey {
    /// Returns the first fault of the key, or `None` if it is valid.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let id = &self.container_id;
        if id.is_empty() || id.len() > CONTAINER_ID_BYTES_MAX {
            return Some("the container ID must have 1 to 253 characters");
        }
        if !id.chars().all(is_word) || !id.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Some(
                "the container ID must begin with a letter or digit and contain letters, digits, `_`, `.` and `-`",
            );
        }
        let name = &self.interface;
        if name.is_empty() || name.len() > INTERFACE_BYTES_MAX || matches!(name.as_str(), "." | "..") {
            return Some("the interface name must have 1 to 15 characters and be neither `.` nor `..`");
        }
        if !name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':')) {
            return Some("the interface name must not contain spaces, `/` and `:`");
        }
        None
    }
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container_id, self.interface)
    }
}

/// Request to attach a network namespace to a workload network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachRequest {
    /// Identity of the attachment. A repeated request is answered with the existing attachment; one of another network
    /// namespace or Workload is rejected with [`ProblemCode::InUse`] while the attachment runs.
    pub key: AttachmentKey,
    /// Absolute path of the network namespace, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub netns: String,
    /// Name of the workload network. Default: the only one that has a block on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Namespace of the Workload. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the Workload. Default: the container ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Labels of the Workload, if the attachment creates it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Name under which the caller manages its attachments; [`CollectRequest`] removes only those of one manager.
    #[serde(default)]
    pub manager: String,
}

/// Existing attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedWorkload {
    /// Identity of the attachment.
    pub key: AttachmentKey,
    /// Path of the network namespace at the time of the request.
    pub netns: String,
    /// Name of the workload network.
    pub network: String,
    /// Namespace of the Workload.
    pub namespace: String,
    /// Name of the Workload.
    pub workload: String,
    /// Labels of the Workload, if the attachment creates it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Name under which the caller manages its attachments.
    #[serde(default)]
    pub manager: String,
    /// Name of the interface on the node.
    pub host_interface: String,
    /// Ethernet address of the interface inside of the network namespace.
    pub mac: String,
    /// Addresses of the interface, at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// MTU of the interface in bytes.
    pub mtu: u32,
    /// Number of the attachment, which increases with each one on the node.
    pub generation: u64,
    /// Refusal of the control server to record the attachment. `None` if it is recorded, or not reported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RecordRefusal>,
}

/// Refusal of the control server to record an attachment. The interface works, but the Workload does not have its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRefusal {
    /// Stable identifier of the reason, such as `WorkloadElsewhere`.
    pub reason: String,
    /// Description of the cause.
    pub message: String,
}

impl AttachedWorkload {
    /// Returns the next hops of the default routes, one for each family of the addresses.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|address| match address {
            IpAddr::V4(_) => GATEWAY_V4,
            IpAddr::V6(_) => GATEWAY_V6,
        })
    }
}

/// Next hop of the IPv4 default route of a workload. No machine has the address; the node answers for it.
pub const GATEWAY_V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 1, 1));
/// Next hop of the IPv6 default route of a workload: the link-local address of the interface on the node.
pub const GATEWAY_V6: IpAddr =
    IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee));

/// All attachments of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedList {
    /// Attachments in the order of their identities.
    pub attachments: Vec<AttachedWorkload>,
}

/// Request to remove the attachments of a manager that are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectRequest {
    /// Name under which the caller manages its attachments.
    pub manager: String,
    /// Attachments that stay.
    pub valid: BTreeSet<AttachmentKey>,
}

/// Answer to a removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DetachedCount {
    /// Number of removed attachments.
    pub removed: u64,
}

/// Query of a request for the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusQuery {
    /// Name of the workload network. Default: the only one that has a block on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// State of the workload network on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Reason why no attachment is possible; `None` if attachments are possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<AttachProblem>,
    /// Number of attachments.
    pub attachments: u64,
    /// Number of blocks from which this node assigns addresses.
    pub blocks: u64,
}

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct AttachProblem {
    /// Stable code of the reason.
    pub code: ProblemCode,
    /// Description with the cause and a remedy.
    pub message: String,
}

/// Stable code of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProblemCode {
    /// A field of the request is invalid.
    Invalid,
    /// The agent has received no state of a control server yet, or has no block.
    NotReady,
    /// The blocks of this node have no free address.
    Exhausted,
    /// The network namespace does not exist.
    NoNamespace,
    /// The network namespace has an interface with the name already.
    InterfaceExists,
    /// Another network namespace or Workload has a running attachment with the identity.
    InUse,
    /// The attachment does not exist.
    NotFound,
    /// The attachment exists, but the kernel differs from it.
    Differs,
    /// The kernel rejected a change.
    Kernel,
    /// The journal of attachments cannot be written.
    Journal,
    /// The agent has too many waiting requests, or is stopping.
    Busy,
}
