//! What is looked at beside what a mode needs, by its stable word, and why it matters. Pure. `docs/doctor.md` says what to do.

/// One thing that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// How full the table of connections is.
    ConntrackSize,
    /// Whether the kernel lets helpers open ports by themselves.
    ConntrackHelper,
    /// Rules of others that drop what is forwarded.
    ForwardDrop,
    /// Rules of others that drop what comes in.
    InputDrop,
    /// Docker's drops of what is sent to containers from other machines.
    DockerDirectAccess,
    /// firewalld.
    Firewalld,
    /// Rules in both flavours of iptables.
    IptablesFlavours,
    /// What kube-proxy has left, or does.
    KubeProxy,
    /// Rules of others about the bits of the mark that are ours.
    MarkClash,
    /// Networks that carry packets of different sizes.
    Mtu,
    /// Answers that a bridge carries past the rules.
    BridgeTraffic,
    /// ARP answers for virtual addresses.
    ArpFlux,
    /// Others that announce addresses or speak BGP.
    OtherAnnouncer,
    /// What could not be looked at.
    Unseen,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ConntrackSize,
        Self::ConntrackHelper,
        Self::ForwardDrop,
        Self::InputDrop,
        Self::DockerDirectAccess,
        Self::Firewalld,
        Self::IptablesFlavours,
        Self::KubeProxy,
        Self::MarkClash,
        Self::Mtu,
        Self::BridgeTraffic,
        Self::ArpFlux,
        Self::OtherAnnouncer,
        Self::Unseen,
    ];

    /// Its word; never given to another check.
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
            Self::MarkClash => "mark-clash",
            Self::Mtu => "mtu",
            Self::BridgeTraffic => "bridge-traffic",
            Self::ArpFlux => "arp-flux",
            Self::OtherAnnouncer => "other-announcer",
            Self::Unseen => "unseen",
        }
    }

    /// Why it matters.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::ConntrackSize => {
                "when the table is full, packets of new connections are dropped, also of those not balanced"
            }
            Self::ConntrackHelper => {
                "a client can make a helper expect connections to ports that nobody opened"
            }
            Self::ForwardDrop => {
                "connections to virtual addresses go on to endpoints through the forward hook"
            }
            Self::InputDrop => "in this mode connections to virtual addresses come in through the input hook",
            Self::DockerDirectAccess => {
                "another node sends connections to containers here after it has translated them, which is what these rules drop"
            }
            Self::Firewalld => {
                "it rejects what no zone allows, and in iptables and ipvs mode a reload of it removes our rules"
            }
            Self::IptablesFlavours => {
                "packets meet the rules of both flavours, and each tool shows only its own"
            }
            Self::KubeProxy => "two proxies that translate the same addresses take turns at random",
            Self::MarkClash => {
                "a packet with the mark of somebody else is masqueraded or dropped by us, or ours by them"
            }
            Self::Mtu => {
                "a connection hangs at its first large packet where the messages about too large ones do not come back"
            }
            Self::BridgeTraffic => {
                "an endpoint answers a client on its own bridge directly, and the client does not know the address it sees"
            }
            Self::ArpFlux => {
                "every node answers ARP requests for addresses that it holds, also those that another one announces"
            }
            Self::OtherAnnouncer => {
                "two programs that announce addresses answer for each other's, and one port has one listener"
            }
            Self::Unseen => "nothing is known of it, good or bad",
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
