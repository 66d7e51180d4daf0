//! The kinds of objects that are watched, and where the API server has them.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Services.
    Service,
    /// Their endpoints.
    EndpointSlice,
    /// Machines.
    Node,
    /// Namespaces, whose labels MetalLB's pools select.
    Namespace,
    /// MetalLB's pools.
    IpAddressPool,
    /// MetalLB's announcements by ARP and NDP.
    L2Advertisement,
    /// MetalLB's announcements by BGP.
    BgpAdvertisement,
    /// MetalLB's routers.
    BgpPeer,
    /// MetalLB's BFD profiles.
    BfdProfile,
    /// MetalLB's names of communities.
    Community,
    /// Passwords of BGP peers. They are read by name and not watched.
    Secret,
}

impl Resource {
    /// What every cluster has.
    pub const CORE: [Self; 4] = [Self::Service, Self::EndpointSlice, Self::Node, Self::Namespace];
    /// What a cluster has where MetalLB's resources are installed.
    pub const METALLB: [Self; 6] = [
        Self::IpAddressPool,
        Self::L2Advertisement,
        Self::BgpAdvertisement,
        Self::BgpPeer,
        Self::BfdProfile,
        Self::Community,
    ];

    /// Whether it is one of MetalLB's.
    #[must_use]
    pub const fn is_metallb(self) -> bool {
        match self {
            Self::Service | Self::EndpointSlice | Self::Node | Self::Namespace | Self::Secret => false,
            Self::IpAddressPool
            | Self::L2Advertisement
            | Self::BgpAdvertisement
            | Self::BgpPeer
            | Self::BfdProfile
            | Self::Community => true,
        }
    }

    /// Where the API server has it, best version first.
    #[must_use]
    pub fn places(self) -> Vec<ApiResource> {
        let metallb = |kind, plural| vec![place("metallb.io", "v1beta1", kind, plural)];
        match self {
            Self::Service => vec![place("", "v1", "Service", "services")],
            Self::EndpointSlice => vec![place("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")],
            Self::Node => vec![place("", "v1", "Node", "nodes")],
            Self::Namespace => vec![place("", "v1", "Namespace", "namespaces")],
            Self::IpAddressPool => metallb("IPAddressPool", "ipaddresspools"),
            Self::L2Advertisement => metallb("L2Advertisement", "l2advertisements"),
            Self::BgpAdvertisement => metallb("BGPAdvertisement", "bgpadvertisements"),
            Self::BgpPeer => ["v1beta2", "v1beta1"]
                .map(|version| place("metallb.io", version, "BGPPeer", "bgppeers"))
                .to_vec(),
            Self::BfdProfile => metallb("BFDProfile", "bfdprofiles"),
            Self::Community => metallb("Community", "communities"),
            Self::Secret => vec![place("", "v1", "Secret", "secrets")],
        }
    }
}

fn place(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}
