//! Resources of the Kubernetes API as listed by discovery. Pure.

use model::kinds::resource::Kind;

/// Resource of the read-only Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Resource {
    /// `Node`, from a Node.
    Nodes,
    /// `Service`, from a Service.
    Services,
    /// Computed endpoints of a Service as `Endpoints`.
    Endpoints,
    /// Computed endpoints of a Service as `EndpointSlice`s.
    EndpointSlices,
    /// `Pod`, from a Workload.
    Pods,
    /// `Namespace`, for each namespace that contains objects.
    Namespaces,
    /// `Event`, from the recent events that agents report.
    Events,
}

/// API group that the Kubernetes API serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    /// Core group; version `v1`.
    Core,
    /// Group `discovery.k8s.io`, which contains EndpointSlices.
    Discovery,
}

/// Names of a resource in discovery documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// Plural, as used in paths.
    pub(super) plural: &'static str,
    /// Kind, as in the field `kind`.
    pub(super) kind: &'static str,
    /// Abbreviations that `kubectl` accepts.
    pub(super) short: &'static [&'static str],
    /// True if `kubectl get all` includes the resource.
    pub(super) is_in_all: bool,
}

impl Resource {
    /// All resources, in the order of discovery.
    pub(super) const ALL: [Self; 7] = [
        Self::Nodes,
        Self::Services,
        Self::Endpoints,
        Self::EndpointSlices,
        Self::Pods,
        Self::Namespaces,
        Self::Events,
    ];

    /// Returns the plural, kind and short names for discovery.
    pub(super) const fn words(self) -> Words {
        let (plural, kind, short, is_in_all): (_, _, &'static [&'static str], _) = match self {
            Self::Nodes => ("nodes", "Node", &["no"], false),
            Self::Services => ("services", "Service", &["svc"], true),
            Self::Endpoints => ("endpoints", "Endpoints", &["ep"], false),
            Self::EndpointSlices => ("endpointslices", "EndpointSlice", &[], false),
            Self::Pods => ("pods", "Pod", &["po"], true),
            Self::Namespaces => ("namespaces", "Namespace", &["ns"], false),
            Self::Events => ("events", "Event", &["ev"], false),
        };
        Words { plural, kind, short, is_in_all }
    }

    /// Returns the API group of the resource.
    pub(super) const fn group(self) -> Group {
        match self {
            Self::EndpointSlices => Group::Discovery,
            Self::Nodes | Self::Services | Self::Endpoints | Self::Pods | Self::Namespaces | Self::Events => {
                Group::Core
            }
        }
    }

    /// True if the objects are namespaced.
    pub(super) const fn is_namespaced(self) -> bool {
        match self {
            Self::Nodes | Self::Namespaces => false,
            Self::Services | Self::Endpoints | Self::EndpointSlices | Self::Pods | Self::Events => true,
        }
    }

    /// True if the resource can be watched. Events come from reports, which are not part of the stored state.
    pub(super) const fn is_watchable(self) -> bool {
        match self {
            Self::Events => false,
            Self::Nodes
            | Self::Services
            | Self::Endpoints
            | Self::EndpointSlices
            | Self::Pods
            | Self::Namespaces => true,
        }
    }

    /// Returns the underlying Tidegate kind, which permissions refer to. `None` for namespaces, which derive
    /// from all kinds.
    pub(super) const fn of(self) -> Option<Kind> {
        match self {
            Self::Nodes | Self::Events => Some(Kind::Node),
            Self::Services | Self::Endpoints | Self::EndpointSlices => Some(Kind::Service),
            Self::Pods => Some(Kind::Workload),
            Self::Namespaces => None,
        }
    }

    /// Returns the resource with a plural name in a group.
    pub(super) fn parse(group: Group, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.words().plural == plural)
    }
}

impl Group {
    /// Returns the served versions, preferred one first. Debian's `kubectl` describes slices in the older
    /// one.
    pub(super) const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["v1"],
            Self::Discovery => &["v1", "v1beta1"],
        }
    }

    /// Returns the group name; empty for the core group.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Core => "",
            Self::Discovery => "discovery.k8s.io",
        }
    }

    /// Returns the value of `apiVersion`.
    pub(super) fn api_version(self, version: &str) -> String {
        match self {
            Self::Core => version.to_owned(),
            Self::Discovery => format!("{}/{version}", self.name()),
        }
    }

    /// Returns the path of the group below the API prefix.
    pub(super) fn path(self, version: &str) -> String {
        match self {
            Self::Core => format!("/api/{version}"),
            Self::Discovery => format!("/apis/{}/{version}", self.name()),
        }
    }
}
