//! Pods and NetworkPolicies of the cluster.
//!
//! A change of a Pod costs this Pod. A change of a Namespace costs the policies that select namespaces by labels.

use std::collections::BTreeSet;

use super::{ClusterState, Id};
use crate::kubernetes::{resource::Resource, translate as translation};

/// State of network policy.
#[derive(Debug, Default)]
pub(super) struct PolicySide {
    /// NetworkPolicies whose translation depends on the labels of Namespaces.
    by_namespace_labels: BTreeSet<Id>,
}

impl ClusterState {
    pub(super) fn pod(&mut self, id: &Id) {
        let pod = self.get(Resource::Pod, id);
        let made = pod.map(|pod| translation::pod(&self.settings, pod)).unwrap_or_default();
        self.take(Resource::Pod, id, made);
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
