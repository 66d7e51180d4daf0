//! State of the cluster, and the Tidegate objects derived from it. Pure: changes of the cluster are the
//! input, [`DesiredObjects`] the output.
//!
//! A change costs only the affected objects. An EndpointSlice updates one EndpointSet. A Service updates
//! itself and, if its handling by Tidegate changes, its slices. MetalLB's resources and namespaces are few
//! and are translated together.

mod http;
mod policy;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use imbl::OrdMap;
use model::{
    kinds::{
        metadata::{CHECKED_BY, Labels},
        network_policy::NAMESPACE_NAME_LABEL,
        resource::{Kind, Object, ObjectKey},
    },
    primitives::name::Name,
};
use serde_json::Value;
use translate::json::text;

pub use self::http::{CertificateSecrets, HttpEntry, OwnParent};
use self::{http::HttpSide, policy::PolicySide};
pub use super::translate::Id;
use super::{
    nodes::Nodes,
    resource::Resource,
    translate::{
        self as translation, Claim, Finding, SERVICE_NAME_LABEL, Settings, Surroundings, TranslationResult,
        claim,
        gateway_api::{copy_name, copy_of},
        passwords::{self, Passwords},
    },
};
use crate::wanted::DesiredObjects;

/// JSON pointer to the UID of an object.
const UID: &str = "/metadata/uid";

/// Change of one kind of cluster objects, received from the API server.
#[derive(Debug, Clone)]
pub enum Change {
    /// An object was created or changed; contains the object.
    Put(Value),
    /// An object was deleted; contains its namespace and name.
    Gone(Id),
    /// Complete listing of a kind; contains all its objects.
    Listed(Vec<Value>),
    /// The kind cannot be listed; contains the reason.
    Failed(String),
    /// Passwords from the Secrets that BGPPeers refer to, sent after each poll of all these Secrets. A Secret
    /// that has not been read yet is missing.
    Passwords(Passwords),
    /// Secrets with certificates that Gateways and Ingresses name, sent after each poll of all of them.
    Certificates(CertificateSecrets),
}

/// Service of the cluster, with the data needed to write its status.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Service as read from the cluster, without managed fields.
    pub object: Value,
    /// Role of Tidegate for the Service: not handled, proxied, or with a load balancer address.
    pub claim: Claim,
    /// Key of the derived object in Tidegate, if there is one.
    pub key: Option<ObjectKey>,
    /// Problems to report on the Service.
    pub findings: Vec<Finding>,
}

/// Problems of cluster objects other than Services, by kind and id.
pub type Findings = OrdMap<(Resource, Id), Vec<Finding>>;

/// Data to write back: Service statuses and reported problems to the cluster, and data of the cluster's nodes
/// to Tidegate's Nodes.
#[derive(Debug, Clone, Default)]
pub struct WriteBackInput {
    /// Services of the cluster, each with the key of its Tidegate object and the problems to report.
    pub services: OrdMap<Id, Arc<Entry>>,
    /// Problems of objects other than Services.
    pub findings: Findings,
    /// Data of the cluster's nodes. Kept apart from the desired objects, because agents create the Nodes in
    /// Tidegate.
    pub nodes: Nodes,
    /// Classes, Gateways, HTTPRoutes and Ingresses that Tidegate handles.
    pub http: OrdMap<(Resource, Id), Arc<HttpEntry>>,
    /// Keys of the Tidegate objects derived from each cluster object. An empty name stands for several objects of its kind.
    pub made: OrdMap<(Resource, Id), Vec<ObjectKey>>,
}

/// State of the cluster and the Tidegate objects derived from it.
#[derive(Debug)]
pub struct ClusterState {
    settings: Settings,
    around: Surroundings,
    /// Objects of the cluster by kind and name, without managed fields. Pods are packed.
    objects: BTreeMap<Resource, BTreeMap<Id, Value>>,
    /// Ids of the EndpointSlices of each Service, by Service id.
    slices: BTreeMap<Id, BTreeSet<Id>>,
    /// Kinds that have been listed completely at least once.
    read: BTreeSet<Resource>,
    needed: BTreeSet<Resource>,
    /// Reason of the last failed listing of each kind that has not been listed since then.
    failures: BTreeMap<Resource, String>,
    /// Objects missing in a doubtful listing (one without any known object); kept until they are seen again
    /// or deleted by an event.
    doubted: BTreeMap<Resource, BTreeSet<Id>>,
    objects_wanted: OrdMap<ObjectKey, Object>,
    published: WriteBackInput,
    http: HttpSide,
    policy: PolicySide,
}

impl ClusterState {
    /// Creates an empty state, which is complete when all `needed` kinds have been listed.
    #[must_use]
    pub fn new(settings: Settings, needed: impl IntoIterator<Item = Resource>) -> Self {
        Self {
            settings,
            around: Surroundings::default(),
            objects: BTreeMap::new(),
            slices: BTreeMap::new(),
            read: BTreeSet::new(),
            needed: needed.into_iter().collect(),
            failures: BTreeMap::new(),
            doubted: BTreeMap::new(),
            objects_wanted: OrdMap::new(),
            published: WriteBackInput::default(),
            http: HttpSide::default(),
            policy: PolicySide::default(),
        }
    }

    /// Returns the objects that Tidegate must have according to the cluster.
    #[must_use]
    pub fn wanted(&self) -> DesiredObjects {
        DesiredObjects { objects: self.objects_wanted.clone(), is_complete: self.unread().next().is_none() }
    }

    /// Returns the kinds that have not been listed completely yet.
    pub fn unread(&self) -> impl Iterator<Item = Resource> {
        let is_read = |resource: Resource| match resource {
            Resource::Secret => self.secrets().is_some_and(|named| {
                let read = self.around.passwords.as_ref();
                read.is_some_and(|read| named.iter().all(|id| read.contains_key(id)))
            }),
            Resource::CertificateSecret => self.has_certificates(),
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
            | Resource::IngressClass
            | Resource::Ingress
            | Resource::GatewayClass
            | Resource::Gateway
            | Resource::HttpRoute
            | Resource::GrpcRoute
            | Resource::TlsRoute
            | Resource::ReferenceGrant => self.read.contains(&resource),
        };
        self.needed.iter().copied().filter(move |resource| !is_read(*resource))
    }

    /// Returns the Secrets with passwords of BGP peers that must be read, or `None` while the BGPPeers have
    /// not been listed.
    #[must_use]
    pub fn secrets(&self) -> Option<BTreeSet<Id>> {
        let peers = self.known(Resource::BgpPeer).map(|(_, peer)| peer);
        self.read.contains(&Resource::BgpPeer).then(|| passwords::named(peers))
    }

    /// Returns the reason of the last failed listing of a kind; `None` if the kind has been listed since then.
    #[must_use]
    pub fn failure(&self, resource: Resource) -> Option<&str> {
        self.failures.get(&resource).map(String::as_str)
    }

    /// Returns the kinds whose last listing was doubtful, because it contained none of the known objects, and
    /// for each kind the number of objects that are kept.
    #[must_use]
    pub fn doubted(&self) -> BTreeMap<Resource, usize> {
        self.doubted.iter().map(|(resource, kept)| (*resource, kept.len())).collect()
    }

    /// Returns the Services and problems to write back to the cluster, and the data for Tidegate's Nodes.
    #[must_use]
    pub fn published(&self) -> WriteBackInput {
        self.published.clone()
    }

    /// Applies a change of the objects of one kind, and updates the Tidegate objects derived from them.
    pub fn apply(&mut self, resource: Resource, change: Change) {
        let mut touched = BTreeSet::new();
        match change {
            Change::Put(object) => {
                self.trust(resource, &Id::of(&object));
                self.put(resource, object, &mut touched);
            }
            Change::Gone(id) => {
                self.trust(resource, &id);
                self.remove(resource, &id, &mut touched);
            }
            Change::Listed(objects) => {
                self.failures.remove(&resource);
                self.list(resource, objects, &mut touched);
            }
            Change::Failed(reason) => {
                self.failures.insert(resource, reason);
                return;
            }
            Change::Passwords(passwords) => {
                if self.around.passwords.as_ref() != Some(&passwords) {
                    self.around.passwords = Some(passwords);
                    self.metallb();
                }
                return;
            }
            Change::Certificates(secrets) => return self.apply_certificates(secrets),
        }
        self.follow(resource, touched);
    }

    /// Applies a full listing of a kind. If it contains none of the known objects, it may come from the wrong
    /// cluster or from an API server that has lost its store. The known objects are then kept until a listing
    /// contains some of them again; real deletions arrive as watch events. Only a single known object may be
    /// replaced by others.
    fn list(&mut self, resource: Resource, objects: Vec<Value>, touched: &mut BTreeSet<Id>) {
        let listed: BTreeMap<Id, String> =
            objects.iter().map(|object| (Id::of(object), uid(object))).collect();
        let known = self.objects.get(&resource);
        let is_same = |id: &Id| {
            let uid = known.and_then(|known| known.get(id)).map(uid);
            uid.is_some() && listed.get(id) == uid.as_ref()
        };
        let all: BTreeSet<Id> = known.into_iter().flatten().map(|(id, _)| id.clone()).collect();
        let doubted = self.doubted.get(&resource);
        let is_believed = match doubted {
            Some(doubted) => doubted.iter().any(is_same),
            None if listed.is_empty() => all.is_empty(),
            // A single object may legitimately be replaced by a new one.
            None => all.len() <= 1 || all.iter().any(is_same),
        };
        let absent: BTreeSet<Id> = all.into_iter().filter(|id| !listed.contains_key(id)).collect();
        let kept: BTreeSet<Id> = match doubted {
            _ if is_believed => BTreeSet::new(),
            Some(doubted) => doubted.intersection(&absent).cloned().collect(),
            None => absent.clone(),
        };
        for id in absent.difference(&kept) {
            self.remove(resource, id, touched);
        }
        if kept.is_empty() {
            self.doubted.remove(&resource);
        } else {
            self.doubted.insert(resource, kept);
        }
        for object in objects {
            self.put(resource, object, touched);
        }
        self.read.insert(resource);
    }

    fn put(&mut self, resource: Resource, mut object: Value, touched: &mut BTreeSet<Id>) {
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let id = Id::of(&object);
        if resource == Resource::Pod {
            object = policy::packed_pod(&object);
        }
        let known = self.objects.entry(resource).or_default();
        if known.get(&id) == Some(&object) {
            return;
        }
        let old = known.insert(id.clone(), object);
        if resource == Resource::EndpointSlice {
            let new = known.get(&id).and_then(service_of);
            self.index(&id, old.as_ref().and_then(service_of), new);
        }
        touched.insert(id);
    }

    /// Removes an object from the doubtful ones, because a watch event has confirmed its existence or
    /// deletion.
    fn trust(&mut self, resource: Resource, id: &Id) {
        if let Some(doubted) = self.doubted.get_mut(&resource) {
            doubted.remove(id);
            if doubted.is_empty() {
                self.doubted.remove(&resource);
            }
        }
    }

    fn remove(&mut self, resource: Resource, id: &Id, touched: &mut BTreeSet<Id>) {
        let Some(old) = self.objects.get_mut(&resource).and_then(|known| known.remove(id)) else { return };
        if resource == Resource::EndpointSlice {
            self.index(id, service_of(&old), None);
        }
        touched.insert(id.clone());
    }

    fn index(&mut self, slice: &Id, old: Option<Id>, new: Option<Id>) {
        if old == new {
            return;
        }
        if let Some(old) = old
            && let Some(slices) = self.slices.get_mut(&old)
        {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices.remove(&old);
            }
        }
        if let Some(new) = new {
            self.slices.entry(new).or_default().insert(slice.clone());
        }
    }

    /// Translates the changed objects of a kind again, and the objects that depend on them.
    fn follow(&mut self, resource: Resource, touched: BTreeSet<Id>) {
        match resource {
            Resource::Service => {
                touched.iter().for_each(|id| self.service(id));
                self.follow_services(&touched);
            }
            Resource::EndpointSlice => touched.iter().for_each(|id| self.slice(id)),
            Resource::Node => touched.iter().for_each(|id| self.node(id)),
            Resource::Pod => touched.iter().for_each(|id| self.pod(id)),
            Resource::NetworkPolicy => touched.iter().for_each(|id| self.network_policy(id)),
            // Secrets arrive together.
            Resource::Secret | Resource::CertificateSecret => {}
            Resource::IngressClass
            | Resource::Ingress
            | Resource::GatewayClass
            | Resource::Gateway
            | Resource::HttpRoute
            | Resource::GrpcRoute
            | Resource::TlsRoute
            | Resource::ReferenceGrant => self.follow_http(resource, &touched),
            Resource::Namespace if touched.is_empty() => {}
            Resource::Namespace => {
                let namespaces = self.known(Resource::Namespace);
                let labels = namespaces.map(|(id, object)| (id.name.clone(), labels(id, object))).collect();
                if self.around.namespaces != labels {
                    self.around.namespaces = labels;
                    self.metallb();
                    self.follow_namespace_labels();
                }
            }
            Resource::IpAddressPool
            | Resource::L2Advertisement
            | Resource::BgpAdvertisement
            | Resource::BgpPeer
            | Resource::BfdProfile
            | Resource::Community => {
                if touched.is_empty() {
                    return;
                }
                self.metallb();
                let pools = self.known(Resource::IpAddressPool).map(|(id, _)| id.name.clone()).collect();
                if self.settings.cluster.is_some() && self.around.pools != pools {
                    self.around.pools = pools;
                    // The claim of a Service depends on the existing pools.
                    let all: Vec<Id> = self.known(Resource::Service).map(|(id, _)| id.clone()).collect();
                    all.iter().for_each(|id| self.service(id));
                }
            }
        }
    }

    fn known(&self, resource: Resource) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.get(&resource).into_iter().flatten()
    }

    fn get(&self, resource: Resource, id: &Id) -> Option<&Value> {
        self.objects.get(&resource)?.get(id)
    }

    fn service(&mut self, id: &Id) {
        let was_ours = self.published.services.get(id).is_some_and(|entry| entry.claim != Claim::None);
        let Some(object) = self.get(Resource::Service, id) else {
            self.published.services.remove(id);
            self.replace(Resource::Service, id, Vec::new());
            self.slices_of(id);
            return;
        };
        let own = claim(&self.settings, object);
        let is_backend = own == Claim::None && self.http.is_backend(id);
        let claim = if is_backend { Claim::Proxied } else { own };
        let TranslationResult { mut objects, findings, documents: _ } = if is_backend {
            translation::backend_service(&self.settings, object)
        } else {
            translation::service(&self.settings, &self.around, object)
        };
        let entry = Entry { object: object.clone(), claim, key: objects.first().map(Object::key), findings };
        objects.extend(self.http.copies_of(id).flat_map(|namespace| {
            translation::backend_service(&self.settings, &copy_of(object, namespace)).objects
        }));
        self.published.services.insert(id.clone(), Arc::new(entry));
        self.replace(Resource::Service, id, objects);
        if was_ours != (claim != Claim::None) {
            self.slices_of(id);
        }
    }

    fn slices_of(&mut self, service: &Id) {
        for slice in self.slices.get(service).cloned().unwrap_or_default() {
            self.slice(&slice);
        }
    }

    fn slice(&mut self, id: &Id) {
        let slice = self.get(Resource::EndpointSlice, id);
        let service =
            slice.and_then(service_of).and_then(|service| self.published.services.get(&service).cloned());
        let is_ours = service.is_some_and(|service| service.claim != Claim::None);
        let made = slice.filter(|_| is_ours).map(|slice| {
            let mut made = translation::endpoint_slice(&self.settings, slice);
            let service = service_of(slice);
            let namespaces = service.iter().flat_map(|service| self.http.copies_of(service));
            made.objects.extend(namespaces.flat_map(|namespace| {
                let mut copy = copy_of(slice, namespace);
                let name = service.as_ref().map(copy_name);
                copy["metadata"]["labels"][SERVICE_NAME_LABEL] = name.into();
                translation::endpoint_slice(&self.settings, &copy).objects
            }));
            made
        });
        self.take(Resource::EndpointSlice, id, made.unwrap_or_default());
    }

    fn node(&mut self, id: &Id) {
        let made = self
            .get(Resource::Node, id)
            .map(|node| translation::node(&self.settings, node))
            .unwrap_or_default();
        let TranslationResult { mut objects, findings, documents: _ } = made;
        self.find(Resource::Node, id, findings);
        let name = Name::parse(&self.settings.name(&id.name)).ok();
        match (name, objects.pop()) {
            (Some(name), Some(node)) => drop(self.published.nodes.insert(name, node)),
            (Some(name), None) => drop(self.published.nodes.remove(&name)),
            (None, _) => {}
        }
    }

    /// Translates all MetalLB resources together, because they refer to each other. All derived objects are
    /// recorded as belonging to one IPAddressPool with an empty name, because they cannot be assigned to
    /// single resources.
    fn metallb(&mut self) {
        let documents: Vec<Value> = Resource::METALLB
            .iter()
            .flat_map(|resource| self.known(*resource).map(|(_, object)| object.clone()))
            .collect();
        let (made, findings) = translation::metallb(&self.settings, &self.around, &documents);
        let whole = Id { namespace: String::new(), name: String::new() };
        self.replace(Resource::IpAddressPool, &whole, made.objects);
        let stale: Vec<_> =
            self.published.findings.keys().filter(|(resource, _)| resource.is_metallb()).cloned().collect();
        for key in stale {
            self.published.findings.remove(&key);
        }
        for (title, finding) in findings {
            let key = self.titled(&title).unwrap_or_else(|| (Resource::IpAddressPool, whole.clone()));
            self.published.findings.entry(key).or_default().push(finding);
        }
    }

    /// Returns the kind and id of the MetalLB object with this title (`KIND NAME`, as in reported problems),
    /// or `None` if there is none.
    fn titled(&self, title: &str) -> Option<(Resource, Id)> {
        let (kind, name) = title.split_once(' ')?;
        Resource::METALLB.into_iter().find_map(|resource| {
            let mut found =
                self.known(resource).filter(|(id, object)| id.name == name && text(object, "/kind") == kind);
            found.next().map(|(id, _)| (resource, id.clone()))
        })
    }

    fn take(&mut self, resource: Resource, id: &Id, made: TranslationResult) {
        let TranslationResult { objects, findings, documents: _ } = made;
        self.find(resource, id, findings);
        self.replace(resource, id, objects);
    }

    fn find(&mut self, resource: Resource, id: &Id, findings: Vec<Finding>) {
        let key = (resource, id.clone());
        if findings.is_empty() {
            self.published.findings.remove(&key);
        } else {
            self.published.findings.insert(key, findings);
        }
    }

    fn replace(&mut self, resource: Resource, id: &Id, objects: Vec<Object>) {
        let key = (resource, id.clone());
        let new: Vec<ObjectKey> = objects.iter().map(Object::key).collect();
        let old = self.published.made.get(&key).cloned().unwrap_or_default();
        for gone in old.iter().filter(|key| !new.contains(key)) {
            self.objects_wanted.remove(gone);
        }
        for mut object in objects {
            let key = object.key();
            if matches!(key.kind, Kind::EndpointSet | Kind::Workload) {
                // Kubelets set the conditions of Pods, from which those of EndpointSlices follow.
                object.metadata.annotations.insert(CHECKED_BY.to_owned(), "kubernetes".to_owned());
            }
            if self.objects_wanted.get(&key) != Some(&object) {
                self.objects_wanted.insert(key, object);
            }
        }
        if new.is_empty() {
            self.published.made.remove(&key);
        } else if new != old {
            self.published.made.insert(key, new);
        }
    }
}

/// Returns the kinds of objects to watch. With `is_metallb` these include namespaces, to which selectors of
/// MetalLB's pools refer.
#[must_use]
pub fn needed(is_metallb: bool, is_nodes: bool) -> Vec<Resource> {
    let mut needed = vec![Resource::Service, Resource::EndpointSlice];
    if is_nodes {
        needed.push(Resource::Node);
    }
    if is_metallb {
        needed.push(Resource::Namespace);
        needed.extend(Resource::METALLB);
    }
    needed
}

/// Returns the namespace and name of the Service to which a slice belongs.
fn service_of(slice: &Value) -> Option<Id> {
    let name = slice.pointer("/metadata/labels")?.get(SERVICE_NAME_LABEL)?.as_str()?;
    Some(Id { namespace: text(slice, "/metadata/namespace"), name: name.to_owned() })
}

/// Returns the UID of an object, which may be a packed Pod.
fn uid(object: &Value) -> String {
    policy::unpacked_pod(object).map_or_else(|| text(object, UID), |pod| text(&pod, UID))
}

/// Returns the labels of a Namespace, with the label that contains its name.
fn labels(id: &Id, namespace: &Value) -> Labels {
    let labels = namespace.pointer("/metadata/labels");
    let labels = labels.and_then(|labels| serde_json::from_value(labels.clone()).ok());
    let mut labels: Labels = labels.unwrap_or_default();
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), id.name.clone());
    labels
}
