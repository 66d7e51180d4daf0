//! Watched kinds of objects and their API paths.

use kube::core::{ApiResource, GroupVersionKind};

/// Kind of cluster object that the adapter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Services (`v1`).
    Service,
    /// EndpointSlices (`discovery.k8s.io/v1`).
    EndpointSlice,
    /// Nodes (`v1`).
    Node,
    /// Namespaces, whose labels MetalLB's pools and NetworkPolicies select.
    Namespace,
    /// Pods (`v1`), of which only the fields that are read are kept.
    Pod,
    /// NetworkPolicies (`networking.k8s.io/v1`).
    NetworkPolicy,
    /// IPAddressPools of MetalLB.
    IpAddressPool,
    /// MetalLB L2 (ARP and NDP) advertisements.
    L2Advertisement,
    /// BGPAdvertisements of MetalLB.
    BgpAdvertisement,
    /// BGPPeers of MetalLB, whose passwords are in Secrets.
    BgpPeer,
    /// BFDProfiles of MetalLB.
    BfdProfile,
    /// Communities of MetalLB.
    Community,
    /// Secrets with BGP passwords; read by name, not watched.
    Secret,
    /// IngressClasses (`networking.k8s.io/v1`).
    IngressClass,
    /// Ingresses (`networking.k8s.io/v1`).
    Ingress,
    /// GatewayClasses (`gateway.networking.k8s.io`).
    GatewayClass,
    /// Gateways (`gateway.networking.k8s.io`).
    Gateway,
    /// HTTPRoutes (`gateway.networking.k8s.io`).
    HttpRoute,
    /// GRPCRoutes (`gateway.networking.k8s.io`).
    GrpcRoute,
    /// TLSRoutes (`gateway.networking.k8s.io`).
    TlsRoute,
    /// ReferenceGrants (`gateway.networking.k8s.io`).
    ReferenceGrant,
    /// Secrets with certificates of Gateways and Ingresses; read by name, not watched.
    CertificateSecret,
}

impl Resource {
    /// Kinds that every cluster has.
    pub const CORE: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::Namespace];
    /// Kinds that a cluster with MetalLB has.
    pub const METALLB: [Self; 6] = [
        Self::IpAddressPool,
        Self::L2Advertisement,
        Self::BgpAdvertisement,
        Self::BgpPeer,
        Self::BfdProfile,
        Self::Community,
    ];

    /// Kinds of network policy. NetworkPolicies select Pods, and also depend on Namespaces.
    pub const POLICY: [Self; 2] = [Self::Pod, Self::NetworkPolicy];

    /// Kinds of HTTP routing that are watched.
    pub const HTTP: [Self; 8] = [
        Self::IngressClass,
        Self::Ingress,
        Self::GatewayClass,
        Self::Gateway,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::ReferenceGrant,
    ];

    /// Returns true if a cluster may lack the kind.
    #[must_use]
    pub fn is_optional(self) -> bool {
        self.is_metallb() || Self::HTTP.contains(&self)
    }

    /// Returns true if the kind is one of MetalLB's.
    #[must_use]
    pub const fn is_metallb(self) -> bool {
        match self {
            Self::Service
            | Self::EndpointSlice
            | Self::Node
            | Self::Namespace
            | Self::Pod
            | Self::NetworkPolicy
            | Self::Secret
            | Self::IngressClass
            | Self::Ingress
            | Self::GatewayClass
            | Self::Gateway
            | Self::HttpRoute
            | Self::GrpcRoute
            | Self::TlsRoute
            | Self::ReferenceGrant
            | Self::CertificateSecret => false,
            Self::IpAddressPool
            | Self::L2Advertisement
            | Self::BgpAdvertisement
            | Self::BgpPeer
            | Self::BfdProfile
            | Self::Community => true,
        }
    }

    /// Returns the API resources of the kind, preferred version first.
    #[must_use]
    pub fn places(self) -> Vec<ApiResource> {
        let metallb = |kind, plural| vec![place("metallb.io", "v1beta1", kind, plural)];
        let gateway = |kind: &str, plural: &str| {
            ["v1", "v1beta1"]
                .map(|version| place("gateway.networking.k8s.io", version, kind, plural))
                .to_vec()
        };
        match self {
            Self::Service => vec![place("", "v1", "Service", "services")],
            Self::EndpointSlice => vec![place("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")],
            Self::Node => vec![place("", "v1", "Node", "nodes")],
            Self::Namespace => vec![place("", "v1", "Namespace", "namespaces")],
            Self::Pod => vec![place("", "v1", "Pod", "pods")],
            Self::NetworkPolicy => {
                vec![place("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")]
            }
            Self::IpAddressPool => metallb("IPAddressPool", "ipaddresspools"),
            Self::L2Advertisement => metallb("L2Advertisement", "l2advertisements"),
            Self::BgpAdvertisement => metallb("BGPAdvertisement", "bgpadvertisements"),
            Self::BgpPeer => ["v1beta2", "v1beta1"]
                .map(|version| place("metallb.io", version, "BGPPeer", "bgppeers"))
                .to_vec(),
            Self::BfdProfile => metallb("BFDProfile", "bfdprofiles"),
            Self::Community => metallb("Community", "communities"),
            Self::Secret | Self::CertificateSecret => vec![place("", "v1", "Secret", "secrets")],
            Self::IngressClass => {
                vec![place("networking.k8s.io", "v1", "IngressClass", "ingressclasses")]
            }
            Self::Ingress => vec![place("networking.k8s.io", "v1", "Ingress", "ingresses")],
            Self::GatewayClass => gateway("GatewayClass", "gatewayclasses"),
            Self::Gateway => gateway("Gateway", "gateways"),
            Self::HttpRoute => gateway("HTTPRoute", "httproutes"),
            Self::GrpcRoute => gateway("GRPCRoute", "grpcroutes"),
            Self::TlsRoute => ["v1", "v1alpha3", "v1alpha2"]
                .map(|version| place("gateway.networking.k8s.io", version, "TLSRoute", "tlsroutes"))
                .to_vec(),
            Self::ReferenceGrant => gateway("ReferenceGrant", "referencegrants"),
        }
    }
}

fn place(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}
