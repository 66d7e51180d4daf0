//! Rendering of objects: metadata and spec come from the stored state, status is derived from the current reports
//! of the agents.
//!
//! The reports of the nodes are collected only when an object needs them. Most writes change endpoint
//! objects, whose status does not depend on nodes, so that the response needs no reports.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use model::{
    cluster::compiled::CompiledService,
    kinds::{
        resource::{Object, ServiceKey, Spec},
        route::RouteSpec,
    },
    observed::{
        assign::ClusterView,
        health::{HealthInputs, has_default_check, is_suspected},
        http_gateways::GatewayReports,
        network_status::WorkloadNetworkStatus,
        policy_status::NetworkPolicyStatus,
        rollup::{
            AnnouncementInputs, NodeViews, ServiceObservations, add_not_checked, address_pool_status,
            address_status, advertisement_status, attachment_status, bfd_profile_status, bgp_peer_status,
            block_status, certificate_status, dns_zone_status, endpoint_set_status, gateway_status,
            network_policy_status, node_bgp_status, node_status, pool_announced, route_conditions,
            route_resolvable, service_announced, service_health, service_resolvable, service_status,
            with_gateways, with_sessions, workload_network_status, workload_status,
        },
        service_health::ServiceHealth,
        status::{
            AddressPoolStatus, AddressStatus, AdvertisementStatus, BfdProfileStatus, BgpPeerStatus,
            Condition, GatewayStatus, HttpRouteStatus, NodeCounts, NodeStatus, ServiceStatus, TlsRouteStatus,
        },
    },
    policy::set::PolicyKey,
    primitives::{
        http_object_key::HttpObjectKey,
        name::Name,
        quantity::{Position, Timestamp},
    },
};
use serde_json::Value;

use crate::state::{node_reports::Table, observations::Observations, published::Published};

/// Published state combined with the reports of agents at one time, from which any number of objects can be
/// rendered.
pub(crate) struct View<'a> {
    published: Arc<Published>,
    observations: &'a Observations,
    now: Timestamp,
    table: OnceLock<Table>,
    gateways: OnceLock<GatewayReports>,
}

/// Renderer of objects with their status, from one view.
pub(crate) struct ObjectRenderer<'a> {
    view: &'a View<'a>,
    nodes: OnceLock<NodeViews<'a>>,
}

impl<'a> View<'a> {
    /// Creates a view of a published state combined with the reports at time `now`.
    pub(crate) fn new(published: Arc<Published>, observations: &'a Observations, now: Timestamp) -> Self {
        Self { published, observations, now, table: OnceLock::new(), gateways: OnceLock::new() }
    }

    /// Creates a renderer, which derives the data common to all statuses only once.
    pub(crate) fn renderer(&self) -> ObjectRenderer<'_> {
        ObjectRenderer { view: self, nodes: OnceLock::new() }
    }

    /// Returns the published state of the view.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    /// Returns the time of the view, to which ages and leases refer.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the reported data of all nodes.
    pub(crate) fn table(&self) -> &Table {
        self.table.get_or_init(|| self.observations.nodes.table(&self.published.snapshot, self.now))
    }

    /// Returns the reports of the gateways.
    pub(crate) fn gateways(&self) -> &GatewayReports {
        self.gateways.get_or_init(|| self.observations.gateways_at(self.now))
    }
}

impl ObjectRenderer<'_> {
    /// Renders an object with its metadata, spec and status.
    pub(crate) fn object(&self, object: &Object) -> Value {
        let status = match &object.spec {
            Spec::Service(_) => self.service(object).map(serde_json::to_value),
            Spec::Node(_) => self.node(object).map(serde_json::to_value),
            Spec::AddressPool(_) => self.pool(object).map(serde_json::to_value),
            Spec::BgpPeer(_) => self.bgp_peer(object).map(serde_json::to_value),
            Spec::BfdProfile(_) => Some(serde_json::to_value(self.bfd_profile(object))),
            Spec::Advertisement(_) => self.advertisement(object).map(serde_json::to_value),
            Spec::DnsZone(spec) => {
                Some(serde_json::to_value(dns_zone_status(&self.view.published().snapshot, spec)))
            }
            Spec::Certificate(spec) => {
                let (snapshot, now) = (&self.view.published().snapshot, self.view.now());
                Some(serde_json::to_value(certificate_status(snapshot, &object.metadata, spec, now)))
            }
            Spec::Gateway(_) => self.gateway(object).map(serde_json::to_value),
            Spec::HttpRoute(spec) => {
                let conditions = self.route(object, spec.into());
                conditions.map(|conditions| serde_json::to_value(HttpRouteStatus { conditions }))
            }
            Spec::TlsRoute(spec) => {
                let conditions = self.route(object, spec.into());
                conditions.map(|conditions| serde_json::to_value(TlsRouteStatus { conditions }))
            }
            Spec::WorkloadNetwork(_) => self.workload_network(object).map(serde_json::to_value),
            Spec::NetworkPolicy(_) => self.network_policy(object).map(serde_json::to_value),
            Spec::Block(spec) => {
                Some(serde_json::to_value(block_status(&self.view.published().snapshot, spec)))
            }
            Spec::Attachment(spec) => {
                Some(serde_json::to_value(attachment_status(&self.view.published().snapshot, spec)))
            }
            Spec::Address(_) => self.address(object).map(serde_json::to_value),
            // The object is itself derived from observations.
            Spec::EndpointHealth(_) => None,
            Spec::Workload(spec) => object.metadata.namespace.as_ref().map(|namespace| {
                let snapshot = &self.view.published().snapshot;
                serde_json::to_value(workload_status(snapshot, namespace, &object.metadata, spec))
            }),
            Spec::EndpointSet(spec) => object.metadata.namespace.as_ref().map(|namespace| {
                let snapshot = &self.view.published().snapshot;
                serde_json::to_value(endpoint_set_status(snapshot, namespace, spec))
            }),
        };
        let mut json = object.to_json();
        if let Some(status) = status {
            json["status"] = status.expect("published statuses serialise to JSON");
        }
        json
    }

    /// Returns the status of a WorkloadNetwork; `None` if the object is of another kind.
    pub(crate) fn workload_network(&self, object: &Object) -> Option<WorkloadNetworkStatus> {
        let spec = object.as_workload_network()?;
        let Published { snapshot, network, .. } = self.view.published();
        Some(workload_network_status(snapshot, &object.metadata.name, spec, &network.service_cidrs))
    }

    /// Returns the status of a NetworkPolicy; `None` if the object is of another kind.
    pub(crate) fn network_policy(&self, object: &Object) -> Option<NetworkPolicyStatus> {
        let key = PolicyKey::of(object)?;
        let Published { policy, epoch, .. } = self.view.published();
        let wanted = Position { epoch: *epoch, revision: object.metadata.revision() };
        Some(network_policy_status(policy, &key, wanted, self.nodes()))
    }

    /// Returns the status of a Gateway; `None` if the object is of another kind.
    pub(crate) fn gateway(&self, object: &Object) -> Option<GatewayStatus> {
        let spec = object.as_gateway()?;
        let namespace = object.metadata.namespace.clone()?;
        let key = HttpObjectKey { namespace, name: object.metadata.name.clone() };
        let status = gateway_status(&self.view.published().snapshot, &object.metadata, spec);
        Some(with_gateways(status, &key, spec, self.view.gateways()))
    }

    /// Returns the conditions of a route, with that of its host names in DnsZones; `None` if the object has no namespace.
    fn route(&self, object: &Object, spec: RouteSpec<'_>) -> Option<Vec<Condition>> {
        let namespace = object.metadata.namespace.as_ref()?;
        let published = self.view.published();
        let mut conditions = route_conditions(&published.snapshot, namespace, spec);
        if spec.hostnames().iter().any(|name| published.snapshot.dns_zone_of(name.as_str()).is_some()) {
            let resolvable = self.announcing(|of| route_resolvable(of, &object.key(), spec));
            conditions.extend(resolvable);
        }
        Some(conditions)
    }

    /// Returns the status of a Service; `None` if the object is of another kind.
    pub(crate) fn service(&self, object: &Object) -> Option<ServiceStatus> {
        let spec = object.as_service()?;
        let key =
            ServiceKey { namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone() };
        let published = self.view.published();
        let compiled = published.compiled.get(&key).map(|entry| &*entry.form);
        let has_records = published.snapshot.addresses_of(&key).next().is_some();
        let announced_on_record =
            has_records.then(|| self.announcing(|of| service_announced(of, &key))).flatten();
        let resolvable = if spec.hostnames.is_empty() {
            None
        } else {
            self.announcing(|of| service_resolvable(of, &key, spec, compiled))
        };
        Some(service_status(
            &published.snapshot,
            &key,
            spec,
            compiled,
            published.epoch,
            self.nodes(),
            ServiceObservations { announced_on_record, health: self.health(&key), resolvable },
        ))
    }

    /// Returns the progress of the nodes in applying the compiled form of a Service (the data that agents
    /// receive); empty if the Service is not sent to nodes.
    pub(crate) fn progress(&self, key: &ServiceKey, form: &CompiledService) -> NodeCounts {
        let wanted = Position { epoch: self.view.published().epoch, revision: form.revision };
        if form.is_programmable() { self.nodes().count(key, wanted) } else { NodeCounts::default() }
    }

    /// Returns the health of a Service's endpoints, or `None` if it has no effect on the status of the Service.
    pub(crate) fn health(&self, key: &ServiceKey) -> Option<ServiceHealth> {
        let form = &self.view.published().compiled.get(key)?.form;
        self.has_health(form).then(|| self.health_of(form))
    }

    /// Returns true if check results have an effect on the status of a Service: it has a health check or an endpoint on
    /// a lost Node, or a check by default has failed. Other checks by default change nothing, so that the status of a
    /// Service that nobody configured to be checked does not depend on the reports of agents.
    pub(crate) fn has_health(&self, form: &CompiledService) -> bool {
        if form.health_check.is_some() || is_suspected(form) {
            return true;
        }
        let service = &form.service;
        let has_failed = || {
            self.view.published().snapshot.endpoint_health(service).is_some()
                || self.view.observations.health.guard().held_of(service).next().is_some()
        };
        has_default_check(form) && has_failed()
    }

    /// Returns the health of a Service's endpoints with those that nobody checks, or `None` if the Service does not
    /// exist or has no compiled form.
    pub(crate) fn full_health(&self, key: &ServiceKey) -> Option<ServiceHealth> {
        let form = &self.view.published().compiled.get(key)?.form;
        let mut health = self.health_of(form);
        add_not_checked(&mut health, form);
        Some(health)
    }

    fn health_of(&self, form: &CompiledService) -> ServiceHealth {
        let published = self.view.published();
        let table = self.view.table();
        let is_reporting = |node: &Name| table.view(node).is_some_and(|view| view.is_connected);
        let state = &self.view.observations.health;
        let book = state.book();
        let checkers = &published.network.checkers;
        let (is_reporting, now) = (&is_reporting, self.view.now);
        let inputs = HealthInputs { book: &book, checkers, is_reporting, dead: &BTreeSet::new(), now };
        let guard = state.guard();
        service_health(&published.snapshot, form, &inputs, &guard)
    }

    /// Returns the status of an AddressPool; `None` if the object is of another kind.
    pub(crate) fn pool(&self, object: &Object) -> Option<AddressPoolStatus> {
        let Spec::AddressPool(spec) = &object.spec else { return None };
        let announced = self.announcing(|of| pool_announced(&of.scene, &object.metadata.name, spec));
        let mut status = address_pool_status(&self.view.published().snapshot, &object.metadata.name, spec);
        status.conditions.push(announced);
        Some(status)
    }

    /// Returns the status of an Advertisement; `None` if the object is of another kind.
    pub(crate) fn advertisement(&self, object: &Object) -> Option<AdvertisementStatus> {
        let spec = object.as_advertisement()?;
        Some(self.announcing(|of| advertisement_status(&of.scene, spec)))
    }

    /// Returns the status of a BgpPeer; `None` if the object is of another kind.
    pub(crate) fn bgp_peer(&self, object: &Object) -> Option<BgpPeerStatus> {
        let spec = object.as_bgp_peer()?;
        let Published { snapshot, asn, .. } = self.view.published();
        let name = &object.metadata.name;
        let status = bgp_peer_status(snapshot, name, spec, *asn);
        Some(self.announcing(|of| with_sessions(of, name, spec, status)))
    }

    /// Returns the status of a BfdProfile.
    pub(crate) fn bfd_profile(&self, object: &Object) -> BfdProfileStatus {
        bfd_profile_status(&self.view.published().snapshot, &object.metadata.name)
    }

    /// Returns the status of an Address; `None` if the object is of another kind.
    pub(crate) fn address(&self, object: &Object) -> Option<AddressStatus> {
        let record = object.as_address()?;
        Some(self.announcing(|of| address_status(of, record)))
    }

    fn nodes(&self) -> &NodeViews<'_> {
        self.nodes.get_or_init(|| NodeViews::new(self.view.table().views()))
    }

    /// Calls `look` with the data from which the announcement status of addresses is derived, and returns the
    /// result.
    pub(crate) fn announcing<T>(&self, look: impl FnOnce(&AnnouncementInputs<'_>) -> T) -> T {
        let published = self.view.published();
        let compiled = |key: &ServiceKey| published.compiled.get(key).map(|entry| Arc::clone(&entry.form));
        let scene = ClusterView {
            snapshot: &published.snapshot,
            epoch: published.epoch,
            nodes: self.nodes().all(),
            compiled: &compiled,
        };
        let book = self.view.observations.announcements();
        let bgp = self.view.observations.bgp();
        look(&AnnouncementInputs { scene, book: &book, bgp: &bgp })
    }

    /// Returns the status of a Node; `None` if the object is of another kind.
    pub(crate) fn node(&self, object: &Object) -> Option<NodeStatus> {
        let Spec::Node(spec) = &object.spec else { return None };
        let view = self.view.table().view(&object.metadata.name)?;
        let Published { snapshot, asn, .. } = self.view.published();
        let bgp = node_bgp_status(snapshot, object, *asn);
        Some(NodeStatus { bgp, ..node_status(spec, &view, self.view.published.nodes_head()) })
    }
}
