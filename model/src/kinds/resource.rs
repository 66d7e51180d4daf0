//! Kinds of the API, and types for keys, specs and objects of any kind.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

use crate::{
    kinds::{
        address::AddressSpec, address_pool::AddressPoolSpec, advertisement::AdvertisementSpec,
        attachment::AttachmentSpec, bfd_profile::BfdProfileSpec, bgp_peer::BgpPeerSpec, block::BlockSpec,
        certificate::CertificateSpec, dns_zone::DnsZoneSpec, endpoint_health::EndpointHealthSpec,
        endpoint_set::EndpointSetSpec, gateway::GatewaySpec, http_route::HttpRouteSpec, metadata::Metadata,
        network_policy::NetworkPolicySpec, node::NodeSpec, service::ServiceSpec, tls_route::TlsRouteSpec,
        workload::WorkloadSpec, workload_network::WorkloadNetworkSpec,
    },
    primitives::name::{Name, Namespace, parse_namespaced},
};

/// Value of `apiVersion` in every object.
pub const API_VERSION: &str = "tidegate/v1";

/// Kind of an object: `Node`, `AddressPool`, `BfdProfile`, `BgpPeer`, `Advertisement`, `DnsZone`, `Certificate`,
/// `Gateway`, `HttpRoute`, `TlsRoute`, `WorkloadNetwork`, `NetworkPolicy`, `Workload`, `Service`, `EndpointSet`, `Address`,
/// `EndpointHealth`, `Block` or `Attachment`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema, VariantArray,
)]
pub enum Kind {
    /// Machine with an agent.
    Node,
    /// Addresses for Services of type LoadBalancer.
    AddressPool,
    /// Parameters of BFD sessions with routers.
    BfdProfile,
    /// Router that nodes have BGP sessions with.
    BgpPeer,
    /// Selection of the nodes that announce the addresses of pools.
    Advertisement,
    /// Zone of the DNS with static records and host names of Services.
    DnsZone,
    /// Certificate chain with its private key for listeners of Gateways.
    Certificate,
    /// Listeners at which gateways accept HTTP requests and TLS connections.
    Gateway,
    /// Rules that select a Service for HTTP requests.
    HttpRoute,
    /// Services for TLS connections by their server name.
    TlsRoute,
    /// Addresses for workloads, divided into blocks that nodes get.
    WorkloadNetwork,
    /// Connections that selected Workloads accept and make.
    NetworkPolicy,
    /// Container, VM or process with an address, matched by the selectors of Services.
    Workload,
    /// Stable address in front of endpoints.
    Service,
    /// Endpoints given by users or adapters.
    EndpointSet,
    /// Assignment of a load balancer address to Services and announcing nodes, maintained by the server.
    Address,
    /// List of the unhealthy endpoints of a Service, maintained by the server.
    EndpointHealth,
    /// Part of a WorkloadNetwork whose addresses one node assigns, maintained by the server.
    Block,
    /// Interface by which a node connects a workload to the network, maintained by the server.
    Attachment,
}

impl Kind {
    /// All kinds, in the order in which objects are listed and in which one write changes objects.
    pub const ALL: [Self; Self::VARIANTS.len()] =
        *Self::VARIANTS.first_chunk().expect("an array has as many elements as its length");

    /// Returns the kind as written in the field `kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::AddressPool => "AddressPool",
            Self::BfdProfile => "BfdProfile",
            Self::BgpPeer => "BgpPeer",
            Self::Advertisement => "Advertisement",
            Self::DnsZone => "DnsZone",
            Self::Certificate => "Certificate",
            Self::Gateway => "Gateway",
            Self::HttpRoute => "HttpRoute",
            Self::TlsRoute => "TlsRoute",
            Self::WorkloadNetwork => "WorkloadNetwork",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Address => "Address",
            Self::EndpointHealth => "EndpointHealth",
            Self::Block => "Block",
            Self::Attachment => "Attachment",
            Self::Workload => "Workload",
            Self::Service => "Service",
            Self::EndpointSet => "EndpointSet",
        }
    }

    /// Returns the plural of the kind as used in request paths, such as `services`.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::AddressPool => "addresspools",
            Self::BfdProfile => "bfdprofiles",
            Self::BgpPeer => "bgppeers",
            Self::Advertisement => "advertisements",
            Self::DnsZone => "dnszones",
            Self::Certificate => "certificates",
            Self::Gateway => "gateways",
            Self::HttpRoute => "httproutes",
            Self::TlsRoute => "tlsroutes",
            Self::WorkloadNetwork => "workloadnetworks",
            Self::NetworkPolicy => "networkpolicies",
            Self::Address => "addresses",
            Self::EndpointHealth => "endpointhealths",
            Self::Block => "blocks",
            Self::Attachment => "attachments",
            Self::Workload => "workloads",
            Self::Service => "services",
            Self::EndpointSet => "endpointsets",
        }
    }

    /// True if objects of the kind have a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Node
            | Self::AddressPool
            | Self::BfdProfile
            | Self::BgpPeer
            | Self::Advertisement
            | Self::DnsZone
            | Self::WorkloadNetwork
            | Self::Address
            | Self::Block
            | Self::Attachment => false,
            Self::Certificate
            | Self::Gateway
            | Self::HttpRoute
            | Self::TlsRoute
            | Self::NetworkPolicy
            | Self::Workload
            | Self::Service
            | Self::EndpointSet
            | Self::EndpointHealth => true,
        }
    }

    /// True if only the server, and no client, writes objects of the kind.
    #[must_use]
    pub const fn is_kept_by_server(self) -> bool {
        match self {
            Self::Address | Self::EndpointHealth | Self::Block | Self::Attachment => true,
            Self::Node
            | Self::AddressPool
            | Self::BfdProfile
            | Self::BgpPeer
            | Self::Advertisement
            | Self::DnsZone
            | Self::Certificate
            | Self::Gateway
            | Self::HttpRoute
            | Self::TlsRoute
            | Self::WorkloadNetwork
            | Self::NetworkPolicy
            | Self::Workload
            | Self::Service
            | Self::EndpointSet => false,
        }
    }

    /// Parses a kind as written in the field `kind`; `None` if there is no such kind.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Parses the plural of a kind as used in request paths, such as `services`; `None` if there is no such
    /// kind.
    #[must_use]
    pub fn parse_plural(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == text)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind, namespace and name, which identify an object. Keys are ordered by kind, then namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind of the identified object.
    pub kind: Kind,
    /// Namespace of the object; `None` for cluster-scoped kinds.
    pub namespace: Option<Namespace>,
    /// Name of the identified object.
    pub name: Name,
}

impl ObjectKey {
    /// Returns the path of the object in the API, such as `/v1/namespaces/default/services/web`.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("/v1/namespaces/{namespace}/{}/{}", self.kind.plural(), self.name),
            None => format!("/v1/{}/{}", self.kind.plural(), self.name),
        }
    }

    /// Returns the key of the object in a store: `plural/namespace/name`, or `plural//name` for
    /// cluster-scoped kinds.
    #[must_use]
    pub fn to_store_key(&self) -> String {
        let namespace = self.namespace.as_ref().map_or("", Namespace::as_str);
        format!("{}/{namespace}/{}", self.kind.plural(), self.name)
    }

    /// Parses a store key, as returned by [`Self::to_store_key`]. Returns `None` if the key is malformed.
    #[must_use]
    pub fn parse_store_key(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let kind = Kind::parse_plural(parts.next()?)?;
        let namespace =
            parts.next().filter(|text| !text.is_empty()).map(Namespace::parse).transpose().ok()?;
        let name = Name::parse(parts.next()?).ok()?;
        (namespace.is_some() == kind.is_namespaced()).then_some(Self { kind, namespace, name })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Namespace and name of a Service, which identify it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceKey {
    /// Namespace of the Service.
    pub namespace: Namespace,
    /// Name of the Service.
    pub name: Name,
}

impl ServiceKey {
    /// Returns the Service key for an object key of kind Service, or `None` for other kinds.
    #[must_use]
    pub fn of_object_key(key: &ObjectKey) -> Option<Self> {
        let namespace = key.namespace.clone().filter(|_| key.kind == Kind::Service)?;
        Some(Self { namespace, name: key.name.clone() })
    }

    /// Returns the object key of the Service, with kind Service.
    #[must_use]
    pub fn object_key(&self) -> ObjectKey {
        ObjectKey { kind: Kind::Service, namespace: Some(self.namespace.clone()), name: self.name.clone() }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl TryFrom<String> for ServiceKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        parse_namespaced(&text).map(|(namespace, name)| Self { namespace, name })
    }
}

impl From<ServiceKey> for String {
    fn from(key: ServiceKey) -> Self {
        key.to_string()
    }
}

/// Spec of an object of any kind. Large specs of kinds with few objects are in boxes, because every object has the size of
/// the largest variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// Spec of a Node.
    Node(Box<NodeSpec>),
    /// Spec of an AddressPool.
    AddressPool(Box<AddressPoolSpec>),
    /// Spec of a BfdProfile.
    BfdProfile(BfdProfileSpec),
    /// Spec of a BgpPeer.
    BgpPeer(Box<BgpPeerSpec>),
    /// Spec of an Advertisement.
    Advertisement(Box<AdvertisementSpec>),
    /// Spec of a DnsZone.
    DnsZone(Box<DnsZoneSpec>),
    /// Spec of a Certificate.
    Certificate(Box<CertificateSpec>),
    /// Spec of a Gateway.
    Gateway(GatewaySpec),
    /// Spec of an HttpRoute.
    HttpRoute(HttpRouteSpec),
    /// Spec of a TlsRoute.
    TlsRoute(TlsRouteSpec),
    /// Spec of a WorkloadNetwork.
    WorkloadNetwork(Box<WorkloadNetworkSpec>),
    /// Spec of a NetworkPolicy.
    NetworkPolicy(Box<NetworkPolicySpec>),
    /// Spec of an Address.
    Address(Box<AddressSpec>),
    /// Spec of an EndpointHealth.
    EndpointHealth(EndpointHealthSpec),
    /// Spec of a Block.
    Block(BlockSpec),
    /// Spec of an Attachment.
    Attachment(Box<AttachmentSpec>),
    /// Spec of a Workload.
    Workload(WorkloadSpec),
    /// Spec of a Service.
    Service(Box<ServiceSpec>),
    /// Spec of an EndpointSet.
    EndpointSet(EndpointSetSpec),
}

impl Spec {
    /// Returns the kind to which the spec belongs.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::AddressPool(_) => Kind::AddressPool,
            Self::BfdProfile(_) => Kind::BfdProfile,
            Self::BgpPeer(_) => Kind::BgpPeer,
            Self::Advertisement(_) => Kind::Advertisement,
            Self::DnsZone(_) => Kind::DnsZone,
            Self::Certificate(_) => Kind::Certificate,
            Self::Gateway(_) => Kind::Gateway,
            Self::HttpRoute(_) => Kind::HttpRoute,
            Self::TlsRoute(_) => Kind::TlsRoute,
            Self::WorkloadNetwork(_) => Kind::WorkloadNetwork,
            Self::NetworkPolicy(_) => Kind::NetworkPolicy,
            Self::Address(_) => Kind::Address,
            Self::EndpointHealth(_) => Kind::EndpointHealth,
            Self::Block(_) => Kind::Block,
            Self::Attachment(_) => Kind::Attachment,
            Self::Workload(_) => Kind::Workload,
            Self::Service(_) => Kind::Service,
            Self::EndpointSet(_) => Kind::EndpointSet,
        }
    }

    /// Returns the endpoint addresses that the spec contains, each with its JSON pointer.
    #[must_use]
    pub fn endpoint_addresses(&self) -> Vec<(String, IpAddr)> {
        match self {
            Self::Workload(spec) => {
                let addresses = spec.addresses.iter().enumerate();
                addresses.map(|(at, address)| (format!("/spec/addresses/{at}"), *address)).collect()
            }
            Self::EndpointSet(spec) => {
                let endpoints = spec.endpoints.iter().enumerate();
                endpoints.map(|(at, end)| (format!("/spec/endpoints/{at}/address"), end.address)).collect()
            }
            Self::Node(_)
            | Self::AddressPool(_)
            | Self::BfdProfile(_)
            | Self::BgpPeer(_)
            | Self::Advertisement(_)
            | Self::DnsZone(_)
            | Self::Certificate(_)
            | Self::Gateway(_)
            | Self::HttpRoute(_)
            | Self::TlsRoute(_)
            | Self::WorkloadNetwork(_)
            | Self::NetworkPolicy(_)
            | Self::Address(_)
            | Self::EndpointHealth(_)
            | Self::Block(_)
            | Self::Attachment(_)
            | Self::Service(_) => Vec::new(),
        }
    }

    /// Returns the JSON form for responses, without secrets.
    ///
    /// # Panics
    /// Never panics: specs have string keys only.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let json = match self {
            Self::Node(spec) => serde_json::to_value(spec),
            Self::AddressPool(spec) => serde_json::to_value(spec),
            Self::BfdProfile(spec) => serde_json::to_value(spec),
            Self::BgpPeer(spec) => serde_json::to_value(spec.without_password()),
            Self::Advertisement(spec) => serde_json::to_value(spec),
            Self::DnsZone(spec) => serde_json::to_value(spec.without_secrets()),
            Self::Certificate(spec) => serde_json::to_value(spec.without_secret()),
            Self::Gateway(spec) => serde_json::to_value(spec),
            Self::HttpRoute(spec) => serde_json::to_value(spec),
            Self::TlsRoute(spec) => serde_json::to_value(spec),
            Self::WorkloadNetwork(spec) => serde_json::to_value(spec),
            Self::NetworkPolicy(spec) => serde_json::to_value(spec),
            Self::Address(spec) => serde_json::to_value(spec),
            Self::EndpointHealth(spec) => serde_json::to_value(spec),
            Self::Block(spec) => serde_json::to_value(spec),
            Self::Attachment(spec) => serde_json::to_value(spec),
            Self::Workload(spec) => serde_json::to_value(spec),
            Self::Service(spec) => serde_json::to_value(spec),
            Self::EndpointSet(spec) => serde_json::to_value(spec),
        };
        json.expect("published specs serialise to JSON")
    }
}

/// Object of the API: metadata and desired state. The status is not stored; the server computes it for each
/// response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Name, namespace, version, labels and annotations.
    pub metadata: Metadata,
    /// Desired state of the object.
    pub spec: Spec,
}

impl Object {
    /// Returns the key of the object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.spec.kind(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
        }
    }

    /// Returns the object as JSON for responses, without its status.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": API_VERSION,
            "kind": self.spec.kind().as_str(),
            "metadata": self.metadata,
            "spec": self.spec.to_json(),
        })
    }

    /// Returns the spec of a Node, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_node(&self) -> Option<&NodeSpec> {
        if let Spec::Node(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an AddressPool, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_address_pool(&self) -> Option<&AddressPoolSpec> {
        if let Spec::AddressPool(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a BfdProfile, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_bfd_profile(&self) -> Option<&BfdProfileSpec> {
        if let Spec::BfdProfile(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a BgpPeer, or `None` for an object of another kind.
    #[must_use]
    pub fn as_bgp_peer(&self) -> Option<&BgpPeerSpec> {
        if let Spec::BgpPeer(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an Advertisement, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_advertisement(&self) -> Option<&AdvertisementSpec> {
        if let Spec::Advertisement(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a DnsZone, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_dns_zone(&self) -> Option<&DnsZoneSpec> {
        if let Spec::DnsZone(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a Certificate, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_certificate(&self) -> Option<&CertificateSpec> {
        if let Spec::Certificate(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a Gateway, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_gateway(&self) -> Option<&GatewaySpec> {
        if let Spec::Gateway(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an HttpRoute, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_http_route(&self) -> Option<&HttpRouteSpec> {
        if let Spec::HttpRoute(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a TlsRoute, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_tls_route(&self) -> Option<&TlsRouteSpec> {
        if let Spec::TlsRoute(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an Address, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_address(&self) -> Option<&AddressSpec> {
        if let Spec::Address(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an EndpointHealth, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_endpoint_health(&self) -> Option<&EndpointHealthSpec> {
        if let Spec::EndpointHealth(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a WorkloadNetwork, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_workload_network(&self) -> Option<&WorkloadNetworkSpec> {
        if let Spec::WorkloadNetwork(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a NetworkPolicy, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_network_policy(&self) -> Option<&NetworkPolicySpec> {
        if let Spec::NetworkPolicy(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a Block, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_block(&self) -> Option<&BlockSpec> {
        if let Spec::Block(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an Attachment, or `None` for an object of another kind.
    #[must_use]
    pub fn as_attachment(&self) -> Option<&AttachmentSpec> {
        if let Spec::Attachment(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a Workload, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_workload(&self) -> Option<&WorkloadSpec> {
        if let Spec::Workload(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of a Service, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_service(&self) -> Option<&ServiceSpec> {
        if let Spec::Service(spec) = &self.spec { Some(spec) } else { None }
    }

    /// Returns the spec of an EndpointSet, or `None` for an object of another kind.
    #[must_use]
    pub const fn as_endpoint_set(&self) -> Option<&EndpointSetSpec> {
        if let Spec::EndpointSet(spec) = &self.spec { Some(spec) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{endpoint_set::Endpoint, service::ServicePort};

    #[test]
    fn store_keys_round_trip_and_refuse_what_they_did_not_write() {
        for text in ["services/default/web", "nodes//node-1.rack", "workloads/a/b", "endpointsets/x/y"] {
            assert_eq!(ObjectKey::parse_store_key(text).unwrap().to_store_key(), text);
        }
        for bad in
            ["", "services", "services//web", "nodes/default/n", "pods/default/p", "services/UP/x", "nodes//"]
        {
            assert_eq!(ObjectKey::parse_store_key(bad), None, "{bad}");
        }
    }

    /// Types of which a server has many in memory, with the greatest size that does not need the next larger class of the
    /// allocator. An object has two counters beside it, and a set has the endpoints in one allocation.
    #[test]
    fn frequent_types_are_small() {
        assert!(size_of::<Object>() <= 320 - 16, "{}", size_of::<Object>());
        assert!(size_of::<ServiceSpec>() <= 320, "{}", size_of::<ServiceSpec>());
        assert!(size_of::<Endpoint>() <= 72, "{}", size_of::<Endpoint>());
        assert!(size_of::<ServicePort>() <= 64, "{}", size_of::<ServicePort>());
    }
}
