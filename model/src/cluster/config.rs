//! What an operator fixes for the whole cluster before the first object: ranges that allocation draws from.

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::IpNet;

use crate::{
    kinds::bgp_peer::forbidden_asn,
    primitives::net::{self, IpFamily},
};

/// The AS of Nodes when nothing else is said: the first for private use (RFC 6996).
pub const ASN_DEFAULT: u32 = 64_512;

/// The ranges of a cluster. Checked once, at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    service_cidrs: Vec<IpNet>,
    node_port_range: RangeInclusive<u16>,
    external_ip_cidrs: Vec<IpNet>,
    asn: u32,
    guards: Guards,
}

/// What one write may take away, in percent of what there is; from 100 on there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// Of the virtual addresses: cluster addresses and load balancer addresses of Services.
    pub vips_percent: u8,
    /// Of the addresses of Workloads and of the endpoints in EndpointSets.
    pub endpoints_percent: u8,
}

impl Guards {
    /// No limits.
    pub const OFF: Self = Self { vips_percent: 100, endpoints_percent: 100 };
}

/// Why ranges are not usable together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// One range per family, and at least one.
    #[error("--service-cidr takes one or two ranges, the second of the other IP family")]
    ServiceCidrFamilies,
    /// An address where a network is meant.
    #[error("--service-cidr {0} must be a network: it has bits set behind its prefix; write {1}")]
    ServiceCidrHostBits(IpNet, IpNet),
    /// A range that holds addresses which may never be used.
    #[error("--service-cidr {0} must be an ordinary unicast range: its first address is {1}")]
    ServiceCidrForbidden(IpNet, &'static str),
    /// A range too small to allocate from.
    #[error("--service-cidr {0} must hold at least 8 addresses")]
    ServiceCidrTooSmall(IpNet),
    /// Port 0, or upside down.
    #[error("--node-port-range must run from a smaller to a larger port, both above 0")]
    NodePortRange,
    /// An AS that nobody can have.
    #[error("--asn must be somebody's AS; {0} is {1}")]
    Asn(u32, &'static str),
}

impl ClusterConfig {
    /// Checks the ranges. `service_cidrs` has the primary family first.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn new(
        service_cidrs: Vec<IpNet>,
        node_port_range: RangeInclusive<u16>,
        external_ip_cidrs: Vec<IpNet>,
    ) -> Result<Self, ConfigError> {
        if let Some(cidr) = service_cidrs.iter().find(|cidr| cidr.trunc() != **cidr) {
            return Err(ConfigError::ServiceCidrHostBits(*cidr, cidr.trunc()));
        }
        match &service_cidrs[..] {
            [_] => {}
            [first, second] if IpFamily::of_net(first) != IpFamily::of_net(second) => {}
            _ => return Err(ConfigError::ServiceCidrFamilies),
        }
        for cidr in &service_cidrs {
            if let Some(why) = net::forbidden_within(cidr.network(), cidr.broadcast()) {
                return Err(ConfigError::ServiceCidrForbidden(*cidr, why));
            }
            if cidr.max_prefix_len() - cidr.prefix_len() < 3 {
                return Err(ConfigError::ServiceCidrTooSmall(*cidr));
            }
        }
        if *node_port_range.start() == 0 || node_port_range.is_empty() {
            return Err(ConfigError::NodePortRange);
        }
        Ok(Self { service_cidrs, node_port_range, external_ip_cidrs, asn: ASN_DEFAULT, guards: Guards::OFF })
    }

    /// The same with another AS for Nodes that state none.
    ///
    /// # Errors
    /// Nobody can have the AS.
    pub fn with_asn(self, asn: u32) -> Result<Self, ConfigError> {
        match forbidden_asn(asn) {
            Some(why) => Err(ConfigError::Asn(asn, why)),
            None => Ok(Self { asn, ..self }),
        }
    }

    /// The same with limits of what one write may take away; there are none otherwise.
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    /// What one write may take away.
    #[must_use]
    pub const fn guards(&self) -> Guards {
        self.guards
    }

    /// The AS of Nodes that state none.
    #[must_use]
    pub const fn asn(&self) -> u32 {
        self.asn
    }

    /// The families that Services can have, primary first.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> + '_ {
        self.service_cidrs.iter().map(IpFamily::of_net)
    }

    /// The ranges of virtual addresses, primary first.
    #[must_use]
    pub fn service_cidrs(&self) -> &[IpNet] {
        &self.service_cidrs
    }

    /// The range of virtual addresses of a family.
    #[must_use]
    pub fn service_cidr(&self, family: IpFamily) -> Option<IpNet> {
        self.service_cidrs.iter().copied().find(|cidr| IpFamily::of_net(cidr) == family)
    }

    /// The ports that nodes open.
    #[must_use]
    pub const fn node_port_range(&self) -> &RangeInclusive<u16> {
        &self.node_port_range
    }

    /// The ranges that external IPs, and load balancer addresses of no pool, may be in.
    #[must_use]
    pub fn external_ip_cidrs(&self) -> &[IpNet] {
        &self.external_ip_cidrs
    }

    /// The Service range that an address lies in.
    #[must_use]
    pub fn service_cidr_of(&self, address: IpAddr) -> Option<IpNet> {
        self.service_cidrs.iter().copied().find(|cidr| cidr.contains(&address))
    }
}
