//! Check of `tidegate-agent doctor` for network plugins of Kubernetes, which attach workloads to networks of their own, and the
//! names by which their objects are recognized.

use std::collections::BTreeMap;

use network::{attach::names::is_host_interface, filter};

use super::FindingDraft;
use crate::doctor::{
    Subject,
    chains::{Chain, TableTool},
    checks::Check,
    seen::MachineFacts,
};

/// Network plugin that attaches workloads on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NetworkPlugin {
    Calico,
    /// Calico's policy on the network of flannel.
    Canal,
    Cilium,
    Flannel,
    KubeOvn,
    KubeRouter,
}

impl NetworkPlugin {
    /// Plugins whose objects are recognized; Canal has those of two.
    const RECOGNIZED: [Self; 5] =
        [Self::Calico, Self::Cilium, Self::Flannel, Self::KubeOvn, Self::KubeRouter];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Calico => "Calico",
            Self::Canal => "Canal (flannel with Calico's policy)",
            Self::Cilium => "Cilium",
            Self::Flannel => "flannel",
            Self::KubeOvn => "Kube-OVN",
            Self::KubeRouter => "kube-router",
        }
    }

    /// Returns true if the plugin creates interfaces with this name.
    fn has_link(self, name: &str) -> bool {
        match self {
            Self::Calico => is_calico_workload(name) || ["vxlan.calico", "vxlan-v6.calico"].contains(&name),
            Self::Cilium => ["cilium_host", "cilium_net", "cilium_vxlan", "cilium_geneve"].contains(&name),
            Self::Flannel => ["flannel.", "flannel-v6."]
                .iter()
                .any(|prefix| name.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok())),
            Self::KubeOvn => name == "ovn0",
            Self::KubeRouter => ["kube-bridge", "kube-dummy-if"].contains(&name),
            Self::Canal => false,
        }
    }

    /// Returns true if the plugin creates chains of iptables with this name.
    fn has_chain(self, name: &str) -> bool {
        match self {
            Self::Calico => name.starts_with("cali-"),
            Self::Cilium => name.starts_with("CILIUM_"),
            Self::Flannel => name.starts_with("FLANNEL-"),
            Self::KubeOvn => ["OVN-PREROUTING", "OVN-POSTROUTING", "OVN-MASQUERADE"].contains(&name),
            Self::KubeRouter => is_kube_router_chain(name),
            Self::Canal => false,
        }
    }

    /// Returns true if the plugin creates tables of nf_tables with this name.
    fn has_table(self, name: &str) -> bool {
        match self {
            Self::Calico => name == "calico",
            Self::Flannel => ["flannel-ipv4", "flannel-ipv6"].contains(&name),
            Self::KubeRouter => ["kube-router-filter-ipv4", "kube-router-filter-ipv6"].contains(&name),
            Self::Canal | Self::Cilium | Self::KubeOvn => false,
        }
    }
}

/// Returns true if kube-router creates chains with this name, which begins like those of kube-proxy.
pub(super) fn is_kube_router_chain(name: &str) -> bool {
    ["KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"].iter().any(|prefix| name.starts_with(prefix))
}

/// Number of hexadecimal digits in the name of an interface to a workload of Calico.
const CALICO_DIGITS: usize = 11;

fn is_calico_workload(name: &str) -> bool {
    name.strip_prefix("cali").is_some_and(|digits| {
        digits.len() == CALICO_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Returns the network plugins on the machine, each with the object by which it is recognized.
pub(super) fn plugins(seen: &MachineFacts) -> BTreeMap<NetworkPlugin, String> {
    let found = |plugin: &NetworkPlugin| Some((*plugin, evidence(*plugin, seen)?));
    let mut plugins: BTreeMap<_, _> = NetworkPlugin::RECOGNIZED.iter().filter_map(found).collect();
    let parts = (plugins.get(&NetworkPlugin::Calico), plugins.get(&NetworkPlugin::Flannel));
    if let (Some(calico), Some(flannel)) = parts {
        let both = format!("{flannel}, {calico}");
        plugins.remove(&NetworkPlugin::Calico);
        plugins.remove(&NetworkPlugin::Flannel);
        plugins.insert(NetworkPlugin::Canal, both);
    }
    plugins
}

fn evidence(plugin: NetworkPlugin, seen: &MachineFacts) -> Option<String> {
    let link = seen.links.iter().find(|link| plugin.has_link(&link.name));
    let is_of_plugin = |chain: &&Chain| match chain.place.keeper {
        TableTool::Nft => plugin.has_table(&chain.place.table),
        TableTool::Iptables(_) => plugin.has_chain(&chain.name),
    };
    let chain = || {
        let chain = seen.chains.iter().find(is_of_plugin)?;
        Some(format!("{}, chain {}", chain.place, chain.name))
    };
    link.map(|link| format!("interface {}", link.name)).or_else(chain)
}

/// Returns a finding for each network plugin: a warning if the agent attaches workloads too.
pub(super) fn foreign_network(_: &Subject, seen: &MachineFacts) -> Vec<FindingDraft> {
    let check = Check::ForeignNetwork;
    let has_table = |name: &str| {
        seen.chains.iter().any(|chain| chain.place.keeper == TableTool::Nft && chain.place.table == name)
    };
    let has_block = has_table(filter::TABLE) || seen.links.iter().any(|link| is_host_interface(&link.name));
    let finding = |(plugin, evidence): (NetworkPlugin, String)| {
        let message = format!("{} attaches workloads here ({evidence})", plugin.as_str());
        if !has_block {
            return FindingDraft::fine(check, message);
        }
        let fix = "leave the Node out of WorkloadNetworks (spec.nodeSelectors), unless both networks are wanted here; their \
                   addresses must differ";
        FindingDraft::warning(
            check,
            format!("{message}, and the machine has a block of a WorkloadNetwork"),
            fix,
        )
    };
    let found: Vec<_> = plugins(seen).into_iter().map(finding).collect();
    if found.is_empty() {
        vec![FindingDraft::fine(check, "no network plugin of Kubernetes attaches workloads here")]
    } else {
        found
    }
}
