//! Address and port ranges that the operator sets for the whole cluster before the first object is created.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{default_checks::DefaultChecks, quota::Quotas};
use crate::{
    kinds::bgp_peer::forbidden_asn,
    primitives::net::{self, IpFamily},
};

/// Default AS number of Nodes: the first one for private use (RFC 6996).
pub const ASN_DEFAULT: u32 = 64_512;

/// Default ranges for the workload networks that agents register: private addresses (RFC 1918), shared addresses
/// (RFC 6598) and unique local addresses (RFC 4193).
pub const WORKLOAD_RANGES_DEFAULT: [IpNet; 5] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)),
];

/// Maximum total size of the IPv4 workload networks that one agent registers, as a prefix length: the default
/// network of a container engine.
pub const REGISTERED_PREFIX_V4_MIN: u8 = 16;
/// Maximum total size of the IPv6 workload networks that one agent registers, as a prefix length: a site
/// (RFC 6177).
pub const REGISTERED_PREFIX_V6_MIN: u8 = 48;

/// Address ranges, port range and limits of a cluster, validated when the server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    service_cidrs: Vec<IpNet>,
    node_port_range: RangeInclusive<u16>,
    external_ip_cidrs: Vec<IpNet>,
    workload_ranges: Vec<IpNet>,
    asn: u32,
    guards: Guards,
    quotas: Quotas,
    has_default_checks: bool,
}

/// Limits of the write guards: maximum percentage of the existing addresses that one write may remove. 100 or more
/// disables a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// Limit for virtual addresses: cluster IPs and load balancer addresses of Services.
    pub vips_percent: u8,
    /// Limit for addresses of Workloads and of endpoints in EndpointSets.
    pub endpoints_percent: u8,
}

impl Guards {
    /// Limits of 100 percent, which disable the guards.
    pub const OFF: Self = Self { vips_percent: 100, endpoints_percent: 100 };
}

/// Reason why the ranges of a cluster are rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There are more than two Service ranges, none, or two of the same IP family.
    #[error("--service-cidr takes one or two ranges, the second of the other IP family")]
    ServiceCidrFamilies,
    /// A Service range has host bits set; contains the range and its network.
    #[error("--service-cidr {0} must be a network: its host bits are set; use {1}")]
    ServiceCidrHostBits(IpNet, IpNet),
    /// A Service range contains addresses that are not allowed; contains the range and their type.
    #[error("--service-cidr {0} must be an ordinary unicast range: its first address is {1}")]
    ServiceCidrForbidden(IpNet, &'static str),
    /// A Service range has fewer than eight addresses; contains the range.
    #[error("--service-cidr {0} must hold at least 8 addresses")]
    ServiceCidrTooSmall(IpNet),
    /// The node port range contains port 0 or is empty.
    #[error("--node-port-range must run from a smaller to a larger port, both above 0")]
    NodePortRange,
    /// A range of workload networks has host bits set; contains the range and its network.
    #[error("--workload-range {0} must be a network: its host bits are set; use {1}")]
    WorkloadRangeHostBits(IpNet, IpNet),
    /// The default AS number is reserved; contains the number and the reason.
    #[error("--asn must be an assignable AS number; {0} is {1}")]
    Asn(u32, &'static str),
}

impl ClusterConfig {
    /// Validates the ranges and creates the configuration. The first range in `service_cidrs` has the primary IP
    /// family.
    ///
    /// # Errors
    /// Returns the first rule that is violated.
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
        Ok(Self {
            service_cidrs,
            node_port_range,
            external_ip_cidrs,
            workload_ranges: WORKLOAD_RANGES_DEFAULT.to_vec(),
            asn: ASN_DEFAULT,
            guards: Guards::OFF,
            quotas: Quotas::default(),
            has_default_checks: false,
        })
    }

    /// Sets the ranges of workload networks that agents may register; the default is
    /// [`WORKLOAD_RANGES_DEFAULT`].
    ///
    /// # Errors
    /// Returns an error if a range has host bits set.
    pub fn with_workload_ranges(self, workload_ranges: Vec<IpNet>) -> Result<Self, ConfigError> {
        match workload_ranges.iter().find(|range| range.trunc() != **range) {
            Some(range) => Err(ConfigError::WorkloadRangeHostBits(*range, range.trunc())),
            None => Ok(Self { workload_ranges, ..self }),
        }
    }

    /// Sets the default AS number of Nodes.
    ///
    /// # Errors
    /// Returns an error if the AS number is reserved.
    pub fn with_asn(self, asn: u32) -> Result<Self, ConfigError> {
        match forbidden_asn(asn) {
            Some(why) => Err(ConfigError::Asn(asn, why)),
            None => Ok(Self { asn, ..self }),
        }
    }

    /// Sets the limits of the write guards; the default is [`Guards::OFF`].
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    /// Returns the limits of the write guards.
    #[must_use]
    pub const fn guards(&self) -> Guards {
        self.guards
    }

    /// Sets the quotas of namespaces; by default, nothing is limited.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        Self { quotas, ..self }
    }

    /// Sets whether endpoints that nobody checks are checked by default; off unless it is set.
    #[must_use]
    pub fn with_default_checks(self, has_default_checks: bool) -> Self {
        Self { has_default_checks, ..self }
    }

    /// Returns the setting for health checks by default.
    #[must_use]
    pub fn default_checks(&self) -> DefaultChecks {
        DefaultChecks::new(self.has_default_checks, self.quotas.clone())
    }

    /// Returns the quotas of namespaces.
    #[must_use]
    pub const fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Returns the AS number of Nodes without `spec.bgp.asn`.
    #[must_use]
    pub const fn asn(&self) -> u32 {
        self.asn
    }

    /// Returns the IP families available to Services, primary first.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> + '_ {
        self.service_cidrs.iter().map(IpFamily::of_net)
    }

    /// Returns the ranges of cluster IPs, primary first.
    #[must_use]
    pub fn service_cidrs(&self) -> &[IpNet] {
        &self.service_cidrs
    }

    /// Returns the range of cluster IPs of an IP family, or `None` if Services cannot have the family.
    #[must_use]
    pub fn service_cidr(&self, family: IpFamily) -> Option<IpNet> {
        self.service_cidrs.iter().copied().find(|cidr| IpFamily::of_net(cidr) == family)
    }

    /// Returns the range from which node ports are allocated.
    #[must_use]
    pub const fn node_port_range(&self) -> &RangeInclusive<u16> {
        &self.node_port_range
    }

    /// Returns the ranges in which external IPs are allowed. Requested load balancer addresses outside of every
    /// pool must also be in them.
    #[must_use]
    pub fn external_ip_cidrs(&self) -> &[IpNet] {
        &self.external_ip_cidrs
    }

    /// Returns the ranges of workload networks that agents may register without an operator.
    #[must_use]
    pub fn workload_ranges(&self) -> &[IpNet] {
        &self.workload_ranges
    }

    /// Returns the range of cluster IPs that contains an address.
    #[must_use]
    pub fn service_cidr_of(&self, address: IpAddr) -> Option<IpNet> {
        self.service_cidrs.iter().copied().find(|cidr| cidr.contains(&address))
    }
}
