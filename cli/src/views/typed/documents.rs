//! Types of responses for which `model` has no type, or whose enums may get more values in newer servers.
//!
//! Every field has a default, so that a response is rendered even if only a part can be decoded. Enum values
//! that are only printed, and names that are only sent back, are plain text; enum values that select a color
//! or a sign are a [`Word`].

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    cluster::{
        change::{Action, ChangeKind},
        history::{FieldChange, Maker},
    },
    primitives::quantity::{Position, Revision, Timestamp},
    views::overview::{Impact, PrecedingChange},
    wire::doctor::{FindingState, FixOutcome},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Word, decode};

/// Summary of the cluster state: `GET /v1/status`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClusterStatus {
    /// Position (epoch and revision) of the state that the response describes.
    pub(crate) position: Option<Position>,
    /// Version of the server.
    pub(crate) version: String,
    /// Control server that sent the response.
    pub(crate) replica: StatusReplica,
    /// True if every client that reaches the server has all permissions.
    pub(crate) insecure: bool,
    /// Numbers of Nodes by state.
    pub(crate) nodes: StatusNodes,
    /// Numbers of Services by state.
    pub(crate) services: StatusServices,
    /// Load balancer addresses that nodes announce.
    pub(crate) addresses: StatusAddresses,
    /// Number of objects by kind.
    pub(crate) objects: BTreeMap<String, u64>,
    /// Current problems, those with the largest impact first.
    pub(crate) problems: Vec<StatusProblem>,
}

/// Control server that sent a status response, and its role among the servers with the same store.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusReplica {
    /// Name of the server.
    pub(crate) name: String,
    /// True if the server runs the tasks that only one server may run.
    pub(crate) is_leader: bool,
}

/// Numbers of Nodes by state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusNodes {
    /// Total number of Nodes.
    pub(crate) total: u64,
    /// Number of Nodes whose agent reports.
    pub(crate) connected: u64,
    /// Number of Nodes that have verified the current state.
    pub(crate) converged: u64,
}

/// Numbers of Services by state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusServices {
    /// Total number of Services.
    pub(crate) total: u64,
    /// Number of ready Services.
    pub(crate) ready: u64,
    /// Number of Services with endpoints that nobody checks.
    pub(crate) not_checked: u64,
}

/// Load balancer addresses that nodes announce by ARP or NDP.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusAddresses {
    /// Number of announced addresses.
    pub(crate) total: u64,
    /// Nodes with the number of addresses of each; those with the most addresses first.
    pub(crate) nodes: Vec<StatusNodeAddresses>,
    /// Number of nodes that are not listed.
    pub(crate) nodes_omitted: u64,
}

/// Number of load balancer addresses that one node announces.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusNodeAddresses {
    /// Name of the Node.
    pub(crate) node: String,
    /// Number of addresses.
    pub(crate) addresses: u64,
}

/// Problem that affects an object now.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusProblem {
    /// Kind and name of the affected object.
    pub(crate) object: String,
    /// Impact of the problem on users.
    pub(crate) impact: Word<Impact>,
    /// Start time of the problem, if known.
    pub(crate) since: Option<Timestamp>,
    /// Reason of the problem in CamelCase.
    pub(crate) reason: String,
    /// Description of the problem for users.
    pub(crate) message: String,
    /// Suggested remedy; empty if none is known.
    pub(crate) hint: String,
    /// Last write before the problem that touched the affected object.
    pub(crate) change: Option<PrecedingChange>,
}

/// Members of a problem document (RFC 9457) that `client::Problem` does not have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProblemExtension {
    /// Short title of the code.
    pub(crate) title: String,
    /// Objects that a rejected prune would have removed.
    pub(crate) would_prune: Vec<String>,
    /// First objects whose removal a guard (limit on large removals) has rejected.
    pub(crate) would_remove: Vec<String>,
}

/// Fields that concern the whole result of a write of many objects: `POST /v1/apply`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ApplyHead {
    /// True for a dry run, which changed nothing.
    pub(crate) dry_run: bool,
}

/// Result of a write for one object, in the `results` of `POST /v1/apply`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApplyResult {
    /// Performed action.
    pub(crate) action: Word<Action>,
    /// Object after the write, of any kind.
    pub(crate) object: Value,
}

/// Accepted write: an item of `GET /v1/history`, or `GET /v1/history/REVISION`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HistoryEntry {
    /// Revision created by the write.
    pub(crate) revision: Option<Revision>,
    /// Time of the write.
    pub(crate) at: Option<Timestamp>,
    /// Type of the author.
    pub(crate) maker: Word<Maker>,
    /// Author of the write.
    pub(crate) author: String,
    /// Reason for the write; empty if the author gave none.
    pub(crate) message: String,
    /// Source address of the request.
    pub(crate) source: Option<IpAddr>,
    /// First changed objects, by name only.
    pub(crate) changes: Vec<ChangedObject>,
    /// Total number of changed objects.
    pub(crate) changes_total: u64,
    /// Changed objects with their fields; empty in a listing.
    pub(crate) objects: Vec<ChangedObject>,
}

/// Object that a write changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ChangedObject {
    /// Type of the change.
    pub(crate) kind: Word<ChangeKind>,
    /// Kind, namespace and name of the object.
    pub(crate) object: ObjectName,
    /// Changed fields.
    pub(crate) fields: Vec<FieldChange>,
    /// Number of changed fields that are not listed.
    pub(crate) fields_omitted: u64,
}

/// Kind, namespace and name of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectName {
    /// Kind of the object.
    pub(crate) kind: String,
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

/// Request in the audit log: an item of `GET /v1/audit`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuditRow {
    /// Time of the response.
    pub(crate) at: Option<Timestamp>,
    /// Author of the request.
    pub(crate) author: String,
    /// Source address of the request.
    pub(crate) source: Option<IpAddr>,
    /// HTTP method.
    pub(crate) method: String,
    /// Path of the request.
    pub(crate) path: String,
    /// First objects of the request, as kind and name.
    pub(crate) objects: Vec<String>,
    /// Total number of objects of the request.
    pub(crate) objects_total: u64,
    /// Result of the request.
    pub(crate) decision: Word<AuditDecision>,
    /// Problem code of the response; empty if the request was accepted.
    pub(crate) code: String,
    /// Revision created by the request.
    pub(crate) revision: Option<Revision>,
    /// True if the request was a dry run.
    pub(crate) dry_run: bool,
}

/// Result of a request in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AuditDecision {
    /// The request succeeded.
    Accepted,
    /// The request was rejected and changed nothing.
    Refused,
    /// The server failed.
    Failed,
}

/// Fields of a plan as a whole, from the response of `POST /v1/plan`: its id, its expiry time and the limits
/// that the write exceeds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlanHead {
    /// Id of the plan, by which it can be applied.
    pub(crate) id: String,
    /// Time at which the server discards the plan.
    pub(crate) expires: Option<Timestamp>,
    /// Limits (guards) that the write exceeds, such as the maximum number of removed objects. If there are
    /// any, the write must be confirmed.
    pub(crate) guards: Vec<String>,
}

/// Effect of a plan on one object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlannedObject {
    /// Kind and name of the object.
    pub(crate) object: String,
    /// Type of the change.
    pub(crate) action: Word<Action>,
    /// Changed fields; secrets are never included.
    pub(crate) fields: Vec<FieldChange>,
    /// Number of changed fields that are not listed.
    pub(crate) omitted: u64,
}

/// Connections of drained endpoints: `GET /v1/drains`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RemainingConnections {
    /// Number of remaining connections.
    pub(crate) connections: u64,
    /// True if the drain is over: no connection to the drained endpoints remains, and every node has reported its
    /// number of connections since the drain began.
    pub(crate) is_over: bool,
    /// Connections of each endpoint.
    pub(crate) items: Vec<EndpointConnections>,
    /// Number of connections through the Node of the request, to endpoints that are not drained; `None` if the
    /// server does not count them.
    pub(crate) connections_through_node: Option<u64>,
}

/// Connections of one drained endpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConnections {
    /// Number of open connections by node.
    pub(crate) nodes: BTreeMap<String, u64>,
    /// Nodes without a connection count since the change, with the reason.
    pub(crate) unknown: BTreeMap<String, String>,
}

/// Results of the checks of one node by its agent: `GET /v1/nodes/NODE/doctor`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeFindings {
    /// Name of the Node.
    pub(crate) node: String,
    /// Results of the checks.
    pub(crate) findings: Vec<NodeFinding>,
}

/// Result of one check of a machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeFinding {
    /// Identifier of the check.
    pub(crate) check: String,
    /// Severity of the result.
    pub(crate) state: Word<FindingState>,
    /// Description of the result.
    pub(crate) message: String,
    /// Consequences of the problem; empty if there are none.
    pub(crate) why: String,
    /// Remedy; empty if there is none.
    pub(crate) fix: String,
    /// Name of the agent's fix that applies the remedy; empty if the agent has none.
    pub(crate) safe_fix: String,
}

/// Results of fixes on a node: `POST /v1/nodes/NODE/fixes`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeFixes {
    /// Name of the Node.
    pub(crate) node: String,
    /// Results, one for each requested fix.
    pub(crate) fixes: Vec<NodeFix>,
}

/// Result of one fix.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeFix {
    /// Identifier of the fix.
    pub(crate) fix: String,
    /// Outcome of the fix.
    pub(crate) outcome: Word<FixOutcome>,
    /// Description of the change, or the reason why nothing was changed.
    pub(crate) message: String,
}

/// Token: an item of `GET /v1/tokens`, and the response to its creation and revocation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TokenRow {
    /// Id of the token.
    pub(crate) id: String,
    /// Name of the token.
    pub(crate) name: String,
    /// Role bindings of the token.
    pub(crate) bindings: Vec<RoleBinding>,
    /// Author of the request that created the token.
    pub(crate) created_by: String,
    /// End of validity; `None` if the token does not expire.
    pub(crate) expires: Option<Timestamp>,
    /// Time of the last use; `None` if unused.
    pub(crate) last_used: Option<Timestamp>,
}

/// Text of a token, in the response to its creation only.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenText {
    /// Text to be sent as `Authorization: Bearer`, or to be given to an agent.
    pub(crate) token: String,
}

/// Role that a token grants, with restrictions. An empty list restricts nothing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleBinding {
    /// Name of the role.
    pub(crate) role: String,
    /// Namespaces that the binding is limited to.
    pub(crate) namespaces: Vec<String>,
    /// AddressPools that the binding is limited to.
    pub(crate) pools: Vec<String>,
    /// CIDRs of endpoints that the binding is limited to.
    pub(crate) endpoint_ranges: Vec<String>,
}

/// Role: an item of `GET /v1/roles`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RoleRow {
    /// Name of the role.
    pub(crate) name: String,
    /// True for a role that cannot be changed.
    pub(crate) built_in: bool,
    /// Permissions of the role.
    pub(crate) rules: Vec<RoleRule>,
}

/// Permissions of a role.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRule {
    /// Permitted verbs.
    pub(crate) verbs: Vec<String>,
    /// Kinds that the verbs apply to.
    pub(crate) kinds: Vec<String>,
    /// Namespaces that the rule is limited to; empty for all.
    pub(crate) namespaces: Vec<String>,
}

/// Identity of the caller: `GET /v1/whoami`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallerInfo {
    /// Authenticated identity.
    pub(crate) identity: CallerIdentity,
    /// Role bindings of the token.
    pub(crate) bindings: Vec<RoleBinding>,
}

/// Authenticated identity of a caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub(crate) enum CallerIdentity {
    /// Holder of a token.
    Token {
        /// Id of the token.
        #[serde(default)]
        id: String,
        /// Name of the token.
        #[serde(default)]
        name: String,
    },
    /// User with an ID token of the OpenID Connect issuer.
    User {
        /// Name of the user.
        #[serde(default)]
        name: String,
    },
    /// Agent of a node.
    Agent {
        /// Name of the node.
        #[serde(default)]
        node: String,
    },
    /// Unauthenticated caller of a server that requires no authentication.
    #[default]
    #[serde(other)]
    Anyone,
}

/// Result of a permission check: `GET /v1/whoami/may`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PermissionCheck {
    /// True if the action is allowed.
    pub(crate) allowed: bool,
}

/// Numbers of rows that a response leaves out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OmittedRows {
    /// Number of Services that are not listed.
    pub(crate) services_omitted: u64,
    /// Number of Nodes that are not listed.
    pub(crate) nodes_omitted: u64,
}

/// Event of `GET /v1/watch`, without its object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchEvent {
    /// Type of the event, such as `ADDED`.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// Revision of the change.
    pub(crate) revision: u64,
    /// Position from which the watch can be resumed, sent back unchanged.
    pub(crate) position: Option<String>,
    /// True on the bookmark that ends the initial listing.
    pub(crate) initial: bool,
}

impl WatchEvent {
    /// Reads the fields of an event.
    pub(crate) fn of(event: &Value) -> Self {
        decode(event).unwrap_or_default()
    }

    /// Returns the object of an event, of any kind, or `None` for events without an object.
    pub(crate) fn object(event: &Value) -> Option<&Value> {
        event.get("object").filter(|object| object.is_object())
    }
}

/// Fields of the endpoints that the server computed for a Service, except for the endpoints themselves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CompiledHead {
    /// Service, as `namespace/name`.
    service: String,
}

/// Returns the key (`namespace/name`) of the Service to which computed endpoints belong.
pub(crate) fn service_of(endpoints: &Value) -> String {
    decode(endpoints).unwrap_or_else(CompiledHead::default).service
}

/// Fields of a page of a listing, except for the objects.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ListPage {
    metadata: ListMetadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    /// Token of the next page; `None` on the last page.
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// Returns the token of the next page of a listing, or `None` on the last page.
pub(crate) fn continue_token(listing: &Value) -> Option<String> {
    decode(listing).unwrap_or_else(ListPage::default).metadata.continue_token
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        terminal::style::Style,
        views::{doctor, history, plan, render},
    };

    /// Enum values that only a newer server has are printed unchanged, and the fields around them are kept.
    #[test]
    fn words_of_a_newer_server_are_printed() {
        let now = Timestamp::from_unix_seconds(0);
        let problem = json!({ "object": "Service default/web", "impact": "looming", "reason": "Odd" });
        let status =
            json!({ "nodes": { "total": 2, "connected": 2, "converged": 2 }, "problems": [problem] });
        let text = render::status(&status, None, now, Style::PLAIN);
        assert!(text.contains("Service default/web: looming, Odd"), "{text}");
        assert!(text.contains("2/2 connected") && !render::is_healthy(&status), "{text}");

        let finding = json!({ "check": "disk", "state": "Smoldering", "message": "hot", "safeFix": "Cool" });
        let answers = json!([{ "node": "n1", "findings": [finding] }]);
        let text = doctor::table(&answers, false, Style::PLAIN);
        assert!(text.contains("n1     disk    Smoldering   hot"), "{text}");
        assert_eq!(doctor::safe_fixes(&answers)["n1"], ["Cool".to_owned()].into());

        let request = json!({ "author": "jo", "method": "PUT", "path": "/v1/x", "decision": "deferred", "code": "Later" });
        let text = history::audit(&json!({ "items": [request, 7] }), now, Style::PLAIN);
        assert!(text.contains("deferred: Later") && text.contains("<unreadable>"), "{text}");

        let line = json!({ "change": "moved", "place": "set x", "line": "y" });
        let plan = json!({
            "objects": [{ "object": "Node n1", "action": "renamed", "fields": [{ "pointer": "/spec/a", "after": null }] }],
            "nodes": { "n1": { "preview": { "kernel": [line] } } },
        });
        let text = plan::whole(&plan, Style::PLAIN);
        assert!(text.starts_with("~ Node n1 renamed\n  + /spec/a: null\n"), "{text}");
        assert!(text.contains("node/n1\n  <unreadable>\n"), "{text}");
    }

    #[test]
    fn the_identity_of_a_caller_is_read_by_its_type() {
        let read = |identity: Value| decode::<CallerInfo>(&json!({ "identity": identity })).unwrap().identity;
        assert!(
            matches!(read(json!({ "type": "agent", "node": "n1" })), CallerIdentity::Agent { node } if node == "n1")
        );
        assert!(
            matches!(read(json!({ "type": "token", "id": "a" })), CallerIdentity::Token { id, .. } if id == "a")
        );
        let user = json!({ "type": "user", "name": "kim", "expires": "2026-11-21T09:00:00Z" });
        assert!(matches!(read(user), CallerIdentity::User { name } if name == "kim"));
        assert!(matches!(read(json!({ "type": "anyone" })), CallerIdentity::Anyone));
    }
}
