//! Backends of routes of all kinds.

use super::{
    backend::{BackendEndpoints, BackendKey, BackendProblem, resolve_backend, resolve_bytes_backend},
    rule::{backend_keys, key},
};
use crate::{cluster::snapshot::Snapshot, kinds::route::RouteSpec, primitives::name::Namespace};

impl RouteSpec<'_> {
    /// Returns the Service ports that the route in a namespace names, those of mirrors included.
    #[must_use]
    pub fn backends(self, namespace: &Namespace) -> Vec<BackendKey> {
        match self {
            Self::Http(spec) => spec.rules.iter().flat_map(|rule| backend_keys(namespace, rule)).collect(),
            Self::Tls(_) => {
                self.shares(namespace).into_iter().flatten().map(|(backend, _)| backend).collect()
            }
        }
    }

    /// Returns the Service ports of each rule with their weights, without those of mirrors.
    #[must_use]
    pub fn shares(self, namespace: &Namespace) -> Vec<Vec<(BackendKey, u32)>> {
        let rules = self
            .rules()
            .into_iter()
            .map(|rule| rule.iter().map(|one| (key(namespace, one.service, one.port), one.weight)).collect());
        rules.collect()
    }

    /// Returns the endpoints of a backend of the route that receive new requests or connections.
    ///
    /// # Errors
    /// Returns the reason if the gateway cannot use the backend for routes of the kind.
    pub fn resolve(
        self,
        snapshot: &Snapshot,
        backend: &BackendKey,
    ) -> Result<BackendEndpoints, BackendProblem> {
        match self {
            Self::Http(_) => resolve_backend(snapshot, backend),
            Self::Tls(_) => resolve_bytes_backend(snapshot, backend),
        }
    }
}
