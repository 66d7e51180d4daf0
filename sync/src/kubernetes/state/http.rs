//! HTTP routing of the cluster: Gateways, HTTPRoutes, GRPCRoutes, TLSRoutes and Ingresses of Tidegate's classes, with the Services and Secrets that
//! they name.
//!
//! A change of a route costs this route. Ingresses of one namespace are translated together, because they share
//! Gateways. A change of a Gateway costs the routes that name it, and a change of a class, which is rare, costs all objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use model::{
    http::{AttachProblem, HttpObjectKey, HttpObjects, attach},
    kinds::{
        gateway::ServiceRef,
        http_route::ParentRef,
        resource::{Kind, Object, ObjectKey, Spec},
        route::RouteSpec,
    },
    primitives::name::{Name, Namespace},
};
use serde_json::Value;
use translate::json::{items, text};

use super::{ClusterState, Id};
use crate::kubernetes::{
    resource::Resource,
    translate::{
        Finding, TranslationResult,
        gateway_api::{
            self, HTTP_CONTROLLER, HttpClasses, IngressTranslation, ParentTranslation, ReferenceGrants,
            RouteKind, RouteProblem, RouteTranslation, copy_of, is_own_class, parent_gateway,
        },
    },
};

/// Maximum number of Secrets with certificates, each of which is polled every few seconds.
const CERTIFICATES_MAX: usize = 1024;

/// Secrets with certificates as read from the cluster; `None` stands for a Secret that does not exist.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CertificateSecrets(pub BTreeMap<Id, Option<Value>>);

impl fmt::Debug for CertificateSecrets {
    /// Formats the names only, because the contents are private keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Object of HTTP routing that Tidegate handles, with the data needed to write its status.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpEntry {
    /// Object as read from the cluster, without managed fields.
    pub object: Value,
    /// Objects in Tidegate that were derived from it.
    pub keys: Vec<ObjectKey>,
    /// Problems to report.
    pub findings: Vec<Finding>,
    /// Gateways of Tidegate that a route names.
    pub parents: Vec<OwnParent>,
    /// Reason for which a backend of a route cannot be used.
    pub unresolved: Option<RouteProblem>,
    /// Services whose load balancer addresses are those of a Gateway or Ingress, the preferred one first.
    pub publishers: Vec<Id>,
    /// Secrets of other namespaces to which a Gateway may refer.
    pub permitted: BTreeSet<Id>,
}

/// Parent of a route that is a Gateway of Tidegate.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnParent {
    /// Reference as in the route.
    pub reference: Value,
    /// Reason for which the parent does not accept the route.
    pub refused: Option<RouteProblem>,
}

/// State of HTTP routing.
#[derive(Debug, Default)]
pub(super) struct HttpSide {
    classes: HttpClasses,
    grants: ReferenceGrants,
    certificates: Option<CertificateSecrets>,
    /// Secrets with certificates that Gateways and Ingresses name, at most [`CERTIFICATES_MAX`]. Kept, because it is asked for
    /// after each change of any kind.
    named_certificates: BTreeSet<Id>,
    /// Namespaces of the Gateways and Ingresses that name each of these Secrets.
    certificate_users: BTreeMap<Id, BTreeSet<String>>,
    /// Services that each route, and the Ingresses of each namespace, name.
    backends: BTreeMap<(Resource, Id), BTreeSet<Id>>,
    /// Number of the references to each Service by the namespace of the routes.
    references: BTreeMap<Id, BTreeMap<String, usize>>,
    /// Service whose addresses are those of all Gateways and Ingresses.
    publisher: Option<Id>,
}

impl HttpSide {
    /// Returns true if a route or Ingress names the Service.
    pub(super) fn is_backend(&self, service: &Id) -> bool {
        self.references.contains_key(service)
    }

    /// Returns the other namespaces with routes that name a Service, in each of which it has a copy.
    pub(super) fn copies_of(&self, service: &Id) -> impl Iterator<Item = &str> {
        let namespaces = self.references.get(service).into_iter().flat_map(BTreeMap::keys);
        namespaces.map(String::as_str).filter(|namespace| *namespace != service.namespace)
    }
}

impl ClusterState {
    /// Sets the Service whose load balancer addresses are those of all Gateways and Ingresses. By default it is the Service with
    /// the namespace and name of a Gateway.
    #[must_use]
    pub fn with_publisher(mut self, publisher: Option<Id>) -> Self {
        self.http.publisher = publisher;
        self
    }

    /// Returns the Secrets with certificates that must be read, at most 1024, or `None` while classes, Gateways and Ingresses
    /// have not been listed.
    #[must_use]
    pub fn certificates(&self) -> Option<&BTreeSet<Id>> {
        let is_read = |resource: &Resource| self.read.contains(resource);
        let needed = [Resource::IngressClass, Resource::GatewayClass, Resource::Ingress, Resource::Gateway];
        needed.iter().all(is_read).then_some(&self.http.named_certificates)
    }

    fn name_certificates(&mut self) {
        let mut users: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
        for object in self.own_objects() {
            for id in gateway_api::named_certificates(&self.http.grants, object) {
                users.entry(id).or_default().insert(text(object, "/metadata/namespace"));
            }
        }
        self.http.named_certificates = users.keys().take(CERTIFICATES_MAX).cloned().collect();
        let before = std::mem::replace(&mut self.http.certificate_users, users);
        let users = &self.http.certificate_users;
        let all: BTreeSet<&Id> = before.keys().chain(users.keys()).collect();
        let changed: Vec<Id> =
            all.into_iter().filter(|id| before.get(*id) != users.get(*id)).cloned().collect();
        if let Some(read) = self.http.certificates.clone().filter(|_| !changed.is_empty()) {
            changed.iter().for_each(|id| self.certificate(id, &read));
        }
    }

    /// Translates a Secret with a certificate for the namespaces of its users.
    fn certificate(&mut self, id: &Id, secrets: &CertificateSecrets) {
        let mut made = TranslationResult::default();
        if let Some(secret) = secrets.0.get(id).and_then(Option::as_ref) {
            for namespace in self.http.certificate_users.get(id).into_iter().flatten() {
                let is_own = *namespace == id.namespace;
                let copy = if is_own { secret.clone() } else { copy_of(secret, namespace) };
                let TranslationResult { objects, findings, documents: _ } =
                    gateway_api::certificate(&self.settings, &copy);
                made.objects.extend(objects);
                made.findings = findings;
            }
        }
        self.take(Resource::CertificateSecret, id, made);
    }

    fn own_objects(&self) -> impl Iterator<Item = &Value> {
        let gateways = self.known(Resource::Gateway).map(|(_, object)| object);
        let gateways = gateways.filter(|object| self.http.classes.own_gateway(object));
        let ingresses = self.known(Resource::Ingress).map(|(_, object)| object);
        gateways.chain(ingresses.filter(|object| self.http.classes.own_ingress(object)))
    }

    pub(super) fn has_certificates(&self) -> bool {
        let read = self.http.certificates.as_ref();
        self.certificates()
            .is_some_and(|named| read.is_some_and(|read| named.iter().all(|id| read.0.contains_key(id))))
    }

    pub(super) fn apply_certificates(&mut self, secrets: CertificateSecrets) {
        let old = self.http.certificates.replace(secrets.clone()).unwrap_or_default();
        for id in old.0.keys().filter(|id| !secrets.0.contains_key(id)) {
            self.take(Resource::CertificateSecret, id, TranslationResult::default());
        }
        for (id, _) in secrets.0.iter().filter(|(id, secret)| old.0.get(id) != Some(*secret)) {
            self.certificate(id, &secrets);
        }
    }

    /// Translates the changed objects of a kind of HTTP routing again, and the objects that depend on them.
    pub(super) fn follow_http(&mut self, resource: Resource, touched: &BTreeSet<Id>) {
        match resource {
            Resource::GatewayClass | Resource::IngressClass => self.follow_classes(),
            Resource::Gateway => touched.iter().for_each(|id| self.gateway(id)),
            Resource::ReferenceGrant => {
                let grants =
                    ReferenceGrants::of(self.known(Resource::ReferenceGrant).map(|(_, grant)| grant));
                if grants != self.http.grants {
                    self.http.grants = grants;
                    self.gateways();
                }
            }
            Resource::HttpRoute => touched.iter().for_each(|id| self.route(RouteKind::Http, id)),
            Resource::GrpcRoute => touched.iter().for_each(|id| self.route(RouteKind::Grpc, id)),
            Resource::TlsRoute => touched.iter().for_each(|id| self.route(RouteKind::Tls, id)),
            Resource::Ingress => {
                let namespaces: BTreeSet<_> = touched.iter().map(|id| id.namespace.clone()).collect();
                namespaces.iter().for_each(|namespace| self.ingresses(namespace));
            }
            Resource::Service
            | Resource::EndpointSlice
            | Resource::Node
            | Resource::Namespace
            | Resource::Pod
            | Resource::NetworkPolicy
            | Resource::IpAddressPool
            | Resource::L2Advertisement
            | Resource::BgpAdvertisement
            | Resource::BgpPeer
            | Resource::BfdProfile
            | Resource::Community
            | Resource::Secret
            | Resource::CertificateSecret => {}
        }
        if !matches!(resource, Resource::HttpRoute | Resource::GrpcRoute | Resource::TlsRoute) {
            self.name_certificates();
        }
    }

    /// Translates the Ingresses in the namespaces of changed Services again: a named port may have another number.
    pub(super) fn follow_services(&mut self, touched: &BTreeSet<Id>) {
        let namespaces: BTreeSet<_> = touched.iter().map(|id| id.namespace.clone()).collect();
        for namespace in namespaces {
            if !self.own_ingresses(&namespace).is_empty() {
                self.ingresses(&namespace);
            }
        }
    }

    fn follow_classes(&mut self) {
        let values = |resource| self.known(resource).map(|(_, object)| object);
        let classes = HttpClasses::of(values(Resource::GatewayClass), values(Resource::IngressClass));
        let own: Vec<_> = self
            .known(Resource::GatewayClass)
            .map(|(id, class)| (id.clone(), Some(class.clone()).filter(is_own_class)))
            .collect();
        let known: Vec<_> = self.published.http.keys().cloned().collect();
        let is_gone = |id: &Id| own.iter().all(|(own, _)| own != id);
        for key in known.iter().filter(|(of, id)| *of == Resource::GatewayClass && is_gone(id)) {
            self.published.http.remove(key);
        }
        for (id, class) in own {
            let entry = class.map(|object| entry(object, Vec::new(), Vec::new()));
            self.publish_http(Resource::GatewayClass, &id, entry);
        }
        if classes == self.http.classes {
            return;
        }
        self.http.classes = classes;
        self.gateways();
        let namespaces: BTreeSet<_> =
            self.known(Resource::Ingress).map(|(id, _)| id.namespace.clone()).collect();
        namespaces.iter().for_each(|namespace| self.ingresses(namespace));
    }

    fn gateways(&mut self) {
        let gateways: Vec<_> = self.known(Resource::Gateway).map(|(id, _)| id.clone()).collect();
        gateways.iter().for_each(|id| self.gateway(id));
    }

    fn gateway(&mut self, id: &Id) {
        let own = self.get(Resource::Gateway, id).filter(|object| self.http.classes.own_gateway(object));
        let own = own.cloned();
        let made = own.as_ref().map(|object| gateway_api::gateway(&self.settings, &self.http.grants, object));
        let mut made = made.unwrap_or_default();
        self.name_publisher(&mut made.objects);
        let entry = own.map(|object| HttpEntry {
            publishers: self.http.publisher.iter().chain([id]).cloned().collect(),
            permitted: gateway_api::named_certificates(&self.http.grants, &object)
                .into_iter()
                .filter(|secret| secret.namespace != id.namespace)
                .collect(),
            ..entry(object, made.objects.iter().map(Object::key).collect(), made.findings.clone())
        });
        self.publish_http(Resource::Gateway, id, entry);
        self.take(Resource::Gateway, id, made);
        for kind in RouteKind::ALL {
            let naming = self.known(resource_of(kind)).filter(|(_, route)| {
                let mut parents = items(route, "/spec/parentRefs").iter();
                parents.any(|parent| parent_gateway(route, parent).as_ref() == Some(id))
            });
            let naming: Vec<_> = naming.map(|(id, _)| id.clone()).collect();
            naming.iter().for_each(|id| self.route(kind, id));
        }
    }

    /// Names the Service of `--publish-service` in the Gateways among translated objects.
    fn name_publisher(&self, objects: &mut [Object]) {
        let Some(publisher) = &self.http.publisher else { return };
        let namespace = Namespace::parse(&self.settings.name(&publisher.namespace)).ok();
        let (Some(namespace), Ok(name)) = (namespace, Name::parse(&publisher.name)) else { return };
        for object in objects {
            if let Spec::Gateway(spec) = &mut object.spec {
                spec.published_by =
                    Some(ServiceRef { namespace: Some(namespace.clone()), name: name.clone() });
            }
        }
    }

    fn own_gateway(&self, id: &Id) -> Option<&Value> {
        self.get(Resource::Gateway, id).filter(|object| self.http.classes.own_gateway(object))
    }

    fn route(&mut self, kind: RouteKind, id: &Id) {
        let resource = resource_of(kind);
        let Some(route) = self.get(resource, id).cloned() else {
            self.publish_http(resource, id, None);
            self.take(resource, id, TranslationResult::default());
            return self.set_backends((resource, id.clone()), BTreeSet::new());
        };
        let translated =
            gateway_api::route(&self.settings, kind, &self.http.grants, &route, |id| self.own_gateway(id));
        let parents = self.parents(&translated);
        let RouteTranslation { result, parents: _, backends, rejected: _, unresolved } = translated;
        let has_status = items(&route, "/status/parents")
            .iter()
            .any(|parent| text(parent, "/controllerName") == HTTP_CONTROLLER);
        let entry = (has_status || !parents.is_empty()).then(|| HttpEntry {
            parents,
            unresolved,
            ..entry(route, result.objects.iter().map(Object::key).collect(), result.findings.clone())
        });
        self.publish_http(resource, id, entry);
        self.take(resource, id, result);
        self.set_backends((resource, id.clone()), backends);
    }

    /// Returns the parents of a route that are Gateways of Tidegate, with the reasons for which they do not accept the route.
    fn parents(&self, translated: &RouteTranslation) -> Vec<OwnParent> {
        let object = translated.result.objects.first();
        let spec =
            object.and_then(|object| Some((object.metadata.namespace.clone()?, RouteSpec::of(object)?)));
        let refused = |references: &[Value]| {
            let (namespace, spec) = spec.as_ref()?;
            let parents = references.iter().filter_map(|one| serde_json::from_value(one.clone()).ok());
            let refused: Vec<_> =
                parents.map(|parent: ParentRef| self.refused(namespace, *spec, &parent)).collect();
            // One listener that accepts the route is enough.
            refused.into_iter().collect::<Option<Vec<_>>>()?.into_iter().next()
        };
        let parents = translated.parents.iter().map(|ParentTranslation { reference, translated: own }| {
            let refused = match (&translated.rejected, own) {
                (Some(problem), _) | (None, Err(problem)) => Some(problem.clone()),
                (None, Ok(references)) => refused(references),
            };
            OwnParent { reference: reference.clone(), refused }
        });
        parents.collect()
    }

    fn refused(
        &self,
        namespace: &Namespace,
        spec: RouteSpec<'_>,
        parent: &ParentRef,
    ) -> Option<RouteProblem> {
        let of = parent.namespace.as_ref().unwrap_or(namespace).clone();
        let key = ObjectKey { kind: Kind::Gateway, namespace: Some(of.clone()), name: parent.name.clone() };
        let gateway = self.objects_wanted.get(&key).and_then(|object| object.as_gateway());
        let key = HttpObjectKey { namespace: of, name: parent.name.clone() };
        let gateways = gateway.map(|gateway| (key, gateway)).into_iter().collect();
        let objects = HttpObjects { gateways, ..HttpObjects::default() };
        let (reason, message) = match attach(&objects, namespace, spec, parent).err()? {
            AttachProblem::NoMatchingParent => {
                ("NoMatchingParent", "no served listener has the name and port of the reference")
            }
            AttachProblem::NotAllowedByListeners => {
                ("NotAllowedByListeners", "the listeners do not allow routes of this kind and namespace")
            }
            AttachProblem::NoMatchingListenerHostname => {
                ("NoMatchingListenerHostname", "no listener has a host name in common with the route")
            }
        };
        Some(RouteProblem { reason, message: message.to_owned() })
    }

    fn own_ingresses(&self, namespace: &str) -> Vec<Value> {
        let all = self.known(Resource::Ingress).filter(|(id, _)| id.namespace == namespace);
        let own = all.filter(|(_, ingress)| self.http.classes.own_ingress(ingress));
        own.map(|(_, ingress)| ingress.clone()).collect()
    }

    /// Translates the Ingresses of a namespace. The derived objects belong to an Ingress with an empty name, because several
    /// Ingresses share them.
    fn ingresses(&mut self, namespace: &str) {
        let own = self.own_ingresses(namespace);
        let services = self.known(Resource::Service).filter(|(id, _)| id.namespace == namespace);
        let services: Vec<_> = services.map(|(_, service)| service).collect();
        let translated = if own.is_empty() {
            IngressTranslation::default()
        } else {
            gateway_api::ingresses(&self.settings, &own.iter().collect::<Vec<_>>(), &services)
        };
        let IngressTranslation { mut objects, mut findings, backends } = translated;
        self.name_publisher(&mut objects);
        let known = self.published.http.keys().filter(|(of, id)| {
            *of == Resource::Ingress && id.namespace == namespace && !findings.contains_key(id)
        });
        let gone: Vec<_> = known.cloned().collect();
        for (of, id) in gone {
            self.publish_http(of, &id, None);
            self.find(of, &id, Vec::new());
        }
        let keys: Vec<_> = objects.iter().map(Object::key).collect();
        for ingress in own {
            let id = Id::of(&ingress);
            let found = findings.remove(&id).unwrap_or_default();
            let class =
                Id { namespace: id.namespace.clone(), name: text(&ingress, "/spec/ingressClassName") };
            let publishers = self.http.publisher.iter().chain([&class]).cloned().collect();
            self.find(Resource::Ingress, &id, found.clone());
            let entry = HttpEntry { publishers, ..entry(ingress, keys.clone(), found) };
            self.publish_http(Resource::Ingress, &id, Some(entry));
        }
        let whole = first_of(namespace);
        self.replace(Resource::Ingress, &whole, objects);
        self.set_backends((Resource::Ingress, whole), backends);
    }

    fn publish_http(&mut self, resource: Resource, id: &Id, entry: Option<HttpEntry>) {
        let key = (resource, id.clone());
        match entry {
            Some(entry) => drop(self.published.http.insert(key, Arc::new(entry))),
            None => drop(self.published.http.remove(&key)),
        }
    }

    /// Records the Services that an object names, and translates the Services again that became backends or no longer are.
    fn set_backends(&mut self, of: (Resource, Id), new: BTreeSet<Id>) {
        let namespace = of.1.namespace.clone();
        let old = if new.is_empty() {
            self.http.backends.remove(&of)
        } else {
            self.http.backends.insert(of, new.clone())
        };
        let old = old.unwrap_or_default();
        let mut changed = Vec::new();
        for id in new.difference(&old) {
            let counts = self.http.references.entry(id.clone()).or_default();
            let count = counts.entry(namespace.clone()).or_default();
            *count += 1;
            if *count == 1 {
                changed.push(id.clone());
            }
        }
        for id in old.difference(&new) {
            let Some(counts) = self.http.references.get_mut(id) else { continue };
            let count = counts.get(&namespace).map_or(0, |count| count.saturating_sub(1));
            if count == 0 {
                counts.remove(&namespace);
                changed.push(id.clone());
            } else {
                counts.insert(namespace.clone(), count);
            }
            if counts.is_empty() {
                self.http.references.remove(id);
            }
        }
        for id in changed {
            self.service(&id);
            if namespace != id.namespace {
                self.slices_of(&id);
            }
        }
    }
}

const fn resource_of(kind: RouteKind) -> Resource {
    match kind {
        RouteKind::Http => Resource::HttpRoute,
        RouteKind::Grpc => Resource::GrpcRoute,
        RouteKind::Tls => Resource::TlsRoute,
    }
}

/// Returns the id under which the objects of all Ingresses of a namespace are recorded.
fn first_of(namespace: &str) -> Id {
    Id { namespace: namespace.to_owned(), name: String::new() }
}

fn entry(object: Value, keys: Vec<ObjectKey>, findings: Vec<Finding>) -> HttpEntry {
    HttpEntry {
        object,
        keys,
        findings,
        parents: Vec::new(),
        unresolved: None,
        publishers: Vec::new(),
        permitted: BTreeSet::new(),
    }
}
