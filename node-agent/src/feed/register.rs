//! Registration of this machine with the control server. An existing Node object is never changed, because
//! its author controls its content.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ipnet::IpNet;
use model::{
    cluster::history::AGENT_AUTHOR_PREFIX,
    kinds::{
        metadata::{HOSTNAME_LABEL, Labels, Metadata},
        node::{NODE_ADDRESSES_MAX, NodeRequest, NodeSpec},
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

/// Timeout of one registration request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Properties of the Node object to create, as given by the operator.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// Addresses of the node; if empty, the addresses found on the machine are used.
    pub addresses: Vec<IpAddr>,
    /// Networks of the Workloads on this node.
    pub workload_cidrs: Vec<IpNet>,
    /// Labels of the Node object.
    pub labels: Labels,
    /// Failure zone of the node, if it has one.
    pub zone: Option<Label>,
}

/// Reason why a node could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The control server could not be reached, or did not respond in time.
    #[error("control cannot be reached")]
    Unreachable(#[from] reqwest::Error),
    /// The control server rejected the Node.
    #[error("control rejected the Node with {status}: {body}")]
    Refused {
        /// HTTP status of the response.
        status: StatusCode,
        /// Beginning of the response body, for the log.
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

/// Returns true if the body of a 404 response is the control server's error for an unknown node. Other 404
/// responses do not come from a control server, so the node must not be registered there.
#[must_use]
pub fn is_unknown_node(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    serde_json::from_str::<Problem>(body).is_ok_and(|problem| problem.code == "NodeNotFound")
}

/// Creates the Node object. Succeeds if the object already exists.
///
/// # Errors
/// Returns [`RegisterError`] if the control server cannot be reached or rejects the Node.
pub async fn register(
    control: &Control,
    server: ServerId,
    node: &Name,
    registration: &Registration,
) -> Result<(), RegisterError> {
    let Registration { addresses, workload_cidrs, mut labels, zone } = registration.clone();
    labels.entry(HOSTNAME_LABEL.to_owned()).or_insert_with(|| node.to_string());
    let mut addresses = if addresses.is_empty() { facts::collect().addresses } else { addresses };
    addresses.truncate(NODE_ADDRESSES_MAX);
    let object = NodeObject {
        api_version: API_VERSION,
        kind: Kind::Node,
        metadata: Metadata { labels, ..Metadata::named(node.clone(), None) },
        spec: NodeSpec { addresses, workload_cidrs, zone, ..NodeSpec::default() },
    };
    // A registration has no human author, so that a rollback does not undo it.
    let author = format!("{AGENT_AUTHOR_PREFIX}{node}");
    let request = control
        .client()
        .post(control.url(server, "/v1/nodes"))
        .header("x-tidegate-author", author)
        .json(&object);
    let response = request.timeout(REQUEST_TIMEOUT).send().await?;
    match response.status() {
        StatusCode::CONFLICT => Ok(()),
        status if status.is_success() => {
            if let Ok(created) = response.json().await {
                warn_of_pending(node, &created);
            }
            Ok(())
        }
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

/// Logs a warning if properties of the registration are pending until an operator accepts them.
fn warn_of_pending(node: &Name, created: &ExistingNode) {
    let NodeRequest { labels, addresses, workload_cidrs } = &created.spec.requested;
    if created.spec.requested.is_empty() {
        return;
    }
    warn!(
        ?labels,
        ?addresses,
        ?workload_cidrs,
        "requested properties of this Node are not in force, because the \
           join token or --workload-range of the server does not allow them, or another Node has them; an \
           operator accepts them with `tidegate node accept {node}`"
    );
}

/// Logs a warning if the Node object differs from the command-line flags, which apply only at registration.
pub async fn warn_of_ignored_flags(control: Arc<Control>, node: Name, registration: Registration) {
    let Some(ExistingNode { metadata, spec }) = existing(&control, &node).await else { return };
    let Registration { addresses, workload_cidrs, labels, zone } = registration;
    if !addresses.is_empty() && addresses != spec.addresses {
        warn!(flag = ?addresses, node = ?spec.addresses, "--address applies only when the Node is \
                                                          registered; change the Node instead");
    }
    if labels.iter().any(|(key, value)| metadata.labels.get(key) != Some(value)) {
        warn!(flag = ?labels, node = ?metadata.labels, "--label applies only when the Node is \
                                                        registered; change the Node instead");
    }
    if zone.is_some() && zone != spec.zone {
        warn!(flag = ?zone, node = ?spec.zone, "--zone applies only when the Node is registered; change \
                                                the Node instead");
    }
    if !workload_cidrs.is_empty() && workload_cidrs != spec.workload_cidrs {
        warn!(flag = ?workload_cidrs, node = ?spec.workload_cidrs, "--workload-cidr applies only when \
                                                                    the Node is registered; change the \
                                                                    Node instead");
    }
}

/// Returns the Node object from the first control server that replies with it; `None` if no server does.
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
