//! Permissions of the caller of a request, from its identity and its role bindings. Handlers access them through
//! [`Caller`](super::Caller).

use std::{collections::BTreeSet, fmt, sync::Arc};

use model::{
    cluster::history::{AGENT_AUTHOR_PREFIX, AUTHOR_LENGTH_MAX, Maker},
    kinds::resource::Kind,
    primitives::name::{Name, Namespace},
};

use super::{
    Identity,
    permission::{Permission, Subject, Verb},
    roles::{Role, covers},
    session_id::SessionId,
    tokens::Binding,
};
use crate::base::error::{Code, Problem};

/// Author of a change if authentication is disabled and the request has no author header.
const UNKNOWN: &str = "unknown";
/// Author of a request without credentials on a server that requires authentication.
const NOBODY: &str = "nobody";

/// Prefix of the author of a change by a user of OpenID Connect.
const USER_AUTHOR_PREFIX: &str = "oidc/";
/// Suffix of the author of a change that was made on the status page.
const BY_PAGE: &str = "by the page";

/// Role that a token is bound to, with the restrictions of the binding.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Role that the binding grants.
    pub(crate) role: Arc<Role>,
    /// Restrictions of the binding to namespaces, pools and address ranges.
    pub(crate) binding: Binding,
}

/// Identity and permissions of a caller.
#[derive(Debug)]
pub(crate) struct Access {
    identity: Identity,
    grants: Vec<Grant>,
    /// Session of the status page that authenticates the request, if any.
    session: Option<SessionId>,
}

/// Path parameters that the required permission of a route depends on.
#[derive(Debug)]
pub(crate) struct PathParams<'a> {
    /// Namespace in the path; `None` for cluster-scoped routes and routes over all namespaces.
    pub(crate) namespace: Option<&'a Namespace>,
    /// Object name in the path.
    pub(crate) name: Option<String>,
    /// Node name in the path.
    pub(crate) node: Option<String>,
}

impl Grant {
    /// Returns true if the grant allows a verb on a subject in a namespace. `namespace` is `None` for
    /// cluster-scoped objects and for requests over all namespaces.
    pub(crate) fn allows(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        covers(self.binding.namespaces.as_ref(), namespace) && self.role.allows(verb, subject, namespace)
    }

    fn allows_somewhere(&self, verb: Verb, subject: Option<Subject>) -> bool {
        self.role.allows_somewhere(verb, subject, self.binding.namespaces.as_ref())
    }
}

impl Access {
    /// Creates the permissions of a caller that has no role bindings.
    pub(crate) fn of(identity: Identity) -> Self {
        Self { identity, grants: Vec::new(), session: None }
    }

    /// Creates the permissions of the holder of a token.
    pub(crate) fn of_token(id: String, name: String, grants: Vec<Grant>) -> Self {
        Self { identity: Identity::Token { id, name }, grants, session: None }
    }

    /// Creates the permissions of a user of OpenID Connect.
    pub(crate) fn of_user(identity: Identity, grants: Vec<Grant>) -> Self {
        Self { identity, grants, session: None }
    }

    /// Returns the same permissions, marked as authenticated by a session of the status page.
    pub(crate) fn by_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Returns the session of the status page that authenticates the request; `None` for other credentials.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Returns true if the request is authenticated by a session of the status page.
    pub(crate) fn is_by_page(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the identity of the caller.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the roles granted to the caller, with their restrictions.
    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns a prefix that is unique to the caller, for keys such as idempotency keys.
    pub(crate) fn key(&self) -> String {
        match &self.identity {
            Identity::Anyone => String::new(),
            Identity::Nobody => "nobody/".to_owned(),
            Identity::Agent(node) => format!("agent/{node}/"),
            Identity::Token { id, name: _ } => format!("token/{id}/"),
            // The length keeps names that contain a slash apart.
            Identity::User { name, expires: _ } => format!("user/{}/{name}/", name.len()),
        }
    }

    /// Returns true if the caller may use a verb on a subject in a namespace. `namespace` is `None` for
    /// cluster-scoped objects and for requests over all namespaces.
    pub(crate) fn may(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        match &self.identity {
            Identity::Anyone => true,
            // Permissions of agents depend on the node: see `check` and the write checks of Nodes.
            Identity::Nobody | Identity::Agent(_) => false,
            Identity::Token { .. } | Identity::User { .. } => {
                self.grants.iter().any(|grant| grant.allows(verb, subject, namespace))
            }
        }
    }

    /// Returns true if the caller may use a verb on objects of a kind in a namespace; `None` as for
    /// [`Self::may`].
    pub(crate) fn may_object(&self, verb: Verb, kind: Kind, namespace: Option<&Namespace>) -> bool {
        self.may(verb, Subject::Object(kind), namespace)
    }

    /// Returns the namespaces to which the caller's part of each apply set is limited: those in which the caller
    /// may write objects of a kind that it may not write in all namespaces. `None` if there is no such kind.
    pub(crate) fn apply_set_scope(&self) -> Option<BTreeSet<Namespace>> {
        let limited_kinds: Vec<_> = Kind::ALL
            .into_iter()
            .filter(|kind| kind.is_namespaced() && !self.may_object(Verb::Update, *kind, None))
            .collect();
        let may_write = |namespace: &Namespace| {
            limited_kinds.iter().any(|kind| self.may_object(Verb::Update, *kind, Some(namespace)))
        };
        let named = self
            .grants
            .iter()
            .flat_map(|grant| grant.role.namespaces().chain(grant.binding.namespaces.iter().flatten()));
        let scope: BTreeSet<_> = named.filter(|namespace| may_write(namespace)).cloned().collect();
        (!scope.is_empty()).then_some(scope)
    }

    fn may_somewhere(&self, verb: Verb, subject: Option<Subject>) -> bool {
        match &self.identity {
            Identity::Anyone => true,
            Identity::Nobody | Identity::Agent(_) => false,
            Identity::Token { .. } | Identity::User { .. } => {
                self.grants.iter().any(|grant| grant.allows_somewhere(verb, subject))
            }
        }
    }

    /// Returns true if both callers have the same identity and the same grants.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let is_as =
            |(one, other): (&Grant, &Grant)| one.binding == other.binding && one.role.body == other.role.body;
        self.identity == other.identity
            && self.grants.len() == other.grants.len()
            && self.grants.iter().zip(&other.grants).all(is_as)
    }

    /// Returns true if the caller has every permission of a grant.
    pub(crate) fn has_all_of(&self, grant: &Grant) -> bool {
        if self.identity == Identity::Anyone {
            return true;
        }
        let named: BTreeSet<&Namespace> =
            grant.role.namespaces().chain(grant.binding.namespaces.iter().flatten()).collect();
        let places = || named.iter().copied().map(Some).chain([None]);
        let is_had = |verb: Verb, subject: Subject, place: Option<&Namespace>| {
            // Permissions restricted in their addresses must not be passed on without the restriction.
            let is_whole = |own: &&Grant| {
                let Binding { role: _, namespaces: _, pools, endpoint_ranges } = &own.binding;
                (pools.is_none() || *pools == grant.binding.pools)
                    && (endpoint_ranges.is_none() || *endpoint_ranges == grant.binding.endpoint_ranges)
            };
            self.grants.iter().filter(is_whole).any(|own| own.allows(verb, subject, place))
        };
        Verb::ALL.into_iter().all(|verb| {
            Subject::all().all(|subject| {
                places().all(|place| !grant.allows(verb, subject, place) || is_had(verb, subject, place))
            })
        })
    }

    /// Checks that the caller has the permission that a route requires. Otherwise returns a problem response with
    /// status 401 or 403.
    pub(crate) fn check(&self, permission: Permission, place: &PathParams<'_>) -> Result<(), Problem> {
        if permission == Permission::Open || self.identity == Identity::Anyone {
            return Ok(());
        }
        if self.identity == Identity::Nobody {
            return Err(unauthenticated("this request needs a token or an agent certificate"));
        }
        let is_allowed = match permission {
            Permission::Open | Permission::Known => true,
            Permission::On(verb, subject) => {
                self.may(verb, subject, place.namespace) || self.is_own_node(verb, subject, place)
            }
            Permission::Each(verb, subject) => self.may_somewhere(verb, subject),
            Permission::Agent => matches!(self.identity, Identity::Agent(_)),
            Permission::OwnNode => self.is_node(place.node.as_deref()),
        };
        if is_allowed { Ok(()) } else { Err(self.refuse(permission, place)) }
    }

    /// Returns true if the caller is an agent that reads or creates its own Node. The name and contents of a
    /// new Node are checked later, by the authorization of writes.
    fn is_own_node(&self, verb: Verb, subject: Subject, place: &PathParams<'_>) -> bool {
        match (verb, subject) {
            (Verb::Get, Subject::Object(Kind::Node)) => self.is_node(place.name.as_deref()),
            (Verb::Create, Subject::Object(Kind::Node)) => matches!(self.identity, Identity::Agent(_)),
            _ => false,
        }
    }

    fn is_node(&self, named: Option<&str>) -> bool {
        match &self.identity {
            Identity::Agent(node) => named == Some(node.as_str()),
            Identity::Anyone | Identity::Nobody | Identity::Token { .. } | Identity::User { .. } => false,
        }
    }

    fn refuse(&self, permission: Permission, place: &PathParams<'_>) -> Problem {
        let what = match permission {
            Permission::Open | Permission::Known => "do this".to_owned(),
            Permission::On(verb, subject) => match place.namespace {
                Some(namespace) => format!("{verb} {subject} in namespace {namespace}"),
                None if matches!(subject, Subject::Object(kind) if kind.is_namespaced()) => {
                    format!("{verb} {subject} in all namespaces")
                }
                None => format!("{verb} {subject}"),
            },
            Permission::Each(verb, Some(subject)) => format!("{verb} {subject} in any namespace"),
            Permission::Each(verb, None) => format!("{verb} anything"),
            Permission::Agent => "use a route for agents".to_owned(),
            Permission::OwnNode => "use a route for the agent of that node".to_owned(),
        };
        forbidden(format!("{self} may not {what}"))
    }

    /// Returns a problem response if the caller lacks a permission.
    pub(crate) fn need(
        &self,
        verb: Verb,
        subject: Subject,
        namespace: Option<&Namespace>,
    ) -> Result<(), Problem> {
        if self.may(verb, subject, namespace) {
            return Ok(());
        }
        Err(self.refuse(Permission::On(verb, subject), &PathParams { namespace, name: None, node: None }))
    }

    /// Returns the type of the caller and the author to record in the history. Without authentication, the
    /// author is the one that the client claims. For a token, the author is its name, preceded by the claimed
    /// author, if any. Other callers cannot claim an author.
    pub(crate) fn author(&self, claimed: Option<String>) -> Result<(Maker, String), Problem> {
        match &self.identity {
            Identity::Anyone => {
                let author = claimed.unwrap_or_else(|| UNKNOWN.to_owned());
                let is_agent = author.starts_with(AGENT_AUTHOR_PREFIX);
                Ok((if is_agent { Maker::Agent } else { Maker::Client }, author))
            }
            // The claimed author of an unauthenticated caller is discarded.
            Identity::Nobody => Ok((Maker::Client, NOBODY.to_owned())),
            Identity::Agent(node) => Ok((Maker::Agent, format!("{AGENT_AUTHOR_PREFIX}{node}"))),
            // The user is authenticated, so that a claimed author adds nothing.
            Identity::User { name, expires: _ } => {
                let author = format!("{USER_AUTHOR_PREFIX}{name}");
                let author = if self.is_by_page() { format!("{author} {BY_PAGE}") } else { author };
                Ok((Maker::Client, author))
            }
            Identity::Token { id: _, name } => {
                let author =
                    claimed.map_or_else(|| name.clone(), |claim| format!("{claim} via token {name}"));
                let author = if self.is_by_page() { format!("{author} {BY_PAGE}") } else { author };
                if author.chars().count() > AUTHOR_LENGTH_MAX {
                    let detail = format!(
                        "the header `X-Tidegate-Author` with the name of the token must be at most {AUTHOR_LENGTH_MAX} characters"
                    );
                    return Err(Problem::bad_request(detail));
                }
                Ok((Maker::Client, author))
            }
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::Anyone => f.write_str("anyone"),
            Identity::Nobody => f.write_str("nobody"),
            Identity::Agent(node) => write!(f, "the agent of node {node}"),
            Identity::Token { id: _, name } => write!(f, "token {name}"),
            Identity::User { name, expires: _ } => write!(f, "user {name}"),
        }
    }
}

/// Creates the problem response for a missing or invalid credential.
pub(crate) fn unauthenticated(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail).hint("send `Authorization: Bearer` with a token")
}

/// Creates the problem response (status 403) for a missing permission.
pub(crate) fn forbidden(detail: String) -> Problem {
    Problem::new(Code::Forbidden, detail).hint("GET /v1/whoami returns the permissions of a token")
}

/// Returns the name of the Node whose agent the caller is, or `None` for other callers.
pub(crate) fn agent_of(identity: &Identity) -> Option<&Name> {
    match identity {
        Identity::Agent(node) => Some(node),
        Identity::Anyone | Identity::Nobody | Identity::Token { .. } | Identity::User { .. } => None,
    }
}
