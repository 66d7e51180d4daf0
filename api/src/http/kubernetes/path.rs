//! Parser of Kubernetes API paths, without I/O. Accepts every path: components that it lacks are empty or
//! `None`.

use super::{
    PREFIX,
    catalogue::{Group, Resource},
};

/// Components of a Kubernetes API path. Values are not validated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// Plural name of the resource in the path, even if the API does not serve it; empty if the path has
    /// none.
    pub(super) plural: &'a str,
    /// Resource with this plural name; `None` if the API does not serve it.
    pub(super) resource: Option<Resource>,
    /// Namespace in the path.
    pub(super) namespace: Option<&'a str>,
    /// Name in the path.
    pub(super) name: Option<&'a str>,
    /// Subresource in the path, such as `log`.
    pub(super) part: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Splits the path of a request into its components.
    pub(super) fn of(path: &'a str) -> Self {
        let below = path.strip_prefix(PREFIX).unwrap_or(path).trim_matches('/');
        let mut words = below.split('/');
        let group = match words.next() {
            Some("api") => Some(Group::Core).filter(|_| words.next().is_some()),
            Some("apis") => match (words.next(), words.next()) {
                (Some(name), Some(_)) => Group::NAMED.into_iter().find(|group| group.name() == name),
                _ => None,
            },
            _ => return Self::default(),
        };
        let rest: Vec<&str> = words.collect();
        let (namespace, rest) = match rest[..] {
            ["namespaces", namespace, _, ..] if namespace != "status" => (Some(namespace), &rest[2..]),
            _ => (None, &rest[..]),
        };
        let plural = rest.first().copied().unwrap_or_default();
        let resource = group.and_then(|group| Resource::parse(group, plural));
        let name = rest.get(1).copied().filter(|text| !text.is_empty());
        Self { plural, resource, namespace, name, part: rest.get(2).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> (Option<Resource>, Option<&str>, Option<&str>, Option<&str>) {
        let Target { plural: _, resource, namespace, name, part } = Target::of(path);
        (resource, namespace, name, part)
    }

    #[test]
    fn a_path_names_a_kind_a_namespace_an_object_and_a_part_of_it() {
        assert_eq!(of("/k8s/api/v1/nodes/n1"), (Some(Resource::Nodes), None, Some("n1"), None));
        assert_eq!(of("/k8s/api/v1/namespaces"), (Some(Resource::Namespaces), None, None, None));
        assert_eq!(of("/k8s/api/v1/namespaces/a"), (Some(Resource::Namespaces), None, Some("a"), None));
        let log = of("/k8s/api/v1/namespaces/a/pods/p/log");
        assert_eq!(log, (Some(Resource::Pods), Some("a"), Some("p"), Some("log")));
        let slices = of("/k8s/apis/discovery.k8s.io/v1/namespaces/a/endpointslices");
        assert_eq!(slices, (Some(Resource::EndpointSlices), Some("a"), None, None));
    }

    #[test]
    fn any_other_path_names_no_kind() {
        for odd in [
            "",
            "/",
            "/k8s",
            "/k8s/",
            "/k8s/api",
            "/k8s/api/v1",
            "/k8s/apis/x",
            "/k8s/apis/a/b/c/d",
            "/k8s/api/v1/widgets/x",
            "/k8s/api/v1//",
            "/k8s/%2f/%00",
            "/k8s/api/v1/endpointslices",
        ] {
            assert_eq!(Target::of(odd).resource, None, "{odd}");
        }
        let unknown = Target::of("/k8s/apis/apps/v1/namespaces/a/deployments/d");
        assert_eq!((unknown.plural, unknown.name), ("deployments", Some("d")));
    }
}
