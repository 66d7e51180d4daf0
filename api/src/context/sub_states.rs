//! Parts of the server state for handlers that need a few fields only. The signature of such a handler shows
//! the state that it reads and changes.

use std::sync::Arc;

use axum::extract::FromRef;
use model::{
    kinds::resource::{Kind, ObjectKey},
    primitives::name::Name,
};
use store::Store;

use super::server_state::ServerState;
use crate::{
    base::clock_and_random::Source,
    security::{Authenticator, authority::Authority, vault::Vault},
    state::{
        leadership::Leadership,
        object_view::View,
        observations::Observations,
        published::{Hub, Published},
        queries::NodeQueries,
    },
    telemetry::metrics::Metrics,
};

/// Fields for handlers that return objects with their status.
#[derive(Clone)]
pub(crate) struct ReadState {
    /// Access to the newest committed state of the objects and the data derived from it.
    pub(crate) hub: Arc<Hub>,
    /// Reports of the agents, and data merged from them.
    pub(crate) observations: Arc<Observations>,
    /// Clock of the server.
    pub(crate) source: Arc<dyn Source>,
}

/// Fields for the handler of agent reports.
#[derive(Clone)]
pub(crate) struct ReportState {
    /// Access to the newest committed state of the objects and the data derived from it.
    pub(crate) hub: Arc<Hub>,
    /// Reports of the agents, and data merged from them.
    pub(crate) observations: Arc<Observations>,
    /// Store, to which the times of the last reports are written.
    pub(crate) store: Arc<dyn Store>,
    /// Metrics of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// Clock of the server.
    pub(crate) source: Arc<dyn Source>,
}

/// Fields for handlers that query agents.
#[derive(Clone)]
pub(crate) struct QueryState {
    /// Access to the newest committed state of the objects and the data derived from it.
    pub(crate) hub: Arc<Hub>,
    /// Registry of the queries that wait for replies of agents.
    pub(crate) queries: Arc<NodeQueries>,
    /// Clock of the server.
    pub(crate) source: Arc<dyn Source>,
}

/// Fields for handlers of the health guard, which limits how many endpoints may leave service at once.
#[derive(Clone)]
pub(crate) struct GuardState {
    /// Reports of the agents and data merged from them, including the health guard.
    pub(crate) observations: Arc<Observations>,
    /// Leadership of this server among the control servers. Only the leader's guard keeps unhealthy endpoints in
    /// service.
    pub(crate) leadership: Leadership,
    /// Clock of the server.
    pub(crate) source: Arc<dyn Source>,
}

/// Fields for handlers of tokens and roles.
#[derive(Clone)]
pub(crate) struct CredentialState {
    /// Authenticator, which caches tokens and roles.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Vault: the part of the store that holds tokens and roles.
    pub(crate) vault: Arc<Vault>,
    /// Clock and random numbers of the server.
    pub(crate) source: Arc<dyn Source>,
}

/// Fields for handlers of agent certificates and join tokens.
#[derive(Clone)]
pub(crate) struct EnrollmentState {
    /// Access to the newest committed state of the objects, for the existing Nodes.
    pub(crate) hub: Arc<Hub>,
    /// Authenticator, which limits failed attempts.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Vault: the part of the store that holds certificate records and join tokens.
    pub(crate) vault: Arc<Vault>,
    /// Certificate authority and validity of agent certificates in seconds; `None` without TLS.
    pub(crate) authority: Option<(Arc<Authority>, i64)>,
    /// Time in seconds after its expiry during which an agent certificate can be renewed; 0 without TLS.
    pub(crate) renewal_grace_secs: i64,
    /// Metrics of the server.
    pub(crate) metrics: Arc<Metrics>,
    /// Clock and random numbers of the server.
    pub(crate) source: Arc<dyn Source>,
}

impl EnrollmentState {
    /// Returns true if a Node of this name exists.
    pub(crate) fn has_node(&self, node: &Name) -> bool {
        let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
        self.hub.load().snapshot.get(&key).is_some()
    }
}

impl ReadState {
    /// Returns a view of the newest published state, combined with the current reports of agents.
    pub(crate) fn view(&self) -> View<'_> {
        self.view_of(self.hub.load())
    }

    /// Returns a view of the given state, combined with the current reports of agents.
    pub(crate) fn view_of(&self, published: Arc<Published>) -> View<'_> {
        View::new(published, &self.observations, self.source.now())
    }
}

impl FromRef<Arc<ServerState>> for ReadState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        Self {
            hub: Arc::clone(&app.hub),
            observations: Arc::clone(&app.observations),
            source: Arc::clone(&app.source),
        }
    }
}

impl FromRef<Arc<ServerState>> for ReportState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        Self {
            hub: Arc::clone(&app.hub),
            observations: Arc::clone(&app.observations),
            store: Arc::clone(&app.store),
            metrics: Arc::clone(&app.metrics),
            source: Arc::clone(&app.source),
        }
    }
}

impl FromRef<Arc<ServerState>> for QueryState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        Self { hub: Arc::clone(&app.hub), queries: Arc::clone(&app.queries), source: Arc::clone(&app.source) }
    }
}

impl FromRef<Arc<ServerState>> for GuardState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        Self {
            observations: Arc::clone(&app.observations),
            leadership: app.leadership.clone(),
            source: Arc::clone(&app.source),
        }
    }
}

impl FromRef<Arc<ServerState>> for CredentialState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        Self {
            authenticator: Arc::clone(&app.authenticator),
            vault: Arc::clone(&app.vault),
            source: Arc::clone(&app.source),
        }
    }
}

impl FromRef<Arc<ServerState>> for EnrollmentState {
    fn from_ref(app: &Arc<ServerState>) -> Self {
        let tls = app.settings.tls.as_ref();
        let authority = app.authority.as_ref().zip(tls);
        Self {
            hub: Arc::clone(&app.hub),
            authenticator: Arc::clone(&app.authenticator),
            vault: Arc::clone(&app.vault),
            authority: authority.map(|(authority, tls)| (Arc::clone(authority), tls.agent_life_secs)),
            renewal_grace_secs: tls.map(|tls| tls.agent_renewal_grace_secs).unwrap_or_default(),
            metrics: Arc::clone(&app.metrics),
            source: Arc::clone(&app.source),
        }
    }
}
