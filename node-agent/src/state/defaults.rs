//! Defaults of the agent for settings that the Node object leaves out. Computation only, without I/O.

use dataplane::BackendOptions;
use ipnet::IpNet;
use model::{
    kinds::node::{Naming, ProxyMode, ProxyOptions},
    wire::feed::NodeState,
};

/// Proxy mode and options from the agent's configuration. Settings in the Node object take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyDefaults {
    /// Proxy mode used if the Node object has none.
    pub mode: ProxyMode,
    /// Bit number of the packet mark that requests masquerading, 0 to 31; `None` for the built-in default.
    pub masquerade_bit: Option<u8>,
    /// Networks whose source addresses count as workloads.
    pub cluster_cidrs: Vec<IpNet>,
    /// Networks on whose local addresses node ports are reachable.
    pub node_port_addresses: Vec<IpNet>,
    /// Naming scheme of chains and sets.
    pub naming: Naming,
    /// True if ipvs mode must leave the sysctls `arp_ignore` and `arp_announce` unchanged.
    pub is_arp_lax: bool,
}

impl ProxyDefaults {
    /// Returns the node's settings with missing values filled in from the defaults. A value equal to the API
    /// default (default naming, strict ARP) counts as missing.
    #[must_use]
    pub fn fill(&self, node: &NodeState) -> NodeState {
        let Self { mode, masquerade_bit, cluster_cidrs, node_port_addresses, naming, is_arp_lax } = self;
        let said = &node.proxy;
        let or = |said: &Vec<IpNet>, own: &Vec<IpNet>| if said.is_empty() { own } else { said }.clone();
        NodeState {
            mode: Some(node.mode.unwrap_or(*mode)),
            zone: node.zone.clone(),
            proxy: ProxyOptions {
                masquerade_all: said.masquerade_all,
                cluster_cidrs: or(&said.cluster_cidrs, cluster_cidrs),
                node_port_addresses: or(&said.node_port_addresses, node_port_addresses),
                masquerade_bit: said.masquerade_bit.or(*masquerade_bit),
                drop_bit: said.drop_bit,
                naming: match said.naming {
                    Naming::Tidegate => *naming,
                    Naming::Kube => Naming::Kube,
                },
                strict_arp: said.strict_arp && !is_arp_lax,
                drop_invalid: said.drop_invalid,
            },
            workload_cidrs: node.workload_cidrs.clone(),
            bgp: node.bgp.clone(),
            interfaces: node.interfaces.clone(),
        }
    }

    /// Returns the proxy mode and options that the node's settings select.
    #[must_use]
    pub fn backend(&self, node: &NodeState) -> Backend {
        let filled = self.fill(node);
        Backend::of(filled.mode.unwrap_or(self.mode), &BackendOptions::of(&filled.proxy))
    }
}

/// Proxy mode with the options that have an effect in it. If the value for a node changes, the backend must
/// be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Proxy mode of the backend.
    pub mode: ProxyMode,
    /// Options of the backend; options without effect in the mode have their default value.
    pub options: BackendOptions,
}

impl Backend {
    /// Combines a mode with its options; options without effect in the mode are reset to their default.
    #[must_use]
    pub fn of(mode: ProxyMode, options: &BackendOptions) -> Self {
        let BackendOptions { masquerade_mark, drop_mark, naming, strict_arp, drop_invalid } = *options;
        let plain = BackendOptions::default();
        let options = match mode {
            ProxyMode::Nftables => BackendOptions { masquerade_mark, drop_invalid, ..plain },
            ProxyMode::Userspace => BackendOptions { masquerade_mark, ..plain },
            ProxyMode::Iptables => {
                BackendOptions { masquerade_mark, drop_mark, naming, drop_invalid, ..plain }
            }
            ProxyMode::Ipvs => {
                BackendOptions { masquerade_mark, drop_mark, naming, strict_arp, drop_invalid }
            }
        };
        Self { mode, options }
    }

    /// Returns true if both backends program the same kernel objects, so that one can take over from the
    /// other in place.
    #[must_use]
    pub fn shares_objects(&self, other: &Self) -> bool {
        self.mode == other.mode
            && match self.mode {
                // IPVS virtual servers have no names, so both naming schemes share them.
                ProxyMode::Nftables | ProxyMode::Userspace | ProxyMode::Ipvs => true,
                ProxyMode::Iptables => self.options.naming == other.options.naming,
            }
    }
}

impl Backend {
    /// Returns true if both backends use the same names for different objects, as iptables and ipvs mode do
    /// with kube-proxy's chain names. After one of them has removed its objects, the other must read the
    /// kernel again.
    #[must_use]
    pub fn clashes_with(&self, other: &Self) -> bool {
        let has_kube_chains = |backend: &Self| match backend.mode {
            ProxyMode::Iptables | ProxyMode::Ipvs => backend.options.naming == Naming::Kube,
            ProxyMode::Nftables | ProxyMode::Userspace => false,
        };
        self.mode != other.mode && has_kube_chains(self) && has_kube_chains(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(text: &str) -> Vec<IpNet> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn the_node_wins_and_the_agent_fills_in() {
        let own = ProxyDefaults {
            mode: ProxyMode::Iptables,
            masquerade_bit: Some(20),
            cluster_cidrs: nets("10.0.0.0/8"),
            node_port_addresses: nets("192.0.2.0/24"),
            naming: Naming::Kube,
            is_arp_lax: true,
        };
        let filled = own.fill(&NodeState::default());
        assert_eq!(filled.mode, Some(ProxyMode::Iptables));
        assert_eq!((filled.proxy.masquerade_bit, filled.proxy.naming), (Some(20), Naming::Kube));
        assert_eq!(filled.proxy.cluster_cidrs, nets("10.0.0.0/8"));
        assert!(!filled.proxy.strict_arp);
        let proxy = ProxyOptions {
            masquerade_bit: Some(3),
            cluster_cidrs: nets("10.1.0.0/16"),
            ..ProxyOptions::default()
        };
        let said = NodeState { mode: Some(ProxyMode::Ipvs), proxy, ..NodeState::default() };
        let filled = own.fill(&said);
        assert_eq!((filled.mode, filled.proxy.masquerade_bit), (Some(ProxyMode::Ipvs), Some(3)));
        assert_eq!(filled.proxy.cluster_cidrs, nets("10.1.0.0/16"));
        assert_eq!(filled.proxy.node_port_addresses, nets("192.0.2.0/24"));
        assert_eq!(ProxyDefaults::default().fill(&NodeState::default()).proxy, ProxyOptions::default());
    }

    #[test]
    fn options_that_a_mode_does_not_have_ask_for_no_other_backend() {
        let kube = BackendOptions { naming: Naming::Kube, strict_arp: false, ..BackendOptions::default() };
        let lenient = BackendOptions { drop_invalid: false, ..BackendOptions::default() };
        let plain = BackendOptions::default();
        for mode in [ProxyMode::Nftables, ProxyMode::Userspace] {
            assert_eq!(Backend::of(mode, &kube), Backend::of(mode, &plain));
        }
        for mode in [ProxyMode::Iptables, ProxyMode::Ipvs] {
            assert_ne!(Backend::of(mode, &kube), Backend::of(mode, &plain));
        }
        for mode in ProxyMode::ALL {
            let same = Backend::of(*mode, &lenient) == Backend::of(*mode, &plain);
            assert_eq!(same, *mode == ProxyMode::Userspace);
        }
        let [own, kubes] = [&plain, &kube].map(|options| Backend::of(ProxyMode::Iptables, options));
        assert!(!own.shares_objects(&kubes) && own.shares_objects(&own));
    }
}
