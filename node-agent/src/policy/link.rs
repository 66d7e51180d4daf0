//! Link of other parts of the agent to the thread: policies to program, and attachments that wait for theirs.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use attach_socket::AttachedWorkload;
use model::{
    kinds::{attachment::WorkloadKey, node::ProxyMode},
    policy::{node_policy::NodePolicy, set::PolicyWorkload},
    primitives::name::Name,
    wire::report::PolicyReport,
};
use network::attach::gate::AttachGate;
use tokio::sync::watch;
use tracing::warn;

use super::PolicyShown;

/// Maximum time for which an attachment waits for its policy.
const GATE_TIME_MAX: Duration = Duration::from_secs(2);
/// Interval at which a waiting attachment looks for its policy.
const GATE_INTERVAL: Duration = Duration::from_millis(2);

/// Link to the thread. Clones use the same thread.
#[derive(Debug, Clone)]
pub struct PolicyLink {
    policy: watch::Sender<Option<NumberedPolicy>>,
    shown: watch::Receiver<PolicyShown>,
}

/// Policy with its number, counted from the start of the agent.
#[derive(Debug, Clone)]
pub(super) struct NumberedPolicy {
    number: u64,
    policy: NodePolicy,
    /// Workloads of addresses that were attached on this node, and that the control server has not recorded yet.
    attached: BTreeMap<IpAddr, WorkloadKey>,
}

impl NumberedPolicy {
    /// Creates the first policy.
    pub(super) const fn first(policy: NodePolicy) -> Self {
        Self { number: 1, policy, attached: BTreeMap::new() }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the policy in which Workloads on the node `own` have the addresses of their attachments.
    pub(super) fn with_attachments(&self, own: &Name) -> NodePolicy {
        let mut policy = self.policy.clone();
        for (address, key) in &self.attached {
            let is_recorded = policy.lookup(*address).is_some();
            if let Some(workload) = policy.workloads().get(key).filter(|_| !is_recorded) {
                let mut workload = PolicyWorkload::clone(workload);
                workload.addresses.push(*address);
                workload.node = Some(own.clone());
                policy.put_workload(Arc::new(workload));
            }
        }
        policy
    }
}

impl PolicyLink {
    pub(super) const fn new(
        policy: watch::Sender<Option<NumberedPolicy>>,
        shown: watch::Receiver<PolicyShown>,
    ) -> Self {
        Self { policy, shown }
    }

    /// Sends a policy to the thread.
    pub fn send(&self, policy: NodePolicy) {
        self.policy.send_modify(|sent| match sent {
            Some(sent) => {
                sent.number += 1;
                sent.attached.retain(|address, _| policy.lookup(*address).is_none());
                sent.policy = policy;
            }
            None => *sent = Some(NumberedPolicy::first(policy)),
        });
    }

    /// Returns true if the last policy that was sent is in the kernel, or could not be programmed: Services do not wait for a
    /// policy that fails, which is a problem of its own.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.policy.borrow().as_ref().is_none_or(|sent| sent.number <= self.shown.borrow().handled)
    }

    /// Returns the problems of the policy as text for the status of the Node.
    #[must_use]
    pub fn problems(&self, mode: ProxyMode) -> Vec<String> {
        self.shown.borrow().problems(mode)
    }

    /// Returns the enforcement for the report of the node.
    #[must_use]
    pub fn report(&self, mode: ProxyMode) -> PolicyReport {
        self.shown.borrow().report(mode)
    }

    /// Returns the gate at which attachments wait until the policy of their Workloads is in the kernel. A Workload that is not
    /// known yet does not wait; neither does one that no policy selects.
    #[must_use]
    pub fn gate(&self) -> AttachGate {
        let link = self.clone();
        AttachGate::new(move |attached| link.admit(attached))
    }

    fn admit(&self, attached: &AttachedWorkload) {
        let AttachedWorkload { namespace, workload, addresses, .. } = attached;
        let Ok(key) = WorkloadKey::try_from(format!("{namespace}/{workload}")) else { return };
        let is_waiting = self.policy.send_if_modified(|sent| {
            let Some(sent) = sent else { return false };
            let is_known = sent.policy.workloads().contains_key(&key);
            if is_known {
                sent.attached.extend(addresses.iter().map(|address| (*address, key.clone())));
                sent.number += 1;
            }
            is_known
        });
        let deadline = Instant::now() + GATE_TIME_MAX;
        let is_enforced = || self.is_current() && self.shown.borrow().failure.is_none();
        while is_waiting && !is_enforced() {
            if Instant::now() >= deadline {
                warn!(attachment = %attached.key, "the network policy of an attachment is not in the kernel in time");
                return;
            }
            thread::sleep(GATE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{policy::set::PolicySet, primitives::quantity::Revision};

    use super::*;

    /// Input: an attachment of a Workload whose policy is known, without addresses. Output: the policy for the thread has the
    /// address, until the control server sends it.
    #[test]
    fn an_attachment_gives_its_address_to_the_policy_of_its_workload() {
        let (own, address): (_, IpAddr) = (Name::parse("n1").unwrap(), "10.0.0.1".parse().unwrap());
        let set = PolicySet::new(true, Vec::new());
        let workload = |addresses: &[IpAddr]| PolicyWorkload {
            workload: "default/web".to_owned().try_into().unwrap(),
            revision: Revision(1),
            addresses: addresses.to_vec(),
            node: None,
            peers: [].into(),
            ingress: Some(set.id),
            egress: None,
        };
        let policy = |addresses: &[IpAddr]| {
            let mut policy = NodePolicy::default();
            policy.put_workload(Arc::new(workload(addresses)));
            policy
        };
        let (sender, receiver) = watch::channel(Some(NumberedPolicy::first(policy(&[]))));
        // The thread has handled everything that comes.
        let (_publish, shown) = watch::channel(PolicyShown { handled: u64::MAX, ..PolicyShown::default() });
        let link = PolicyLink::new(sender, shown);
        let attached = |workload: &str| -> AttachedWorkload {
            serde_json::from_value(serde_json::json!({
                "key": { "containerId": "c1", "interface": "eth0" }, "netns": "/run/netns/x", "network": "pods",
                "namespace": "default", "workload": workload, "labels": {}, "manager": "", "hostInterface": "tg",
                "mac": "", "addresses": [address], "mtu": 1500, "generation": 1,
            }))
            .unwrap()
        };
        link.admit(&attached("other"));
        let seen = |receiver: &watch::Receiver<Option<NumberedPolicy>>| {
            let sent = receiver.borrow().clone().unwrap();
            let found = sent.with_attachments(&own).lookup(address).map(|found| found.node.clone());
            (sent.number, found)
        };
        assert_eq!(seen(&receiver), (1, None), "an unknown Workload");
        link.admit(&attached("web"));
        assert_eq!(seen(&receiver), (2, Some(Some(own.clone()))));
        link.send(policy(&[address]));
        assert_eq!(seen(&receiver), (3, Some(None)));
        assert!(receiver.borrow().as_ref().unwrap().attached.is_empty());
    }
}
