//! Lanes of the test suites: the variants of proxy modes that are tested and compared.

use model::{kinds::node::ProxyMode, primitives::net::IpFamily, program::Program};
use node_agent::dataplane::{ipvs, userspace};

/// Variant of a proxy mode, such as iptables mode with the legacy tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Nftables,
    Iptables,
    IptablesLegacy,
    Ipvs,
    Userspace,
}

impl Lane {
    pub const ALL: [Self; 5] =
        [Self::Nftables, Self::Iptables, Self::IptablesLegacy, Self::Ipvs, Self::Userspace];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
            Self::IptablesLegacy => "iptables-legacy",
            Self::Ipvs => "ipvs",
            Self::Userspace => "userspace",
        }
    }

    pub fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|lane| lane.name() == name).unwrap_or_else(|| panic!("no lane {name}"))
    }

    pub const fn mode(self) -> ProxyMode {
        match self {
            Self::Nftables => ProxyMode::Nftables,
            Self::Iptables | Self::IptablesLegacy => ProxyMode::Iptables,
            Self::Ipvs => ProxyMode::Ipvs,
            Self::Userspace => ProxyMode::Userspace,
        }
    }

    /// Returns true if the variant must be tested in the guest VM (`lab/guest.sh`).
    pub const fn in_guest(self) -> bool {
        matches!(self, Self::IptablesLegacy | Self::Ipvs)
    }

    /// Returns the packet program as the mode carries it out, with the mode's deliberate deviations, or
    /// `None` if the mode rejects the program.
    pub fn lower(self, program: &Program) -> Option<Program> {
        match self {
            Self::Nftables | Self::Iptables | Self::IptablesLegacy => Some(program.clone()),
            Self::Ipvs => ipvs::lower::lower(program).ok(),
            Self::Userspace => Some(userspace::desired::expect(program)),
        }
    }
}

/// Returns the short name of an address family in test output: `v4` or `v6`.
pub const fn family_word(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "v4",
        IpFamily::V6 => "v6",
    }
}
