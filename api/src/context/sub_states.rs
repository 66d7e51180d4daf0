//! Parts of the server state for handlers that need a few fields only. The signature of such a handler shows
//! the state that it reads and changes.

use std::sync::Arc;

use axum::extract::FromRef;
use store::Store;

use super::server_state::ServerState;
use crate::{
    base::clock_and_random::Source,
    security::{Authenticator, ca::Authority, vault::Vault},
    state::{
        leadership::Leadership,
        object_view::View,
        observations::Observations,
        published::{Hub, Published},
        queries::NodeQueries,
    },
    telemetry::metrics::Metrics,
};

/// State for reads of objects with their status.
#[derive(Clone)]
pub(crate) struct ReadState {
    /// Holder of the published state.
    pub(crate) hub: Arc<Hub>,
    /// Data reported by the agents.
    pub(crate) observations: Arc<Observations>,
    /// Clock.
    pub(crate) source: Arc<dyn Source>,
}

/// State for reports of agents.
#[derive(Clone)]
pub(crate) struct ReportState {
    /// Holder of the published state.
    pub(crate) hub: Arc<Hub>,
    /// Data reported by the agents.
    pub(crate) observations: Arc<Observations>,
    /// Store, which holds the last-seen times.
    pub(crate) store: Arc<dyn Store>,
    /// Metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// Clock.
    pub(crate) source: Arc<dyn Source>,
}

/// State for queries to agents.
#[derive(Clone)]
pub(crate) struct QueryState {
    /// Holder of the published state.
    pub(crate) hub: Arc<Hub>,
    /// Queries in progress.
    pub(crate) queries: Arc<NodeQueries>,
    /// Clock.
    pub(crate) source: Arc<dyn Source>,
}

/// State for the health guard.
#[derive(Clone)]
pub(crate) struct GuardState {
    /// Data reported by the agents, with the guard.
    pub(crate) observations: Arc<Observations>,
    /// Leadership; only the leader holds endpoints.
    pub(crate) leadership: Leadership,
    /// Clock.
    pub(crate) source: Arc<dyn Source>,
}

/// State for tokens and roles.
#[derive(Clone)]
pub(crate) struct CredentialState {
    /// Authentication.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Vault, which holds tokens and roles.
    pub(crate) vault: Arc<Vault>,
    /// Clock and random numbers.
    pub(crate) source: Arc<dyn Source>,
}

/// State for certificates and join tokens of agents.
#[derive(Clone)]
pub(crate) struct EnrollmentState {
    /// Vault, which holds certificates and join tokens.
    pub(crate) vault: Arc<Vault>,
    /// Certificate authority and validity of agent certificates in seconds; `None` without TLS.
    pub(crate) authority: Option<(Arc<Authority>, i64)>,
    /// Clock and random numbers.
    pub(crate) source: Arc<dyn Source>,
}

impl ReadState {
    /// Returns the newest state joined with the data of the nodes.
    pub(crate) fn view(&self) -> View<'_> {
        self.view_of(self.hub.load())
    }

    /// Returns a state joined with the data of the nodes.
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
            vault: Arc::clone(&app.vault),
            authority: authority.map(|(authority, tls)| (Arc::clone(authority), tls.agent_life_secs)),
            source: Arc::clone(&app.source),
        }
    }
}
