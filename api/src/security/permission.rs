//! Permission required by a route. Every route is added together with its permission
//! ([`crate::openapi::Route`]), so that none can lack one.

use std::fmt;

use axum::{
    extract::{RawPathParams, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use model::{kinds::resource::Kind, primitives::name::Namespace};
use serde_json::{Value, json};

use super::{Caller, access};

/// Action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Receive changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace or change an object.
    Update,
    /// Delete an object, also by a prune.
    Delete,
    /// Compute the effect of a write, including queries to the nodes.
    Plan,
    /// Explain the current state, including queries to the nodes.
    Explain,
    /// Override or release a guard.
    Confirm,
    /// Restore a former state.
    Rollback,
    /// Move an address to another node.
    Move,
    /// Apply fixes to a machine through its agent.
    Fix,
}

impl Verb {
    /// All verbs.
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

    /// Returns the name in rules.
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

    /// Parses the name in a rule.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == text)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Subject of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Objects of a kind.
    Object(Kind),
    /// State of the cluster.
    Status,
    /// Metrics.
    Metrics,
    /// Accepted writes; limited to the visible objects of each.
    History,
    /// Audit log.
    Audit,
    /// BGP sessions and routes.
    Bgp,
    /// Guards of health checks.
    Guard,
    /// Tokens of users and automation.
    Token,
    /// Roles.
    Role,
    /// Join tokens of agents.
    JoinToken,
    /// Certificates of agents.
    Certificate,
    /// Complete contents of the store.
    Backup,
}

impl Subject {
    const OTHERS: [Self; 11] = [
        Self::Status,
        Self::Metrics,
        Self::History,
        Self::Audit,
        Self::Bgp,
        Self::Guard,
        Self::Token,
        Self::Role,
        Self::JoinToken,
        Self::Certificate,
        Self::Backup,
    ];

    /// Returns all subjects.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(Self::Object).chain(Self::OTHERS)
    }

    /// Returns the name in rules.
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
            Self::Certificate => "Certificate",
            Self::Backup => "Backup",
        }
    }

    /// Parses the name in a rule.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::all().find(|subject| subject.as_str() == text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Permission required by a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// None: the route reveals nothing about the cluster, or requires a secret of its own.
    Open,
    /// Any authenticated caller: a token holder or an agent.
    Known,
    /// A verb on a subject in the namespace of the path; without one, in all namespaces.
    On(Verb, Subject),
    /// A verb on a subject, or on any subject, in at least one namespace. The handler filters by permission.
    Each(Verb, Option<Subject>),
    /// The agent of any node.
    Agent,
    /// The agent of the node in the path.
    OwnNode,
}

/// Returns the permission for a verb on objects of a kind.
pub(crate) const fn on(verb: Verb, kind: Kind) -> Permission {
    Permission::On(verb, Subject::Object(kind))
}

/// Returns the permission for a verb on objects of a kind that the handler filters one by one.
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

/// Checks the permission of the caller before the handler runs.
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
