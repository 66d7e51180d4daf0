//! Resources of the read-only Kubernetes API, as its discovery documents list them. No I/O.

use model::kinds::resource::Kind;

/// Resource of the read-only Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Resource {
    /// `Node`, derived from a Tidegate Node.
    Nodes,
    /// `Service`, derived from a Tidegate Service.
    Services,
    /// `Endpoints`, derived from the endpoints that Tidegate computes for a Service.
    Endpoints,
    /// `EndpointSlice`s, derived from the endpoints that Tidegate computes for a Service.
    EndpointSlices,
    /// `Pod`, derived from a Tidegate Workload.
    Pods,
    /// `Namespace`, one for each namespace that contains objects.
    Namespaces,
    /// `Event`, derived from the recent events that agents report.
    Events,
    /// `Ingress`, derived from a Tidegate HttpRoute.
    Ingresses,
    /// `Gateway` of the Gateway API, derived from a Tidegate Gateway.
    Gateways,
    /// `HTTPRoute` of the Gateway API, derived from a Tidegate HttpRoute.
    HttpRoutes,
}

/// API group that the read-only Kubernetes API serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    /// Core group, with version `v1`.
    Core,
    /// Group `discovery.k8s.io`, which contains EndpointSlices.
    Discovery,
    /// Group `networking.k8s.io`, which contains Ingresses.
    Networking,
    /// Group `gateway.networking.k8s.io`, the Gateway API.
    Gateway,
}

/// Names of a resource in the discovery documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// Plural name, as used in paths.
    pub(super) plural: &'static str,
    /// Kind, as in the field `kind` of an object.
    pub(super) kind: &'static str,
    /// Short names that `kubectl` accepts.
    pub(super) short: &'static [&'static str],
    /// True if `kubectl get all` includes the resource.
    pub(super) is_in_all: bool,
}

impl Resource {
    /// All resources, in the order of the discovery documents.
    pub(super) const ALL: [Self; 10] = [
        Self::Nodes,
        Self::Services,
        Self::Endpoints,
        Self::EndpointSlices,
        Self::Pods,
        Self::Namespaces,
        Self::Events,
        Self::Ingresses,
        Self::Gateways,
        Self::HttpRoutes,
    ];

    /// Returns the names of the resource for the discovery documents.
    pub(super) const fn words(self) -> Words {
        let (plural, kind, short, is_in_all): (_, _, &'static [&'static str], _) = match self {
            Self::Nodes => ("nodes", "Node", &["no"], false),
            Self::Services => ("services", "Service", &["svc"], true),
            Self::Endpoints => ("endpoints", "Endpoints", &["ep"], false),
            Self::EndpointSlices => ("endpointslices", "EndpointSlice", &[], false),
            Self::Pods => ("pods", "Pod", &["po"], true),
            Self::Namespaces => ("namespaces", "Namespace", &["ns"], false),
            Self::Events => ("events", "Event", &["ev"], false),
            Self::Ingresses => ("ingresses", "Ingress", &["ing"], false),
            Self::Gateways => ("gateways", "Gateway", &["gtw"], false),
            Self::HttpRoutes => ("httproutes", "HTTPRoute", &[], false),
        };
        Words { plural, kind, short, is_in_all }
    }

    /// Returns the API group of the resource.
    pub(super) const fn group(self) -> Group {
        match self {
            Self::EndpointSlices => Group::Discovery,
            Self::Ingresses => Group::Networking,
            Self::Gateways | Self::HttpRoutes => Group::Gateway,
            Self::Nodes | Self::Services | Self::Endpoints | Self::Pods | Self::Namespaces | Self::Events => {
                Group::Core
            }
        }
    }

    /// Returns true if the objects of the resource are in a namespace.
    pub(super) const fn is_namespaced(self) -> bool {
        match self {
            Self::Nodes | Self::Namespaces => false,
            Self::Services
            | Self::Endpoints
            | Self::EndpointSlices
            | Self::Pods
            | Self::Events
            | Self::Ingresses
            | Self::Gateways
            | Self::HttpRoutes => true,
        }
    }

    /// Returns true if the resource can be watched. Events cannot: agents report them, and they are not part of
    /// the stored state.
    pub(super) const fn is_watchable(self) -> bool {
        match self {
            Self::Events => false,
            Self::Nodes
            | Self::Services
            | Self::Endpoints
            | Self::EndpointSlices
            | Self::Pods
            | Self::Namespaces
            | Self::Ingresses
            | Self::Gateways
            | Self::HttpRoutes => true,
        }
    }

    /// Returns the Tidegate kind that the resource is derived from and that permissions refer to; `None` for
    /// namespaces, which are derived from objects of all kinds.
    pub(super) const fn of(self) -> Option<Kind> {
        match self {
            Self::Nodes | Self::Events => Some(Kind::Node),
            Self::Services | Self::Endpoints | Self::EndpointSlices => Some(Kind::Service),
            Self::Pods => Some(Kind::Workload),
            Self::Gateways => Some(Kind::Gateway),
            Self::Ingresses | Self::HttpRoutes => Some(Kind::HttpRoute),
            Self::Namespaces => None,
        }
    }

    /// Returns the resource with the given plural name in an API group, or `None` if there is none.
    pub(super) fn parse(group: Group, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.words().plural == plural)
    }
}

impl Group {
    /// All groups except the core group, in the order of the discovery documents.
    pub(super) const NAMED: [Self; 3] = [Self::Discovery, Self::Networking, Self::Gateway];

    /// Returns the versions of the API group, the preferred one first. Debian's `kubectl` reads
    /// EndpointSlices in version `v1beta1`.
    pub(super) const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Core | Self::Networking | Self::Gateway => &["v1"],
            Self::Discovery => &["v1", "v1beta1"],
        }
    }

    /// Returns the group name; empty for the core group.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Core => "",
            Self::Discovery => "discovery.k8s.io",
            Self::Networking => "networking.k8s.io",
            Self::Gateway => "gateway.networking.k8s.io",
        }
    }

    /// Returns the value of `apiVersion` for objects of the group.
    pub(super) fn api_version(self, version: &str) -> String {
        match self {
            Self::Core => version.to_owned(),
            Self::Discovery | Self::Networking | Self::Gateway => format!("{}/{version}", self.name()),
        }
    }

    /// Returns the path of the group and version below [`super::PREFIX`].
    pub(super) fn path(self, version: &str) -> String {
        match self {
            Self::Core => format!("/api/{version}"),
            Self::Discovery | Self::Networking | Self::Gateway => {
                format!("/apis/{}/{version}", self.name())
            }
        }
    }
}
