//! Registers this machine with control when control does not know it. An existing Node is never changed: it is intent,
//! and belongs to whoever wrote it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use model::{
    cluster::history::AGENT_AUTHOR_PREFIX,
    kinds::{
        metadata::{Labels, Metadata},
        node::{NODE_ADDRESSES_MAX, NodeSpec},
        resource::{API_VERSION, Kind},
    },
    primitives::name::{Label, Name},
};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::read_error;
use crate::{
    control::{Control, ServerId},
    facts,
};

/// Time that a registration may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the operator said about this machine.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// Its addresses; those found on it when empty.
    pub addresses: Vec<IpAddr>,
    /// The networks of its Workloads.
    pub workload_cidrs: Vec<IpNet>,
    /// Its labels.
    pub labels: Labels,
    /// Its failure zone.
    pub zone: Option<Label>,
}

/// Why a node could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// No answer.
    #[error("control cannot be reached")]
    Unreachable(#[from] reqwest::Error),
    /// Refused.
    #[error("control refused the Node with {status}: {body}")]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// The beginning of what it said.
        body: String,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeObject {
    api_version: &'static str,
    kind: Kind,
    metadata: Metadata,
    spec: NodeSpec,
}

/// Whether the body of an answer 404 says that control does not know the node. Any other 404 comes from something that
/// is not control, and must not be sent a Node.
#[must_use]
pub fn is_unknown_node(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    serde_json::from_str::<Problem>(body).is_ok_and(|problem| problem.code == "NodeNotFound")
}

/// Creates the Node. That it exists already is as good.
///
/// # Errors
/// When control cannot be reached or refuses.
pub async fn register(
    control: &Control,
    server: ServerId,
    node: &Name,
    registration: &Registration,
) -> Result<(), RegisterError> {
    let Registration { addresses, workload_cidrs, labels, zone } = registration.clone();
    let mut addresses = if addresses.is_empty() { facts::collect().addresses } else { addresses };
    addresses.truncate(NODE_ADDRESSES_MAX);
    let object = NodeObject {
        api_version: API_VERSION,
        kind: Kind::Node,
        metadata: Metadata { labels, ..Metadata::named(node.clone(), None) },
        spec: NodeSpec { addresses, workload_cidrs, zone, ..NodeSpec::default() },
    };
    // That a node joins is nobody's change: a rollback leaves it alone.
    let author = format!("{AGENT_AUTHOR_PREFIX}{node}");
    let request = control
        .client()
        .post(control.url(server, "/v1/nodes"))
        .header("x-tidegate-author", author)
        .json(&object);
    let response = request.timeout(REQUEST_TIMEOUT).send().await?;
    match response.status() {
        status if status.is_success() || status == StatusCode::CONFLICT => Ok(()),
        status => Err(RegisterError::Refused { status, body: read_error(response).await }),
    }
}

#[derive(Deserialize)]
struct ExistingNode {
    metadata: ExistingMetadata,
    spec: NodeSpec,
}

#[derive(Deserialize)]
struct ExistingMetadata {
    #[serde(default)]
    labels: Labels,
}

/// Warns when control's Node says something else than the flags, which count only at registration.
pub async fn warn_of_ignored_flags(control: Arc<Control>, node: Name, registration: Registration) {
    let Some(ExistingNode { metadata, spec }) = existing(&control, &node).await else { return };
    let Registration { addresses, workload_cidrs, labels, zone } = registration;
    if !addresses.is_empty() && addresses != spec.addresses {
        warn!(flag = ?addresses, node = ?spec.addresses, "--address counts only when the Node is registered; change the Node instead");
    }
    if labels.iter().any(|(key, value)| metadata.labels.get(key) != Some(value)) {
        warn!(flag = ?labels, node = ?metadata.labels, "--label counts only when the Node is registered; change the Node instead");
    }
    if zone.is_some() && zone != spec.zone {
        warn!(flag = ?zone, node = ?spec.zone, "--zone counts only when the Node is registered; change the Node instead");
    }
    if !workload_cidrs.is_empty() && workload_cidrs != spec.workload_cidrs {
        warn!(flag = ?workload_cidrs, node = ?spec.workload_cidrs, "--workload-cidr counts only when the Node is registered; change the Node instead");
    }
}

/// The Node as the first server has it that answers.
async fn existing(control: &Control, node: &Name) -> Option<ExistingNode> {
    for server in control.servers() {
        let url = control.url(server, &format!("/v1/nodes/{node}"));
        let Ok(response) = control.client().get(url).timeout(REQUEST_TIMEOUT).send().await else { continue };
        if let Ok(node) = response.json().await {
            return Some(node);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_unknown_node;

    #[test]
    fn only_control_can_say_that_a_node_is_unknown() {
        assert!(is_unknown_node(r#"{"type":"urn:x","code":"NodeNotFound","status":404}"#));
        for other in ["", "<html>404</html>", r#"{"code":"NotFound"}"#, "[]", r#"{"code":404}"#] {
            assert!(!is_unknown_node(other), "{other}");
        }
    }
}
