//! Rendering of one state of the Tidegate objects as Kubernetes objects.

use std::{collections::BTreeMap, ops::ControlFlow};

use model::{
    cluster::snapshot::Snapshot,
    compile::compile,
    kinds::{
        metadata::Labels,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
        selector::LabelSelector,
    },
    observed::status::NodeStatus,
    primitives::{
        name::{Name, Namespace},
        quantity::{Epoch, Revision, Timestamp},
    },
};
use serde_json::Value;

use super::{
    catalogue::Resource,
    fields::FieldSelector,
    objects::{endpoints, event, gateway, http_route, ingress, namespace, node, pod, service, slice},
};
use crate::{
    security::{Access, Verb},
    state::compiled_set::CompiledSet,
};

/// Selection of the objects that a list or watch returns.
#[derive(Debug, Clone)]
pub(super) struct ListSelection {
    /// Kubernetes resource of the selected objects.
    pub(super) resource: Resource,
    /// API version in which the objects are rendered.
    pub(super) api_version: String,
    /// Namespace of the selected objects; `None` selects all namespaces that the caller may see.
    pub(super) namespace: Option<Namespace>,
    /// Label selector of the objects.
    pub(super) labels: LabelSelector,
    /// Field selector of the objects.
    pub(super) fields: FieldSelector,
}

/// Tidegate entity that is rendered as one or several Kubernetes objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    /// Object with this key. A Service is also the source of its Endpoints and EndpointSlices.
    Object(ObjectKey),
    /// Namespace that contains objects.
    Namespace(Namespace),
}

/// One state of all objects, with the additional data that is required to render them as Kubernetes objects.
pub(super) struct Side<'a> {
    /// Objects of the rendered state.
    pub(super) snapshot: &'a Snapshot,
    /// All Services with their computed endpoints; `None` for an earlier state: the endpoints of its Services
    /// are computed when they are rendered.
    pub(super) compiled: Option<&'a CompiledSet>,
    /// Epoch of the store, part of resource versions.
    pub(super) epoch: Epoch,
    /// Function that returns the current status of a Node.
    pub(super) status: &'a dyn Fn(&Object) -> Option<NodeStatus>,
}

/// Kubernetes objects rendered from one [`Unit`], by name.
pub(super) type RenderedObjects = BTreeMap<String, Value>;

impl Unit {
    /// Returns the unit as text for a continue token.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Object(key) => key.to_store_key(),
            Self::Namespace(name) => name.to_string(),
        }
    }

    /// Parses the result of [`Self::to_text`]. Returns `None` if the text is not that of an entity of the
    /// resource.
    pub(super) fn parse(text: &str, resource: Resource) -> Option<Self> {
        match resource.of() {
            Some(kind) => ObjectKey::parse_store_key(text).filter(|key| key.kind == kind).map(Self::Object),
            None => Namespace::parse(text).ok().map(Self::Namespace),
        }
    }
}

impl ListSelection {
    /// Returns the Tidegate entity from which the Kubernetes object named `name` is derived, or `None` if the
    /// name has no valid form. The entity may not exist.
    pub(super) fn unit(&self, name: &str) -> Option<Unit> {
        match self.resource {
            Resource::Namespaces => Namespace::parse(name).ok().map(Unit::Namespace),
            Resource::Nodes
            | Resource::Services
            | Resource::Endpoints
            | Resource::Pods
            | Resource::Ingresses
            | Resource::Gateways
            | Resource::HttpRoutes => self.of_object(name),
            // Slice names consist of Service, family, and a number from the second slice on.
            Resource::EndpointSlices => {
                let end = ["-ipv4", "-ipv6"].into_iter().filter_map(|family| name.rfind(family)).max()?;
                self.of_object(name.get(..end)?)
            }
            // Event names consist of Node, reason and time.
            Resource::Events => self.of_object(name.rsplitn(3, '.').nth(2)?),
        }
    }

    fn of_object(&self, name: &str) -> Option<Unit> {
        let (kind, name) = (self.resource.of()?, Name::parse(name).ok()?);
        let namespace = self.namespace.clone().filter(|_| kind.is_namespaced());
        Some(Unit::Object(ObjectKey { kind, namespace, name }))
    }

    /// Returns true if the caller may use the verb on the object `unit` or, if `unit` is a namespace, on at
    /// least one kind of object in it.
    pub(super) fn is_seen(&self, access: &Access, verb: Verb, unit: &Unit) -> bool {
        match unit {
            Unit::Object(key) => access.may_object(verb, key.kind, key.namespace.as_ref()),
            Unit::Namespace(name) => {
                let mut kinds = Kind::ALL.into_iter().filter(|kind| kind.is_namespaced());
                kinds.any(|kind| access.may_object(verb, kind, Some(name)))
            }
        }
    }
}

impl Side<'_> {
    /// Calls `visit` for each entity of the list `chosen` in the order of their keys, starting after the
    /// entity `after` (`None`: with the first one), until `visit` returns `Break`.
    pub(super) fn walk(
        &self,
        chosen: &ListSelection,
        after: Option<&Unit>,
        mut visit: impl FnMut(Unit) -> ControlFlow<()>,
    ) {
        let Some(kind) = chosen.resource.of() else {
            for name in self.namespaces() {
                let unit = Unit::Namespace(name);
                if after.is_none_or(|after| unit > *after) && visit(unit).is_break() {
                    return;
                }
            }
            return;
        };
        let after = match after {
            Some(Unit::Object(key)) => Some(key),
            Some(Unit::Namespace(_)) | None => None,
        };
        let namespace = chosen.namespace.as_ref().filter(|_| kind.is_namespaced());
        for object in self.snapshot.list(kind, namespace, after) {
            if visit(Unit::Object(object.key())).is_break() {
                return;
            }
        }
    }

    /// Renders the Kubernetes objects of the entity `unit` that match the selection `chosen`. Returns an
    /// empty map if the entity does not exist.
    pub(super) fn show(&self, unit: &Unit, chosen: &ListSelection) -> RenderedObjects {
        let mut shown = RenderedObjects::new();
        match unit {
            Unit::Namespace(name) => {
                if let Some(json) = self.namespace(name) {
                    let labels = Labels::from([("kubernetes.io/metadata.name".to_owned(), name.to_string())]);
                    if chosen.labels.matches(&labels) {
                        shown.insert(name.to_string(), json);
                    }
                }
            }
            Unit::Object(key) => {
                if let Some(object) = self.snapshot.get(key) {
                    self.show_object(object, chosen, &mut shown);
                }
            }
        }
        shown.retain(|_, json| chosen.fields.matches(json));
        shown
    }

    fn show_object(&self, object: &Object, chosen: &ListSelection, shown: &mut RenderedObjects) {
        let own = &object.metadata.labels;
        let is_chosen = match chosen.resource {
            Resource::EndpointSlices => chosen.labels.matches(&slice::labels(object)),
            Resource::Events => chosen.labels.is_empty(),
            Resource::Nodes
            | Resource::Services
            | Resource::Endpoints
            | Resource::Pods
            | Resource::Namespaces
            | Resource::Ingresses
            | Resource::Gateways
            | Resource::HttpRoutes => chosen.labels.matches(own),
        };
        if !is_chosen {
            return;
        }
        let (name, epoch) = (&object.metadata.name, self.epoch);
        let one = match (&object.spec, chosen.resource) {
            (Spec::Node(_), Resource::Events) => return self.show_events(object, chosen, shown),
            (Spec::Node(spec), _) => node::render(object, spec, (self.status)(object).as_ref(), epoch),
            (Spec::Workload(spec), _) => pod::render(object, spec, self.snapshot, epoch),
            (Spec::Service(spec), Resource::Services) => service::render(object, spec, self.snapshot, epoch),
            (Spec::Service(_), _) => return self.show_endpoints(object, chosen, shown),
            (Spec::Gateway(spec), _) => gateway::render(object, spec, self.snapshot, epoch),
            (Spec::HttpRoute(spec), Resource::Ingresses) => {
                ingress::render(object, spec, self.snapshot, epoch)
            }
            (Spec::HttpRoute(spec), _) => http_route::render(object, spec, self.snapshot, epoch),
            (
                Spec::AddressPool(_)
                | Spec::BfdProfile(_)
                | Spec::BgpPeer(_)
                | Spec::Advertisement(_)
                | Spec::DnsZone(_)
                | Spec::Certificate(_)
                | Spec::TlsRoute(_)
                | Spec::WorkloadNetwork(_)
                | Spec::NetworkPolicy(_)
                | Spec::Block(_)
                | Spec::Attachment(_)
                | Spec::Address(_)
                | Spec::EndpointHealth(_)
                | Spec::EndpointSet(_),
                _,
            ) => return,
        };
        shown.insert(name.to_string(), one);
    }

    fn show_endpoints(&self, service: &Object, chosen: &ListSelection, shown: &mut RenderedObjects) {
        let Some(namespace) = service.metadata.namespace.clone() else { return };
        let name = service.metadata.name.clone();
        let key = ServiceKey { namespace, name };
        let made;
        let form = match self.compiled {
            Some(set) => set.get(&key).map(|entry| &*entry.form),
            None => {
                made = compile(self.snapshot, &key);
                made.as_ref()
            }
        };
        let Some(form) = form else { return };
        if chosen.resource == Resource::Endpoints {
            shown.insert(key.name.to_string(), endpoints::render(service, form, self.epoch));
        } else {
            let slices = slice::render(service, form, self.epoch, &chosen.api_version);
            shown.extend(slices.into_iter().map(|slice| (slice.name, slice.json)));
        }
    }

    fn show_events(&self, node: &Object, chosen: &ListSelection, shown: &mut RenderedObjects) {
        if chosen.namespace.as_ref().is_some_and(|namespace| namespace.as_str() != event::NAMESPACE) {
            return;
        }
        let (name, revision) = (&node.metadata.name, node.metadata.revision());
        for event in (self.status)(node).into_iter().flat_map(|status| status.events) {
            let json = event::render(name, &event, self.epoch, revision);
            let own = json.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            shown.insert(own, json);
        }
    }

    /// Renders a namespace as a Kubernetes object, or returns `None` if it contains no object.
    fn namespace(&self, name: &Namespace) -> Option<Value> {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_namespaced());
        let objects: Vec<_> = kinds.flat_map(|kind| self.snapshot.list(kind, Some(name), None)).collect();
        let oldest: Option<Timestamp> =
            objects.iter().filter_map(|object| object.metadata.creation_timestamp).min();
        let revision: Revision = objects.iter().map(|object| object.metadata.revision()).min()?;
        Some(namespace::render(name, oldest, self.epoch, revision))
    }

    /// Returns the namespaces that contain objects, in alphabetical order.
    fn namespaces(&self) -> std::collections::BTreeSet<Namespace> {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_namespaced());
        let objects = kinds.flat_map(|kind| self.snapshot.list(kind, None, None));
        objects.filter_map(|object| object.metadata.namespace.clone()).collect()
    }
}
