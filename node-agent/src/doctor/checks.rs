//! Checks of `tidegate-agent doctor` for obstacles to traffic, with stable names and explanations. Does no
//! I/O. The requirements of a proxy mode are checked by `preflight`. `docs/how-to/host-diagnostics.md`
//! describes the remedies.

/// Check for an obstacle to traffic, in addition to the requirements of the proxy mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The conntrack table is nearly full.
    ConntrackSize,
    /// The kernel assigns conntrack helpers automatically (`nf_conntrack_helper`).
    ConntrackHelper,
    /// Rules of other programs drop forwarded traffic.
    ForwardDrop,
    /// Rules of other programs drop incoming traffic.
    InputDrop,
    /// Docker rules drop traffic from other machines to containers.
    DockerDirectAccess,
    /// firewalld is running; it may drop traffic or flush rules.
    Firewalld,
    /// Both variants of iptables, nft and legacy, have rules.
    IptablesFlavours,
    /// kube-proxy is running, or has left rules behind.
    KubeProxy,
    /// A network plugin of Kubernetes attaches workloads on this machine.
    ForeignNetwork,
    /// Rules of other programs use bits of the packet mark that the agent uses.
    MarkClash,
    /// Rules of other programs capture traffic of Services: they translate it or exempt it from connection tracking.
    CapturedTraffic,
    /// Networks have different MTUs, and no rule clamps the TCP MSS.
    Mtu,
    /// A bridge forwards replies without passing them to netfilter (`bridge-nf-call-iptables`).
    BridgeTraffic,
    /// The kernel replies to ARP requests for virtual addresses on the wrong interface (`arp_ignore`,
    /// `arp_announce`).
    ArpFlux,
    /// Other programs on this machine announce addresses or speak BGP.
    OtherAnnouncer,
    /// No route of the machine leads to the Service range, so that the agent keeps one.
    ServiceRoute,
    /// The resolver settings of the machine (`resolv.conf`) exceed limits, make names slow, or keep names from DNS.
    Resolver,
    /// Another program than `tidegate-dns` listens at the port of DNS on all addresses.
    DnsPort,
    /// Some data of the machine could not be read, so that other checks are incomplete.
    Unseen,
}

impl Check {
    /// All checks, in the order in which their results are listed.
    pub const ALL: [Self; 19] = [
        Self::ConntrackSize,
        Self::ConntrackHelper,
        Self::ForwardDrop,
        Self::InputDrop,
        Self::DockerDirectAccess,
        Self::Firewalld,
        Self::IptablesFlavours,
        Self::KubeProxy,
        Self::ForeignNetwork,
        Self::MarkClash,
        Self::CapturedTraffic,
        Self::Mtu,
        Self::BridgeTraffic,
        Self::ArpFlux,
        Self::OtherAnnouncer,
        Self::ServiceRoute,
        Self::Resolver,
        Self::DnsPort,
        Self::Unseen,
    ];

    /// Returns the stable name of the check in results. A name is never reused for another check.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConntrackSize => "conntrack-size",
            Self::ConntrackHelper => "conntrack-helper",
            Self::ForwardDrop => "forward-drop",
            Self::InputDrop => "input-drop",
            Self::DockerDirectAccess => "docker-direct-access",
            Self::Firewalld => "firewalld",
            Self::IptablesFlavours => "iptables-flavours",
            Self::KubeProxy => "kube-proxy",
            Self::ForeignNetwork => "foreign-network",
            Self::MarkClash => "mark-clash",
            Self::CapturedTraffic => "captured-traffic",
            Self::Mtu => "mtu",
            Self::BridgeTraffic => "bridge-traffic",
            Self::ArpFlux => "arp-flux",
            Self::OtherAnnouncer => "other-announcer",
            Self::ServiceRoute => "service-route",
            Self::Resolver => "resolver",
            Self::DnsPort => "dns-port",
            Self::Unseen => "unseen",
        }
    }

    /// Returns the explanation of the check: the effect of the problem on traffic.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::ConntrackSize => {
                "when the table is full, packets of new connections are dropped, including connections \
                 that are not load balanced"
            }
            Self::ConntrackHelper => {
                "a client can make a helper expect connections to ports that are not open"
            }
            Self::ForwardDrop => {
                "connections to virtual addresses go on to endpoints through the forward hook"
            }
            Self::InputDrop => "in this mode connections to virtual addresses pass the input hook",
            Self::DockerDirectAccess => {
                "other nodes translate connections to containers before they arrive here, and these \
                 rules drop such packets"
            }
            Self::Firewalld => {
                "it rejects traffic that no zone allows, and in iptables and ipvs mode a reload removes \
                 our rules"
            }
            Self::IptablesFlavours => {
                "packets meet the rules of both flavours, and each tool shows only its own"
            }
            Self::KubeProxy => "two proxies that translate the same addresses conflict unpredictably",
            Self::ForeignNetwork => {
                "a network plugin and the agent share the rules, packet marks and routes of the machine"
            }
            Self::MarkClash => "a packet with a foreign mark is masqueraded or dropped by us, or vice versa",
            Self::CapturedTraffic => {
                "the first rule that translates a connection decides, and a packet without connection tracking \
                 cannot be translated"
            }
            Self::Mtu => {
                "a connection hangs at its first large packet if ICMP \"too big\" messages do not arrive"
            }
            Self::BridgeTraffic => {
                "an endpoint replies directly to a client on the same bridge, and the client does not \
                 recognize the source address"
            }
            Self::ArpFlux => {
                "every node replies to ARP requests for addresses it holds, including addresses \
                 announced by another node"
            }
            Self::OtherAnnouncer => {
                "two programs that announce addresses answer for each other's addresses, and a port can \
                 have only one listener"
            }
            Self::ServiceRoute => {
                "without a route, the kernel rejects packets to virtual addresses before they are translated"
            }
            Self::Resolver => {
                "programs on this machine find names late or not at all; containers often get the same settings"
            }
            Self::DnsPort => "tidegate-dns cannot listen at port 53 of any address of this machine",
            Self::Unseen => "the state of this part is unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct_and_short() {
        let words: std::collections::BTreeSet<_> = Check::ALL.iter().map(|check| check.as_str()).collect();
        assert_eq!(words.len(), Check::ALL.len());
        assert!(words.iter().all(|word| word.len() <= super::super::CHECK_LENGTH_MAX));
    }
}
