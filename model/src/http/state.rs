//! State from which a gateway decides requests, and its changes.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    acme::ChallengeTable,
    objects::{HttpObjectKey, HttpObjects, RouteObject},
    table::HttpTable,
    tls::TlsTable,
};
use crate::{
    cluster::{
        change::{Change, ChangeKind, ObjectChange},
        snapshot::Snapshot,
    },
    compile::affected,
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::quantity::Revision,
};

/// Objects of the cluster at one revision, with the table that follows from them. Clones share all data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpState {
    served: Arc<BTreeSet<HttpObjectKey>>,
    snapshot: Snapshot,
    table: HttpTable,
}

impl HttpState {
    /// Creates the state of a gateway that serves the Gateways `served`, or all Gateways if the set is empty.
    #[must_use]
    pub fn new(served: Arc<BTreeSet<HttpObjectKey>>, snapshot: Snapshot) -> Self {
        let table = compile(&served, &snapshot);
        Self { served, snapshot, table }
    }

    /// Returns the state after changes up to a revision. The changes need not include objects of kinds that have no
    /// influence on HTTP requests. All routes are compiled anew only if a Gateway has changed; otherwise the changed ones are
    /// replaced.
    #[must_use]
    pub fn update(&self, revision: Revision, changes: impl IntoIterator<Item = ObjectChange>) -> Self {
        let mut snapshot = self.snapshot.clone();
        let (mut services, mut routes) = (BTreeSet::new(), BTreeSet::new());
        let (mut has_new_gateways, mut has_new_certificates) = (false, false);
        for change in changes {
            let before = snapshot.clone();
            let Some(change) = snapshot.receive(change) else { continue };
            if is_route_change(&before, &change) {
                has_new_gateways |= change.object.spec.kind() == Kind::Gateway;
                routes.insert(change.object.key());
            }
            has_new_certificates |= change.object.spec.kind() == Kind::Certificate;
            services.extend(affected(&before, &snapshot, &change));
        }
        snapshot.set_revision(revision);
        let table = if has_new_gateways {
            compile(&self.served, &snapshot)
        } else {
            let mut table = self.table.refresh(&snapshot, &services);
            let is_served = |key: &HttpObjectKey| self.served.is_empty() || self.served.contains(key);
            if !routes.is_empty() || has_new_certificates {
                let gateways = HttpObjects::gateways_of(&snapshot, is_served);
                for key in &routes {
                    table = change_route(table, (&self.snapshot, &snapshot), &gateways, key);
                }
                if has_new_certificates {
                    table.tls = Arc::new(TlsTable::compile(&gateways, &snapshot));
                    table.challenges = Arc::new(ChallengeTable::compile(&gateways, &snapshot));
                }
            }
            table
        };
        Self { served: Arc::clone(&self.served), snapshot, table }
    }

    /// Returns the objects of the cluster.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the table that decides requests.
    #[must_use]
    pub const fn table(&self) -> &HttpTable {
        &self.table
    }
}

/// Returns the table after a change of one route, of which the states before and after the change are given.
fn change_route(
    table: HttpTable,
    (before, after): (&Snapshot, &Snapshot),
    gateways: &HttpObjects<'_>,
    key: &ObjectKey,
) -> HttpTable {
    if key.kind == Kind::HttpRoute {
        let change =
            (route_of(before, key, Object::as_http_route), route_of(after, key, Object::as_http_route));
        return table.change_route(after, gateways, key, change);
    }
    let Some(namespace) = key.namespace.clone() else { return table };
    let change = (route_of(before, key, Object::as_tls_route), route_of(after, key, Object::as_tls_route));
    table.change_tls_route(after, gateways, &HttpObjectKey { namespace, name: key.name.clone() }, change)
}

fn route_of<'a, S>(
    snapshot: &'a Snapshot,
    key: &ObjectKey,
    spec: impl Fn(&'a Object) -> Option<&'a S>,
) -> Option<RouteObject<'a, S>> {
    let object = snapshot.get(key)?;
    Some(RouteObject { created: object.metadata.creation_timestamp, spec: spec(object)? })
}

fn compile(served: &BTreeSet<HttpObjectKey>, snapshot: &Snapshot) -> HttpTable {
    let is_served = |key: &HttpObjectKey| served.is_empty() || served.contains(key);
    HttpTable::compile(&HttpObjects::of(snapshot, is_served), snapshot)
}

/// Returns true if a change may alter the compiled routes.
fn is_route_change(before: &Snapshot, change: &Change) -> bool {
    let object = &change.object;
    let is_routing = matches!(object.spec.kind(), Kind::Gateway | Kind::HttpRoute | Kind::TlsRoute);
    let is_same = change.kind != ChangeKind::Deleted
        && before.get(&object.key()).is_some_and(|old| {
            old.spec == object.spec && old.metadata.creation_timestamp == object.metadata.creation_timestamp
        });
    is_routing && !is_same
}
