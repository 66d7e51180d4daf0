//! Cache of the findings of Certificates, Gateways and routes, so that only those with changed inputs are computed
//! again for each overview.
//!
//! The findings of a route depend on its object, on the objects and compiled forms of its Services, and on the
//! Gateways. The stored status of the Gateways is computed again if a Gateway, Certificate or route changes; the reports
//! of the gateways are added for each overview, because they are few.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    cluster::compiled::CompiledService,
    http::HttpObjectKey,
    kinds::{
        resource::{Kind, Object, ObjectKey, ServiceKey},
        route::RouteSpec,
    },
    observed::{
        rollup::{
            certificate_status, changes_after, gateway_status_among, listener_uses, route_conditions,
            with_gateways,
        },
        status::GatewayStatus,
    },
    primitives::{name::Namespace, quantity::Timestamp},
    views::overview::{
        http::{self, users_of_certificates},
        memory::StatusFinding,
    },
};

use crate::state::{compiled_set::Entry, object_view::View, published::Published};

/// Cached findings of Certificates, Gateways and routes.
#[derive(Default)]
pub(crate) struct HttpFindingCache {
    gateways: Vec<CachedGateway>,
    certificates: BTreeMap<ObjectKey, CachedCertificate>,
    routes: BTreeMap<ObjectKey, CachedRoute>,
}

/// Gateway with its status from the stored objects.
struct CachedGateway {
    object: Arc<Object>,
    status: GatewayStatus,
}

/// Certificate with its finding.
struct CachedCertificate {
    object: Arc<Object>,
    finding: Option<StatusFinding>,
    /// Time from which the finding may differ.
    until: Option<Timestamp>,
}

/// Route with its findings, and the inputs from which they were computed. The references keep the inputs alive, so that
/// comparing pointers is safe.
struct CachedRoute {
    object: Arc<Object>,
    backends: Vec<BackendInputs>,
    findings: Vec<StatusFinding>,
}

/// Object and compiled form of a Service, if it has them.
struct BackendInputs {
    object: Option<Arc<Object>>,
    form: Option<Arc<Entry<CompiledService>>>,
}

impl HttpFindingCache {
    /// Adds the findings of all objects of HTTP routing. Returns the time from which they may differ although the objects
    /// and reports stay the same; `None` if time has no influence.
    pub(crate) fn gather(&mut self, view: &View<'_>, findings: &mut Vec<StatusFinding>) -> Option<Timestamp> {
        let published = view.published();
        let snapshot = &published.snapshot;
        let kinds = [Kind::Gateway, Kind::HttpRoute, Kind::TlsRoute, Kind::Certificate];
        if kinds.into_iter().all(|kind| snapshot.count(kind) == 0) {
            *self = Self::default();
            return None;
        }
        let gateways: Vec<_> = snapshot.list(Kind::Gateway, None, None).collect();
        let has_same_gateways = gateways.len() == self.gateways.len()
            && gateways.iter().zip(&self.gateways).all(|(one, cached)| Arc::ptr_eq(one, &cached.object));
        let has_new_certificates = self.gather_certificates(view, has_same_gateways, findings);
        let has_new_routes = self.gather_routes(published, has_same_gateways, findings);
        if !has_same_gateways || has_new_certificates || has_new_routes {
            let uses = listener_uses(snapshot);
            let status = |object: &Arc<Object>| {
                let spec = object.as_gateway()?;
                let status = gateway_status_among(snapshot, &uses, &object.metadata, spec);
                Some(CachedGateway { object: Arc::clone(object), status })
            };
            self.gateways = gateways.into_iter().filter_map(status).collect();
        }
        let reports = view.gateways();
        let mut keys = Vec::new();
        for CachedGateway { object, status } in &self.gateways {
            let (Some(key), Some(spec)) = (key_of(object), object.as_gateway()) else { continue };
            let status = with_gateways(status.clone(), &key, spec, reports);
            findings.extend(http::gateway(object, spec, &status, reports));
            keys.push(key);
        }
        findings.extend(http::silent_gateways(&keys, reports));
        let certificates = self.certificates.values().filter_map(|one| one.until);
        certificates.chain(reports.until).min()
    }

    /// Adds the findings of the Certificates. Returns true if a Certificate has changed.
    fn gather_certificates(
        &mut self,
        view: &View<'_>,
        has_same_gateways: bool,
        findings: &mut Vec<StatusFinding>,
    ) -> bool {
        let (snapshot, now) = (&view.published().snapshot, view.now());
        let mut before = std::mem::take(&mut self.certificates);
        let mut users = None;
        let mut has_changed = false;
        for object in snapshot.list(Kind::Certificate, None, None) {
            let (Some(key), Some(spec)) = (key_of(object), object.as_certificate()) else { continue };
            let old = before.remove(&object.key()).filter(|one| Arc::ptr_eq(&one.object, object));
            has_changed |= old.is_none();
            let is_current =
                |one: &CachedCertificate| has_same_gateways && one.until.is_none_or(|until| now < until);
            let cached = old.filter(is_current).unwrap_or_else(|| {
                let users = users.get_or_insert_with(|| users_of_certificates(snapshot));
                let gateways = users.get(&key).map(Vec::as_slice).unwrap_or_default();
                let status = certificate_status(snapshot, &object.metadata, spec, now);
                CachedCertificate {
                    object: Arc::clone(object),
                    finding: http::certificate(object, &status, gateways),
                    until: changes_after(&status, now),
                }
            });
            findings.extend(cached.finding.clone());
            self.certificates.insert(object.key(), cached);
        }
        has_changed || !before.is_empty()
    }

    /// Adds the findings of the routes. Returns true if a route has changed.
    fn gather_routes(
        &mut self,
        published: &Published,
        has_same_gateways: bool,
        findings: &mut Vec<StatusFinding>,
    ) -> bool {
        let snapshot = &published.snapshot;
        let mut before = std::mem::take(&mut self.routes);
        let mut has_changed = false;
        let tls_routes = snapshot.list(Kind::TlsRoute, None, None);
        for object in snapshot.list(Kind::HttpRoute, None, None).chain(tls_routes) {
            let (Some(spec), Some(namespace)) = (RouteSpec::of(object), &object.metadata.namespace) else {
                continue;
            };
            let backends = inputs(published, namespace, spec);
            let old = before.remove(&object.key()).filter(|one| Arc::ptr_eq(&one.object, object));
            has_changed |= old.is_none();
            let is_current = |one: &CachedRoute| has_same_gateways && is_same(&one.backends, &backends);
            let findings_of = || {
                let conditions = route_conditions(snapshot, namespace, spec);
                http::route(snapshot, object, spec, &conditions)
            };
            let found = match old.filter(is_current) {
                Some(old) => old.findings,
                None => findings_of(),
            };
            findings.extend_from_slice(&found);
            let cached = CachedRoute { object: Arc::clone(object), backends, findings: found };
            self.routes.insert(object.key(), cached);
        }
        has_changed || !before.is_empty()
    }
}

fn key_of(object: &Object) -> Option<HttpObjectKey> {
    let namespace = object.metadata.namespace.clone()?;
    Some(HttpObjectKey { namespace, name: object.metadata.name.clone() })
}

/// Returns the Services of a route, in the order in which its rules name them.
fn inputs(published: &Published, namespace: &Namespace, spec: RouteSpec<'_>) -> Vec<BackendInputs> {
    let inputs = |service: &ServiceKey| BackendInputs {
        object: published.snapshot.service(service).map(Arc::clone),
        form: published.compiled.get(service).map(Arc::clone),
    };
    spec.backends(namespace).iter().map(|backend| inputs(&backend.service)).collect()
}

fn is_same(before: &[BackendInputs], now: &[BackendInputs]) -> bool {
    let is_equal = |(before, now): (&BackendInputs, &BackendInputs)| {
        let BackendInputs { object, form } = before;
        is_same_pointer(object.as_ref(), now.object.as_ref())
            && is_same_pointer(form.as_ref(), now.form.as_ref())
    };
    before.len() == now.len() && before.iter().zip(now).all(is_equal)
}

fn is_same_pointer<T>(before: Option<&Arc<T>>, now: Option<&Arc<T>>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => Arc::ptr_eq(before, now),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
