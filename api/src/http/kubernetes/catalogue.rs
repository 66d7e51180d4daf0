//! What kinds of objects the view has, as discovery tells of them. Pure.

use model::kinds::resource::Kind;

/// A kind of object of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Resource {
    /// Machines with an agent: our Nodes.
    Nodes,
    /// Our Services.
    Services,
    /// The computed endpoints of a Service, in the older form.
    Endpoints,
    /// The same in slices.
    EndpointSlices,
    /// Our Workloads.
    Pods,
    /// The namespaces that objects are in.
    Namespaces,
    /// What agents say happened on their nodes of late.
    Events,
}

/// A group of the API of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    /// The one without a name, `v1`.
    Core,
    /// `discovery.k8s.io`.
    Discovery,
}

/// What discovery says of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// In paths.
    pub(super) plural: &'static str,
    /// In `kind:`.
    pub(super) kind: &'static str,
    /// On the command line, shorter than those.
    pub(super) short: &'static [&'static str],
    /// Whether `kubectl get all` lists it.
    pub(super) is_in_all: bool,
}

impl Resource {
    /// Every kind.
    pub(super) const ALL: [Self; 7] = [
        Self::Nodes,
        Self::Services,
        Self::Endpoints,
        Self::EndpointSlices,
        Self::Pods,
        Self::Namespaces,
        Self::Events,
    ];

    /// What discovery says of it.
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

    /// The group that it is of.
    pub(super) const fn group(self) -> Group {
        match self {
            Self::EndpointSlices => Group::Discovery,
            Self::Nodes | Self::Services | Self::Endpoints | Self::Pods | Self::Namespaces | Self::Events => {
                Group::Core
            }
        }
    }

    /// Whether its objects are in namespaces.
    pub(super) const fn is_namespaced(self) -> bool {
        match self {
            Self::Nodes | Self::Namespaces => false,
            Self::Services | Self::Endpoints | Self::EndpointSlices | Self::Pods | Self::Events => true,
        }
    }

    /// Whether it can be watched. What happened on nodes is told by reports, which are no part of the state.
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

    /// The kind of ours that is shown, which permissions are about; none for namespaces, which are those of any.
    pub(super) const fn of(self) -> Option<Kind> {
        match self {
            Self::Nodes | Self::Events => Some(Kind::Node),
            Self::Services | Self::Endpoints | Self::EndpointSlices => Some(Kind::Service),
            Self::Pods => Some(Kind::Workload),
            Self::Namespaces => None,
        }
    }

    /// The kind with this word in paths.
    pub(super) fn parse(group: Group, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.words().plural == plural)
    }
}

impl Group {
    /// The versions that are served, the preferred one first. Debian's `kubectl` describes slices by the older one.
    pub(super) const fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["v1"],
            Self::Discovery => &["v1", "v1beta1"],
        }
    }

    /// Its name; empty for the one without.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Core => "",
            Self::Discovery => "discovery.k8s.io",
        }
    }

    /// What stands in `apiVersion`.
    pub(super) fn api_version(self, version: &str) -> String {
        match self {
            Self::Core => version.to_owned(),
            Self::Discovery => format!("{}/{version}", self.name()),
        }
    }

    /// Where its kinds are, below the prefix of the view.
    pub(super) fn path(self, version: &str) -> String {
        match self {
            Self::Core => format!("/api/{version}"),
            Self::Discovery => format!("/apis/{}/{version}", self.name()),
        }
    }
}
