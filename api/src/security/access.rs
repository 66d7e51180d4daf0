//! What the maker of a request may do: who it is, with the sum of what is bound to it. Known to everything that runs for
//! the request.

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
    sessions::Key,
    tokens::Binding,
};
use crate::base::error::{Code, Problem};

tokio::task_local! {
    static ACCESS: Arc<Access>;
}

/// The author of who says nothing and need not prove anything.
const UNKNOWN: &str = "unknown";
/// The author of who proves nothing and would have to.
const NOBODY: &str = "nobody";

/// What is added to an author who does it on the status page.
const BY_PAGE: &str = "by the page";

/// A role with its limits.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The role.
    pub(crate) role: Arc<Role>,
    /// Its limits.
    pub(crate) binding: Binding,
}

/// What the maker of a request may do.
#[derive(Debug)]
pub(crate) struct Access {
    identity: Identity,
    grants: Vec<Grant>,
    /// The session of the status page that it rests on, if it does.
    session: Option<Key>,
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The namespace.
    pub(crate) namespace: Option<&'a Namespace>,
    /// The object.
    pub(crate) name: Option<String>,
    /// The node.
    pub(crate) node: Option<String>,
}

/// What the request that runs may do; nothing outside of one.
pub(crate) fn current() -> Arc<Access> {
    ACCESS.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Access::of(Identity::Nobody)))
}

/// Runs what is done for a request.
pub(crate) async fn scope<T>(access: Arc<Access>, serve: impl Future<Output = T>) -> T {
    ACCESS.scope(access, serve).await
}

impl Grant {
    /// Whether it allows a verb on a subject in a namespace; without one, on what is in none or in all.
    pub(crate) fn allows(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        covers(self.binding.namespaces.as_ref(), namespace) && self.role.allows(verb, subject, namespace)
    }

    fn allows_somewhere(&self, verb: Verb, subject: Option<Subject>) -> bool {
        self.role.allows_somewhere(verb, subject, self.binding.namespaces.as_ref())
    }
}

impl Access {
    /// Somebody to whom nothing is bound.
    pub(crate) fn of(identity: Identity) -> Self {
        Self { identity, grants: Vec::new(), session: None }
    }

    /// The holder of a token.
    pub(crate) fn of_token(id: String, name: String, grants: Vec<Grant>) -> Self {
        Self { identity: Identity::Token { id, name }, grants, session: None }
    }

    /// The same by a session of the status page.
    pub(crate) fn by_session(self, session: Key) -> Self {
        Self { session: Some(session), ..self }
    }

    /// The session that it rests on.
    pub(crate) fn session(&self) -> Option<&Key> {
        self.session.as_ref()
    }

    /// Whether it rests on a session of the status page.
    pub(crate) fn is_by_page(&self) -> bool {
        self.session.is_some()
    }

    /// Who it is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What is bound to it.
    pub(crate) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Keeps what one maker left apart from what others leave under the same name.
    pub(crate) fn key(&self) -> String {
        match &self.identity {
            Identity::Anyone => String::new(),
            Identity::Nobody => "nobody/".to_owned(),
            Identity::Agent(node) => format!("agent/{node}/"),
            Identity::Token { id, name: _ } => format!("token/{id}/"),
        }
    }

    /// Whether a verb on a subject is allowed in a namespace; without one, on what is in none or in all.
    pub(crate) fn may(&self, verb: Verb, subject: Subject, namespace: Option<&Namespace>) -> bool {
        match &self.identity {
            Identity::Anyone => true,
            // What agents may is decided by the node, in `check` and where a Node is written.
            Identity::Nobody | Identity::Agent(_) => false,
            Identity::Token { .. } => self.grants.iter().any(|grant| grant.allows(verb, subject, namespace)),
        }
    }

    /// Whether objects of a kind in a namespace may be seen.
    pub(crate) fn may_object(&self, verb: Verb, kind: Kind, namespace: Option<&Namespace>) -> bool {
        self.may(verb, Subject::Object(kind), namespace)
    }

    fn may_somewhere(&self, verb: Verb, subject: Option<Subject>) -> bool {
        match &self.identity {
            Identity::Anyone => true,
            Identity::Nobody | Identity::Agent(_) => false,
            Identity::Token { .. } => self.grants.iter().any(|grant| grant.allows_somewhere(verb, subject)),
        }
    }

    /// Whether the same is bound to both.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let is_as =
            |(one, other): (&Grant, &Grant)| one.binding == other.binding && one.role.body == other.role.body;
        self.identity == other.identity
            && self.grants.len() == other.grants.len()
            && self.grants.iter().zip(&other.grants).all(is_as)
    }

    /// Whether everything is allowed to it that a grant allows.
    pub(crate) fn has_all_of(&self, grant: &Grant) -> bool {
        if self.identity == Identity::Anyone {
            return true;
        }
        let named: BTreeSet<&Namespace> =
            grant.role.namespaces().chain(grant.binding.namespaces.iter().flatten()).collect();
        let places = || named.iter().copied().map(Some).chain([None]);
        let is_had = |verb: Verb, subject: Subject, place: Option<&Namespace>| {
            // What is limited in its addresses may not be handed on without the limits.
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

    /// Whether a route may be called.
    pub(crate) fn check(&self, permission: Permission, place: &Place<'_>) -> Result<(), Problem> {
        if permission == Permission::Open || self.identity == Identity::Anyone {
            return Ok(());
        }
        if self.identity == Identity::Nobody {
            return Err(unauthenticated("this needs a token, or the certificate of an agent"));
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

    /// The agent of a node may read its Node and register it; what it writes there is looked at when it is written.
    fn is_own_node(&self, verb: Verb, subject: Subject, place: &Place<'_>) -> bool {
        match (verb, subject) {
            (Verb::Get, Subject::Object(Kind::Node)) => self.is_node(place.name.as_deref()),
            (Verb::Create, Subject::Object(Kind::Node)) => matches!(self.identity, Identity::Agent(_)),
            _ => false,
        }
    }

    fn is_node(&self, named: Option<&str>) -> bool {
        match &self.identity {
            Identity::Agent(node) => named == Some(node.as_str()),
            Identity::Anyone | Identity::Nobody | Identity::Token { .. } => false,
        }
    }

    fn refuse(&self, permission: Permission, place: &Place<'_>) -> Problem {
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
            Permission::Agent => "do what only agents may".to_owned(),
            Permission::OwnNode => "do what only the agent of that node may".to_owned(),
        };
        forbidden(format!("{self} may not {what}"))
    }

    /// Refuses what may not be done to a subject in a namespace.
    pub(crate) fn need(
        &self,
        verb: Verb,
        subject: Subject,
        namespace: Option<&Namespace>,
    ) -> Result<(), Problem> {
        if self.may(verb, subject, namespace) {
            return Ok(());
        }
        Err(self.refuse(Permission::On(verb, subject), &Place { namespace, name: None, node: None }))
    }

    /// Who the history names: what was proven, with what is claimed besides.
    pub(crate) fn author(&self, claimed: Option<String>) -> Result<(Maker, String), Problem> {
        match &self.identity {
            Identity::Anyone => {
                let author = claimed.unwrap_or_else(|| UNKNOWN.to_owned());
                let is_agent = author.starts_with(AGENT_AUTHOR_PREFIX);
                Ok((if is_agent { Maker::Agent } else { Maker::Client }, author))
            }
            // A claim of somebody who had to prove it and did not is not repeated.
            Identity::Nobody => Ok((Maker::Client, NOBODY.to_owned())),
            Identity::Agent(node) => Ok((Maker::Agent, format!("{AGENT_AUTHOR_PREFIX}{node}"))),
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
        }
    }
}

/// Nothing, or nothing that counts, was proven.
pub(crate) fn unauthenticated(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail).hint("send `Authorization: Bearer` with a token")
}

/// It is known who asks, and that is not enough.
pub(crate) fn forbidden(detail: String) -> Problem {
    Problem::new(Code::Forbidden, detail).hint("GET /v1/whoami says what may be done with a token")
}

/// The Node of an agent, if the request is that of one.
pub(crate) fn agent_of(identity: &Identity) -> Option<&Name> {
    match identity {
        Identity::Agent(node) => Some(node),
        Identity::Anyone | Identity::Nobody | Identity::Token { .. } => None,
    }
}
