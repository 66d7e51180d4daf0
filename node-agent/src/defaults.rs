//! What an agent does where its Node says nothing. Pure.

use ipnet::IpNet;
use model::{
    kinds::node::{Naming, ProxyMode, ProxyOptions},
    wire::feed::NodeState,
};

use crate::dataplane::BackendOptions;

/// The agent's own choice of mode and proxy options; what the Node object says wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyDefaults {
    /// How the kernel is programmed.
    pub mode: ProxyMode,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: Option<u8>,
    /// Networks whose sources count as workloads.
    pub cluster_cidrs: Vec<IpNet>,
    /// Networks in which node ports answer.
    pub node_port_addresses: Vec<IpNet>,
    /// How chains and sets are named.
    pub naming: Naming,
    /// Leave `arp_ignore` and `arp_announce` alone in ipvs mode.
    pub is_arp_lax: bool,
}

impl ProxyDefaults {
    /// The settings of the node, with what it leaves out filled in. A Node that names its chains by the default, or asks
    /// for strict ARP by default, says nothing.
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
            },
            bgp: node.bgp.clone(),
        }
    }

    /// Which backend the node asks for.
    #[must_use]
    pub fn backend(&self, node: &NodeState) -> Backend {
        let filled = self.fill(node);
        Backend::of(filled.mode.unwrap_or(self.mode), &BackendOptions::of(&filled.proxy))
    }
}

/// A mode with those options that make a difference in it; another value means another backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The mode.
    pub mode: ProxyMode,
    /// The options.
    pub options: BackendOptions,
}

impl Backend {
    /// A mode with options; what makes no difference in the mode is as if it had not been said.
    #[must_use]
    pub fn of(mode: ProxyMode, options: &BackendOptions) -> Self {
        let BackendOptions { masquerade_mark, drop_mark, naming, strict_arp } = *options;
        let plain = BackendOptions::default();
        let options = match mode {
            ProxyMode::Nftables | ProxyMode::Userspace => BackendOptions { masquerade_mark, ..plain },
            ProxyMode::Iptables => BackendOptions { masquerade_mark, drop_mark, naming, ..plain },
            ProxyMode::Ipvs => BackendOptions { masquerade_mark, drop_mark, naming, strict_arp },
        };
        Self { mode, options }
    }

    /// Whether both program the same kernel objects, so that one takes them over from the other in place.
    #[must_use]
    pub fn shares_objects(&self, other: &Self) -> bool {
        self.mode == other.mode
            && match self.mode {
                // Virtual servers have no names: those of the other naming are the same ones.
                ProxyMode::Nftables | ProxyMode::Userspace | ProxyMode::Ipvs => true,
                ProxyMode::Iptables => self.options.naming == other.options.naming,
            }
    }
}

impl Backend {
    /// Whether both give the same names to different things, as kube-proxy does in iptables and ipvs mode: where one has
    /// cleaned up, the other has to look again.
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
        let plain = BackendOptions::default();
        for mode in [ProxyMode::Nftables, ProxyMode::Userspace] {
            assert_eq!(Backend::of(mode, &kube), Backend::of(mode, &plain));
        }
        for mode in [ProxyMode::Iptables, ProxyMode::Ipvs] {
            assert_ne!(Backend::of(mode, &kube), Backend::of(mode, &plain));
        }
        let [own, kubes] = [&plain, &kube].map(|options| Backend::of(ProxyMode::Iptables, options));
        assert!(!own.shares_objects(&kubes) && own.shares_objects(&own));
    }
}
