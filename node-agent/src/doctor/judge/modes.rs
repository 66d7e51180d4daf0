//! Properties of the proxy modes on which the checks of `tidegate-agent doctor` depend.

use model::kinds::node::ProxyMode;

use crate::doctor::chains::Passing;

/// Properties of one proxy mode on which the checks depend.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModeProperties {
    /// Kind of traffic to and from endpoints that passes the forward hook; `None` if nothing is forwarded.
    pub(super) forwarded: Option<Passing>,
    /// New connections that pass the input hook; `None` if virtual addresses are never local.
    pub(super) received: Option<Passing>,
    /// True if the agent writes iptables chains, which may have kube-proxy's names and use the packet mark
    /// that requests a drop.
    pub(super) uses_iptables: bool,
    /// True if virtual addresses are assigned to an interface.
    pub(super) assigns_addresses: bool,
}

impl ModeProperties {
    pub(super) const fn of(mode: ProxyMode) -> Self {
        match mode {
            ProxyMode::Nftables => Self {
                forwarded: Some(Passing::Translated),
                received: None,
                uses_iptables: false,
                assigns_addresses: false,
            },
            ProxyMode::Iptables => Self {
                forwarded: Some(Passing::Translated),
                received: None,
                uses_iptables: true,
                assigns_addresses: false,
            },
            // Packets to endpoints pass the output hook; replies are forwarded.
            ProxyMode::Ipvs => Self {
                forwarded: Some(Passing::Established),
                received: Some(Passing::Any),
                uses_iptables: true,
                assigns_addresses: true,
            },
            // Traffic reaches the relay by DNAT. The relay terminates both connections.
            ProxyMode::Userspace => Self {
                forwarded: None,
                received: Some(Passing::Translated),
                uses_iptables: false,
                assigns_addresses: false,
            },
        }
    }
}
