//! Compiled routes: an index by port, host name and path, in which the rules of one path are in the order of precedence.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::OrdMap;

use super::{
    acme::ChallengeTable,
    attach::attach,
    backend::{BackendEndpoints, BackendKey, BackendProblem, resolve_backend, resolve_bytes_backend},
    hosts::HostMap,
    objects::{HttpObjectKey, HttpObjects, ListenerUses, RouteObject},
    path::normal_path,
    refusal::{RefusalIndex, RefusingListeners},
    rule::{CompiledRule, RuleId, backend_keys},
    tls::TlsTable,
    tls_routes::{TlsRouteChange, TlsRoutes},
};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        http_route::{FieldMatch, HttpRouteMatch, HttpRouteRule, PathMatchType, RouteMethod},
        resource::{ObjectKey, ServiceKey},
        route::RouteSpec,
    },
    primitives::{
        hostname_pattern::HostnamePattern,
        quantity::{Port, Timestamp},
    },
};

/// Match of a rule, without its path and host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RouteEntry {
    pub(super) rule: Arc<CompiledRule>,
    /// Creation of the route; routes without a time are the newest.
    pub(super) created: (bool, Option<Timestamp>),
    /// Position of the match in the rule.
    pub(super) index: usize,
    pub(super) method: Option<RouteMethod>,
    /// Headers with names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
}

impl RouteEntry {
    /// Returns the key by which the entries of one path are sorted, the first one to apply first.
    fn precedence(&self) -> impl Ord + '_ {
        let RuleId { namespace, route, rule, .. } = &self.rule.id;
        (
            self.rule.refusal.is_none(),
            (self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len())),
            (self.created, namespace, route, *rule, self.index),
        )
    }
}

/// Entries of one host name by their paths, each list in the order of precedence. Clones share all data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PathIndex {
    exact: OrdMap<Box<str>, Vec<RouteEntry>>,
    /// Entries by their prefix without final slash; the prefix `/` is empty.
    prefix: OrdMap<Box<str>, Vec<RouteEntry>>,
    /// Number of the prefixes by their length in bytes.
    lengths: OrdMap<usize, usize>,
}

impl PathIndex {
    fn insert(&mut self, one: &HttpRouteMatch, entry: RouteEntry) {
        let path = &*normal_path(&one.path.value);
        let entries = match one.path.match_type {
            PathMatchType::Exact => self.exact.entry(path.into()).or_default(),
            PathMatchType::PathPrefix => {
                let prefix = path.trim_end_matches('/');
                let entries = self.prefix.entry(prefix.into()).or_default();
                if entries.is_empty() {
                    *self.lengths.entry(prefix.len()).or_default() += 1;
                }
                entries
            }
        };
        let at = entries.partition_point(|other| other.precedence() < entry.precedence());
        entries.insert(at, entry);
    }

    /// Removes the entries of a route at the path of a match.
    fn remove(&mut self, one: &HttpRouteMatch, route: &HttpObjectKey) {
        let path = &*normal_path(&one.path.value);
        let is_other = |entry: &RouteEntry| {
            entry.rule.id.namespace != route.namespace || entry.rule.id.route != route.name
        };
        let (map, path) = match one.path.match_type {
            PathMatchType::Exact => (&mut self.exact, path),
            PathMatchType::PathPrefix => (&mut self.prefix, path.trim_end_matches('/')),
        };
        let Some(entries) = map.get_mut(path) else { return };
        entries.retain(is_other);
        if !entries.is_empty() {
            return;
        }
        map.remove(path);
        if one.path.match_type == PathMatchType::PathPrefix {
            subtract(&mut self.lengths, &path.len());
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefix.is_empty()
    }

    /// Returns all entries, each with the type and value of its path.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&RouteEntry, PathMatchType, &str)> {
        let exact = self.exact.iter().map(|(path, entries)| (PathMatchType::Exact, path, entries));
        let prefix = self.prefix.iter().map(|(path, entries)| (PathMatchType::PathPrefix, path, entries));
        exact.chain(prefix).flat_map(|(match_type, path, entries)| {
            entries.iter().map(move |entry| (entry, match_type, &**path))
        })
    }

    /// Returns the entries whose path matches, in the order of precedence. `path` has the form of [`normal_path`].
    pub(super) fn candidates<'a>(&'a self, path: &str) -> impl Iterator<Item = PathCandidate<'a>> {
        let exact = self.exact.get_key_value(path).into_iter().map(|found| (usize::MAX, found));
        let slashes = path.rmatch_indices('/').map(|(at, _)| at);
        let ends = std::iter::once(path.len()).chain(slashes);
        let longest = self.lengths.get_max().map_or(0, |(length, _)| *length);
        let prefixes = ends.filter(move |end| *end <= longest).filter_map(|end| path.get(..end));
        let by_prefix =
            prefixes.filter_map(|prefix| Some((prefix.len(), self.prefix.get_key_value(prefix)?)));
        exact.chain(by_prefix).flat_map(|(rank, (matched, entries))| {
            entries.iter().map(move |entry| PathCandidate { entry, matched, rank })
        })
    }
}

/// Entry whose path matches a request.
#[derive(Clone, Copy)]
pub(super) struct PathCandidate<'a> {
    pub(super) entry: &'a RouteEntry,
    /// Path of the entry, without final slash if it is a prefix.
    pub(super) matched: &'a str,
    /// Number that is higher for more specific paths.
    pub(super) rank: usize,
}

/// Routes of the listeners of one port, by the host names of the listeners and then of the routes.
pub(super) type PortRoutes = HostMap<HostMap<PathIndex>>;

/// Routes of all listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    pub(super) ports: BTreeMap<Port, PortRoutes>,
    /// Refusals of all routes by their host names.
    pub(super) refusals: HostMap<RefusalIndex>,
    /// Number of references of the rules to each backend.
    backends: OrdMap<BackendKey, usize>,
}

impl Routes {
    /// Compiles the routes of Gateways.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>) -> Self {
        let mut routes = Self::default();
        let uses = objects.uses();
        let listeners = objects.gateways.values().flat_map(|spec| &spec.listeners);
        for listener in listeners.filter(|listener| uses.serve(listener)) {
            // A listener without routes still owns the requests for its host name.
            routes.ports.entry(listener.port).or_default().entry(listener.hostname.as_ref());
        }
        for (key, route) in &objects.routes {
            routes.add(objects, key, *route, &uses);
        }
        routes
    }

    /// Replaces a route by its new state; `None` stands for a route that does not exist. The Gateways are the same as when
    /// the old state was added.
    fn replace(
        &mut self,
        gateways: &HttpObjects<'_>,
        key: &HttpObjectKey,
        old: Option<RouteObject<'_>>,
        new: Option<RouteObject<'_>>,
    ) {
        let uses = gateways.uses();
        if let Some(old) = old {
            self.remove(gateways, key, old, &uses);
        }
        if let Some(new) = new {
            self.add(gateways, key, new, &uses);
        }
    }

    fn remove(
        &mut self,
        objects: &HttpObjects<'_>,
        key: &HttpObjectKey,
        route: RouteObject<'_>,
        uses: &ListenerUses,
    ) {
        let places = places(objects, key, route.spec, uses);
        if places.is_empty() {
            return;
        }
        let hosts = hosts_of(&places);
        for rule in &route.spec.rules {
            for one in matches_of(rule).iter().filter(|_| rule.refuse.is_some()) {
                for host in &hosts {
                    self.refusals.change(*host, |refusals| {
                        refusals.remove(one, key);
                        !refusals.is_empty()
                    });
                }
            }
            for backend in backend_keys(&key.namespace, rule) {
                subtract(&mut self.backends, &backend);
            }
            for one in matches_of(rule).iter() {
                for (port, listener, hostname) in &places {
                    let hosts = self.ports.entry(*port).or_default().entry(*listener);
                    hosts.change(*hostname, |paths| {
                        paths.remove(one, key);
                        !paths.is_empty()
                    });
                }
            }
        }
    }

    fn add(
        &mut self,
        objects: &HttpObjects<'_>,
        key: &HttpObjectKey,
        route: RouteObject<'_>,
        uses: &ListenerUses,
    ) {
        let RouteObject { created, spec } = route;
        let places = places(objects, key, spec, uses);
        if places.is_empty() {
            return;
        }
        let own_hosts = hosts_of(&places);
        let own_listeners: RefusingListeners =
            places.iter().map(|(port, listener, _)| (*port, listener.cloned())).collect();
        for (index, rule) in spec.rules.iter().enumerate() {
            let id = RuleId {
                namespace: key.namespace.clone(),
                route: key.name.clone(),
                rule: index,
                name: rule.name.clone(),
            };
            let compiled = Arc::new(CompiledRule::new(id, rule));
            for backend in backend_keys(&key.namespace, rule) {
                *self.backends.entry(backend).or_default() += 1;
            }
            for (index, one) in matches_of(rule).iter().enumerate() {
                let entry = RouteEntry {
                    rule: Arc::clone(&compiled),
                    created: (created.is_none(), created),
                    index,
                    method: one.method,
                    headers: one.headers.iter().map(|field| pair(field, true)).collect(),
                    query: one.query_params.iter().map(|field| pair(field, false)).collect(),
                };
                if let Some(refusal) = &compiled.refusal {
                    let at = (!refusal.all_listeners).then(|| Arc::clone(&own_listeners));
                    for host in &own_hosts {
                        let name = host.map_or("*", HostnamePattern::as_str);
                        self.refusals.entry(*host).insert(name, one, &entry, at.clone());
                    }
                }
                for (port, listener, hostname) in &places {
                    let hosts = self.ports.entry(*port).or_default().entry(*listener);
                    hosts.entry(*hostname).insert(one, entry.clone());
                }
            }
        }
    }

    /// Returns the ports of all listeners.
    pub fn ports(&self) -> impl Iterator<Item = Port> {
        self.ports.keys().copied()
    }

    /// Returns the backends of all rules that are ports of a Service.
    pub(super) fn backends_of<'a>(&'a self, service: &ServiceKey) -> impl Iterator<Item = &'a BackendKey> {
        ports_of(&self.backends, service)
    }

    /// Returns the backends of all rules.
    pub fn backends(&self) -> impl Iterator<Item = &BackendKey> {
        self.backends.keys()
    }
}

/// Places at which the rules of a route are found: port, host name of the listener, and host name of the route.
pub(super) type Places<'a> = BTreeSet<(Port, Option<&'a HostnamePattern>, Option<&'a HostnamePattern>)>;

/// Returns the places of a route. Several parents may name the same listener, and several Gateways the same port and host
/// name.
pub(super) fn places<'a>(
    objects: &HttpObjects<'a>,
    key: &HttpObjectKey,
    spec: impl Into<RouteSpec<'a>>,
    uses: &ListenerUses,
) -> Places<'a> {
    let spec = spec.into();
    let parents = spec.parent_refs().iter();
    let listeners =
        parents.flat_map(|parent| attach(objects, &key.namespace, spec, parent).unwrap_or_default());
    let served = listeners.filter(|one| uses.serve(one.listener));
    let places = served.flat_map(|one| {
        let listener = one.listener;
        one.hostnames.into_iter().map(|name| (listener.port, listener.hostname.as_ref(), name))
    });
    places.collect()
}

/// Returns the host names of places.
fn hosts_of<'a>(places: &Places<'a>) -> BTreeSet<Option<&'a HostnamePattern>> {
    places.iter().map(|(_, _, hostname)| *hostname).collect()
}

/// Returns the keys of a map that are ports of a Service.
pub(super) fn ports_of<'a>(
    backends: &'a OrdMap<BackendKey, usize>,
    service: &ServiceKey,
) -> impl Iterator<Item = &'a BackendKey> {
    let first = BackendKey { service: service.clone(), port: Port::MIN };
    let service = service.clone();
    let backends = backends.range(first..).map(|(backend, _)| backend);
    backends.take_while(move |backend| backend.service == service)
}

/// Returns the matches of a rule. A rule without matches has one for all requests.
fn matches_of(rule: &HttpRouteRule) -> Cow<'_, [HttpRouteMatch]> {
    if rule.matches.is_empty() { vec![HttpRouteMatch::default()].into() } else { (&rule.matches).into() }
}

/// Decreases a count, and removes it at 0.
pub(super) fn subtract<K: Ord + Clone>(counts: &mut OrdMap<K, usize>, key: &K) {
    let left = counts.get(key).map_or(0, |count| count.saturating_sub(1));
    if left == 0 {
        counts.remove(key);
    } else {
        counts.insert(key.clone(), left);
    }
}

fn pair(field: &FieldMatch, is_header: bool) -> (String, String) {
    let name = if is_header { field.name.to_ascii_lowercase() } else { field.name.clone() };
    (name, field.value.clone())
}

/// Endpoints of backends, or the reasons for which gateways cannot use the backends.
pub type ResolvedBackends = OrdMap<BackendKey, Result<Arc<BackendEndpoints>, BackendProblem>>;

/// Routes with the endpoints of their backends. Clones share all data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpTable {
    /// Routes of all listeners.
    pub routes: Arc<Routes>,
    /// Certificates of all listeners with TLS.
    pub tls: Arc<TlsTable>,
    /// TlsRoutes of all listeners.
    pub tls_routes: Arc<TlsRoutes>,
    /// Answers to the requests of ACME servers.
    pub challenges: Arc<ChallengeTable>,
    /// Endpoints of the backends of all rules of HttpRoutes.
    pub backends: ResolvedBackends,
    /// Endpoints of the backends of all TlsRoutes.
    pub tls_backends: ResolvedBackends,
}

impl HttpTable {
    /// Compiles the routes, and resolves their backends with the Services and endpoints of a state.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>, snapshot: &Snapshot) -> Self {
        let routes = Routes::compile(objects);
        let tls = Arc::new(TlsTable::compile(objects, snapshot));
        let challenges = Arc::new(ChallengeTable::compile(objects, snapshot));
        let resolve = |key| resolve_backend(snapshot, key).map(Arc::new);
        let backends = routes.backends().map(|key| (key.clone(), resolve(key))).collect();
        let tls_routes = TlsRoutes::compile(objects);
        let resolve = |key| resolve_bytes_backend(snapshot, key).map(Arc::new);
        let tls_backends = tls_routes.backends().map(|key| (key.clone(), resolve(key))).collect();
        let (routes, tls_routes) = (Arc::new(routes), Arc::new(tls_routes));
        Self { routes, tls, tls_routes, challenges, backends, tls_backends }
    }

    /// Returns the table after a change of one route. Shares all other routes with this table, so that the cost does not
    /// depend on their number.
    #[must_use]
    pub(super) fn change_route(
        &self,
        snapshot: &Snapshot,
        gateways: &HttpObjects<'_>,
        key: &ObjectKey,
        (old, new): (Option<RouteObject<'_>>, Option<RouteObject<'_>>),
    ) -> Self {
        let Some(namespace) = &key.namespace else { return self.clone() };
        let key = &HttpObjectKey { namespace: namespace.clone(), name: key.name.clone() };
        let mut next = self.clone();
        let mut routes = (*self.routes).clone();
        routes.replace(gateways, key, old, new);
        let rules = [old, new].into_iter().flatten().flat_map(|route| &route.spec.rules);
        for backend in rules.flat_map(|rule| backend_keys(&key.namespace, rule)) {
            if !routes.backends.contains_key(&backend) {
                next.backends.remove(&backend);
            } else if !next.backends.contains_key(&backend) {
                let found = resolve_backend(snapshot, &backend).map(Arc::new);
                next.backends.insert(backend, found);
            }
        }
        next.routes = Arc::new(routes);
        next
    }

    /// Returns the table after a change of some Services or of their endpoints. Shares the routes with this table.
    #[must_use]
    pub fn refresh<'a>(
        &self,
        snapshot: &Snapshot,
        services: impl IntoIterator<Item = &'a ServiceKey>,
    ) -> Self {
        let mut next = self.clone();
        let services: Vec<_> = services.into_iter().collect();
        for key in services.iter().flat_map(|service| self.tls_routes.backends_of(service)) {
            next.tls_backends.insert(key.clone(), resolve_bytes_backend(snapshot, key).map(Arc::new));
        }
        for key in services.into_iter().flat_map(|service| self.routes.backends_of(service)) {
            next.backends.insert(key.clone(), resolve_backend(snapshot, key).map(Arc::new));
        }
        next
    }

    /// Returns the table after a change of one TlsRoute. Shares all other routes with this table.
    #[must_use]
    pub(super) fn change_tls_route(
        &self,
        snapshot: &Snapshot,
        gateways: &HttpObjects<'_>,
        key: &HttpObjectKey,
        change: TlsRouteChange<'_>,
    ) -> Self {
        let mut next = self.clone();
        let mut routes = (*self.tls_routes).clone();
        for backend in routes.replace(gateways, key, change) {
            if routes.has_backend(&backend) {
                let found = resolve_bytes_backend(snapshot, &backend).map(Arc::new);
                next.tls_backends.insert(backend, found);
            } else {
                next.tls_backends.remove(&backend);
            }
        }
        next.tls_routes = Arc::new(routes);
        next
    }
}
