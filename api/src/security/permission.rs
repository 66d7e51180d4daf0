//! What a route asks of whoever calls it. Each route is added together with its permission ([`crate::openapi::Route`]),
//! so that none can be without one.

use std::fmt;

use axum::{
    extract::{RawPathParams, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use model::{kinds::resource::Kind, primitives::name::Namespace};
use serde_json::{Value, json};

use super::access;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Be told of changes.
    Watch,
    /// Make one that was not there.
    Create,
    /// Replace or change one.
    Update,
    /// Remove one, also by a prune.
    Delete,
    /// Have worked out, on the nodes too, what a write would do.
    Plan,
    /// Have explained why something is as it is; the nodes are asked.
    Explain,
    /// Say that a guard may let something go.
    Confirm,
    /// Make something what it was.
    Rollback,
    /// Have another node announce an address.
    Move,
    /// Have an agent change its machine.
    Fix,
}

impl Verb {
    /// Every verb.
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

    /// The word in rules.
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

    /// Reads a word of a rule.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == text)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What it is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Objects of a kind.
    Object(Kind),
    /// How it is going, all over the cluster.
    Status,
    /// Counters.
    Metrics,
    /// Accepted writes; of each only the objects that may be seen.
    History,
    /// What was asked for, by whom.
    Audit,
    /// Sessions and routes of BGP.
    Bgp,
    /// Guards of health checks.
    Guard,
    /// Tokens of people and automation.
    Token,
    /// Roles.
    Role,
    /// Tokens that agents join with.
    JoinToken,
    /// Certificates of agents.
    Certificate,
    /// The store as a whole.
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

    /// Every subject.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(Self::Object).chain(Self::OTHERS)
    }

    /// The word in rules.
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

    /// Reads a word of a rule.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::all().find(|subject| subject.as_str() == text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Nothing: the route says nothing of the cluster, or asks for a secret of its own.
    Open,
    /// To be somebody: a holder of a token, or an agent.
    Known,
    /// A verb on a subject, in the namespace that the path names; where it names none, without limits to namespaces.
    On(Verb, Subject),
    /// A verb on a subject, or on any subject, in some namespace at least. The handler shows, or does, what is allowed of it.
    Each(Verb, Option<Subject>),
    /// To be the agent of any node.
    Agent,
    /// To be the agent of the node that the path names.
    OwnNode,
}

/// A verb on objects of a kind.
pub(crate) const fn on(verb: Verb, kind: Kind) -> Permission {
    Permission::On(verb, Subject::Object(kind))
}

/// A verb on objects of a kind, of which each is looked at.
pub(crate) const fn each(verb: Verb, kind: Kind) -> Permission {
    Permission::Each(verb, Some(Subject::Object(kind)))
}

impl Permission {
    /// What the OpenAPI document says of it.
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

/// Lets a request through to its handler if its maker may make it.
pub(crate) async fn guard(
    permission: Permission,
    path: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let of = |wanted: &str| path.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    let namespace = of("namespace");
    // A namespace that is none: who is limited to namespaces has no business there, and others are told what is wrong.
    let namespace = namespace.and_then(|text| Namespace::parse(&text).ok());
    let place = access::Place { namespace: namespace.as_ref(), name: of("name"), node: of("node") };
    match access::current().check(permission, &place) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
