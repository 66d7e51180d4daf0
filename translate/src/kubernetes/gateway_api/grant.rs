//! ReferenceGrants: permissions of a namespace for references of other namespaces to its Secrets and Services.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{GATEWAY_GROUP, Id};
use crate::{
    json::{items, text},
    kubernetes::names::digest,
};

/// Permission for the references of one kind in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    /// Kind of the objects with references, such as `HTTPRoute`.
    from_kind: String,
    from_namespace: String,
    /// Kind of the objects to which they refer: `Service` or `Secret`.
    to_kind: String,
    to_namespace: String,
    /// Name of the object; empty for all objects of the kind.
    to_name: String,
}

/// Permissions of all ReferenceGrants of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReferenceGrants(BTreeSet<Grant>);

impl ReferenceGrants {
    /// Collects the permissions for references of Gateways and routes to Services and Secrets.
    #[must_use]
    pub fn of<'a>(objects: impl Iterator<Item = &'a Value>) -> Self {
        let mut grants = BTreeSet::new();
        for object in objects {
            let froms =
                items(object, "/spec/from").iter().filter(|from| text(from, "/group") == GATEWAY_GROUP);
            for from in froms {
                for to in items(object, "/spec/to").iter().filter(|to| text(to, "/group").is_empty()) {
                    grants.insert(Grant {
                        from_kind: text(from, "/kind"),
                        from_namespace: text(from, "/namespace"),
                        to_kind: text(to, "/kind"),
                        to_namespace: text(object, "/metadata/namespace"),
                        to_name: text(to, "/name"),
                    });
                }
            }
        }
        Self(grants)
    }

    /// Returns true if objects of the kind `from_kind` in a namespace may refer to the object `to` of the kind `to_kind`.
    #[must_use]
    pub fn allow(&self, from_kind: &str, from_namespace: &str, to_kind: &str, to: &Id) -> bool {
        let grant = |name: &str| Grant {
            from_kind: from_kind.to_owned(),
            from_namespace: from_namespace.to_owned(),
            to_kind: to_kind.to_owned(),
            to_namespace: to.namespace.clone(),
            to_name: name.to_owned(),
        };
        from_namespace == to.namespace || self.0.contains(&grant(&to.name)) || self.0.contains(&grant(""))
    }
}

/// Maximum number of characters of a name and of a namespace in the name of a copy, so that all of it is a DNS label.
const PART_MAX: usize = 24;

/// Returns the name in the namespace of a reference for an object of another namespace, of which the adapter keeps a copy
/// there: name and namespace, which may be shortened, and a hash of both.
#[must_use]
pub fn copy_name(id: &Id) -> String {
    let part = |text: &str| text.replace('.', "-").chars().take(PART_MAX).collect::<String>();
    format!("{}-{}-{}", part(&id.name), part(&id.namespace), digest(&format!("{}/{}", id.namespace, id.name)))
}

/// Returns an object as its copy in another namespace.
#[must_use]
pub fn copy_of(object: &Value, namespace: &str) -> Value {
    let mut copy = object.clone();
    copy["metadata"]["name"] = copy_name(&Id::of(object)).into();
    copy["metadata"]["namespace"] = namespace.into();
    copy
}

#[cfg(test)]
mod tests {
    use model::primitives::name::Label;

    use super::*;

    #[test]
    fn names_of_copies_are_labels_and_differ() {
        let id = |namespace: &str, name: &str| Id { namespace: namespace.to_owned(), name: name.to_owned() };
        assert!(copy_name(&id("web", "page")).starts_with("page-web-"));
        assert_ne!(copy_name(&id("b", "a-b")), copy_name(&id("b-b", "a")));
        let long = copy_name(&id(&"n".repeat(63), &format!("{}.tls", "x".repeat(60))));
        assert!(Label::parse(&long).is_ok(), "{long}");
    }
}
