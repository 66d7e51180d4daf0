//! Permission required by a route. A route is always added together with its permission
//! ([`crate::openapi::Route`]), so that no route can lack one.

use std::fmt;

use axum::{
    extract::{RawPathParams, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use model::{kinds::resource::Kind, primitives::name::Namespace};
use serde_json::{Value, json};

use super::{Caller, access};

/// Action that a role permits on a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Read one object or document.
    Get,
    /// Read a list of objects.
    List,
    /// Receive changes of objects in a stream.
    Watch,
    /// Create an object that does not exist.
    Create,
    /// Replace or patch an object.
    Update,
    /// Delete an object, directly or because `prune` removes it from an apply set.
    Delete,
    /// Compute the effect of a write, including queries to the nodes.
    Plan,
    /// Explain the current state, including queries to the nodes.
    Explain,
    /// Override a guard (limit on removals at once), or confirm changes that a guard has held back.
    Confirm,
    /// Restore former states of objects.
    Rollback,
    /// Move a load balancer address to another node.
    Move,
    /// Apply fixes to a node's machine through its agent.
    Fix,
}

impl Verb {
    /// All verbs, in the order of the reference documentation.
    pub(crate) const ALL: [Self; 12] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::Plan,
        Self::Explain,
        Self::Confirm,
        Self::Rollback,
        Self::Move,
        Self::Fix,
    ];

    /// Returns the verb as written in roles.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Plan => "plan",
            Self::Explain => "explain",
            Self::Confirm => "confirm",
            Self::Rollback => "rollback",
            Self::Move => "move",
            Self::Fix => "fix",
        }
    }

    /// Parses a verb as written in roles.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == text)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of object or document to which a permission applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Objects of one kind.
    Object(Kind),
    /// Overview, status summary and other documents about the state of the cluster.
    Status,
    /// Metrics of the server.
    Metrics,
    /// History of accepted writes. Of each write the caller sees only objects it may read.
    History,
    /// Entries of the audit log.
    Audit,
    /// Listings of BGP sessions, routes and events.
    Bgp,
    /// Guards against large removals: the health guard of the cluster and the state guards of nodes.
    Guard,
    /// Tokens of users and automation.
    Token,
    /// User-defined and built-in roles.
    Role,
    /// Join tokens for new nodes.
    JoinToken,
    /// Certificates of agents.
    AgentCertificate,
    /// Certificate authorities (CAs) that sign the certificates of agents.
    Authority,
    /// Backups, which contain every secret of the store.
    Backup,
    /// Keys of DnsZones with their secrets, which DNS servers need.
    DnsKey,
    /// Private keys of Certificates, which gateways need.
    CertificateKey,
    /// DNS servers and their reports.
    DnsServer,
    /// Gateways (processes of `tidegate-gateway`) and their reports.
    HttpGateway,
}

impl Subject {
    const OTHERS: [Self; 16] = [
        Self::Status,
        Self::Metrics,
        Self::History,
        Self::Audit,
        Self::Bgp,
        Self::Guard,
        Self::Token,
        Self::Role,
        Self::JoinToken,
        Self::AgentCertificate,
        Self::Authority,
        Self::Backup,
        Self::DnsKey,
        Self::CertificateKey,
        Self::DnsServer,
        Self::HttpGateway,
    ];

    /// Returns all subjects, kinds of objects first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(Self::Object).chain(Self::OTHERS)
    }

    /// Returns the subject as written in roles.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Object(kind) => kind.as_str(),
            Self::Status => "Status",
            Self::Metrics => "Metrics",
            Self::History => "History",
            Self::Audit => "Audit",
            Self::Bgp => "Bgp",
            Self::Guard => "Guard",
            Self::Token => "Token",
            Self::Role => "Role",
            Self::JoinToken => "JoinToken",
            Self::AgentCertificate => "AgentCertificate",
            Self::Authority => "Authority",
            Self::Backup => "Backup",
            Self::DnsKey => "DnsKey",
            Self::CertificateKey => "CertificateKey",
            Self::DnsServer => "DnsServer",
            Self::HttpGateway => "HttpGateway",
        }
    }

    /// Parses a subject as written in roles.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::all().find(|subject| subject.as_str() == text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Permission that a caller needs for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// No permission is needed: the route returns no data of the cluster, or verifies a secret itself.
    Open,
    /// Any authenticated caller: a token holder or an agent.
    Known,
    /// Permission for the verb on the subject, in the namespace of the path. A path without namespace requires the
    /// permission in all namespaces.
    On(Verb, Subject),
    /// Permission for the verb on the subject (`None`: on any subject) in at least one namespace. The handler
    /// omits objects that the caller may not see.
    Each(Verb, Option<Subject>),
    /// Certificate of any node's agent.
    Agent,
    /// Certificate of the agent of the node in the path.
    OwnNode,
}

/// Returns the permission for a verb on objects of a kind, in the namespace of the path.
pub(crate) const fn on(verb: Verb, kind: Kind) -> Permission {
    Permission::On(verb, Subject::Object(kind))
}

/// Returns the permission for a verb on objects of a kind in at least one namespace. The handler must omit objects
/// that the caller may not see.
pub(crate) const fn each(verb: Verb, kind: Kind) -> Permission {
    Permission::Each(verb, Some(Subject::Object(kind)))
}

impl Permission {
    /// Returns the `x-permission` value for the OpenAPI document.
    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Open => json!({ "asks": "nothing" }),
            Self::Known => json!({ "asks": "identity" }),
            Self::On(verb, subject) => {
                json!({ "asks": "permission", "verb": verb.as_str(), "kind": subject.as_str() })
            }
            Self::Each(verb, subject) => json!({
                "asks": "permission", "verb": verb.as_str(), "kind": subject.map_or("*", Subject::as_str),
                "eachObject": true,
            }),
            Self::Agent => json!({ "asks": "agent" }),
            Self::OwnNode => json!({ "asks": "agent", "node": "{node}" }),
        }
    }
}

/// Middleware that checks the permission of the caller before the handler runs.
pub(crate) async fn guard(
    permission: Permission,
    path: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let of = |wanted: &str| path.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    let namespace = of("namespace");
    // With an invalid namespace, callers limited to namespaces are rejected here; the handler reports the
    // error to others.
    let namespace = namespace.and_then(|text| Namespace::parse(&text).ok());
    let place = access::PathParams { namespace: namespace.as_ref(), name: of("name"), node: of("node") };
    let caller = Caller::of(request.extensions());
    match caller.and_then(|caller| caller.access().check(permission, &place)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
