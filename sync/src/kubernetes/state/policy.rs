//! Pods and NetworkPolicies of the cluster.
//!
//! A change of a Pod costs this Pod. A change of a Namespace costs the policies that select namespaces by labels.
//!
//! A namespace with a Pod whose labels cannot be translated has a policy in Tidegate that isolates the Workloads of such Pods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ClusterState, Id};
use crate::kubernetes::{
    resource::Resource,
    translate::{self as translation, ISOLATED_LABEL},
};

/// State of network policy.
#[derive(Debug, Default)]
pub(super) struct PolicySide {
    /// NetworkPolicies whose translation depends on the labels of Namespaces.
    by_namespace_labels: BTreeSet<Id>,
    /// Names of the Pods whose Workloads must be isolated, by namespace.
    isolated: BTreeMap<String, BTreeSet<String>>,
}

impl ClusterState {
    pub(super) fn pod(&mut self, id: &Id) {
        let pod = self.get(Resource::Pod, id).and_then(unpacked_pod);
        let made = pod.map(|pod| translation::pod(&self.settings, &pod)).unwrap_or_default();
        let is_isolated =
            made.objects.iter().any(|object| object.metadata.labels.contains_key(ISOLATED_LABEL));
        self.take(Resource::Pod, id, made);
        self.isolate(id, is_isolated);
    }

    /// Creates the policy that isolates Pods of the namespace when the first of them needs it, and removes it with the last one.
    fn isolate(&mut self, pod: &Id, is_isolated: bool) {
        // With `--pods`, the token of the adapter may lack the permission for NetworkPolicies.
        if !self.needed.contains(&Resource::NetworkPolicy) {
            return;
        }
        let Id { namespace, name } = pod;
        let isolated = &mut self.policy.isolated;
        let had_any = isolated.contains_key(namespace);
        if is_isolated {
            isolated.entry(namespace.clone()).or_default().insert(name.clone());
        } else if let Some(names) = isolated.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                isolated.remove(namespace);
            }
        }
        let has_any = isolated.contains_key(namespace);
        if had_any != has_any {
            let made = has_any.then(|| translation::isolating_policy(&self.settings, namespace));
            let of_namespace = Id { namespace: namespace.clone(), name: String::new() };
            self.replace(Resource::NetworkPolicy, &of_namespace, made.unwrap_or_default().objects);
        }
    }

    pub(super) fn network_policy(&mut self, id: &Id) {
        let policy = self.get(Resource::NetworkPolicy, id);
        let is_by_labels = policy.is_some_and(translation::selects_namespaces_by_labels);
        let made = policy.map(|policy| translation::network_policy(&self.settings, &self.around, policy));
        let made = made.unwrap_or_default();
        if is_by_labels {
            self.policy.by_namespace_labels.insert(id.clone());
        } else {
            self.policy.by_namespace_labels.remove(id);
        }
        self.take(Resource::NetworkPolicy, id, made);
    }

    /// Translates the NetworkPolicies that depend on the labels of Namespaces again.
    pub(super) fn follow_namespace_labels(&mut self) {
        for id in self.policy.by_namespace_labels.clone() {
            self.network_policy(&id);
        }
    }
}

/// Returns the fields of a Pod that are read, as text: each map of a JSON value takes hundreds of bytes, and a cluster may have
/// tens of thousands of Pods.
pub(super) fn packed_pod(pod: &Value) -> Value {
    Value::String(translation::reduced_pod(pod).to_string())
}

/// Returns the Pod of a packed one; `None` for other objects.
pub(super) fn unpacked_pod(packed: &Value) -> Option<Value> {
    serde_json::from_str(packed.as_str()?).ok()
}
