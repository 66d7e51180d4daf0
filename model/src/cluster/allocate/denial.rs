//! Why a Service may not have a certain address, in words that name the other party.

use std::fmt;

use ipnet::IpNet;

use crate::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{
        name::Name,
        quantity::{PortRange, Timestamp},
        violation::ViolationCode,
    },
};

/// Why a Service may not have an address. Shown, it is what follows the address in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// It is a virtual address inside the cluster.
    ServiceRange(IpNet),
    /// It may be a workload's.
    WorkloadNetwork(IpNet),
    /// It is a Node's.
    NodeAddress(Name),
    /// It is an external IP of a Service.
    ExternalIp(ServiceKey),
    /// Nobody allows it.
    OutsideEveryPool,
    /// The Service names another pool.
    NotInNamedPool { named: Name, pool: Option<Name> },
    /// The pool never gives it.
    Reserved(Name),
    /// The pool leaves it out for old devices.
    Avoided(Name),
    /// The pool is for other Services.
    NotForService(Name),
    /// The pool gives nothing more.
    PoolDisabled(Name),
    /// Another Service has it, and the two do not share.
    Held(ServiceKey),
    /// As many Services share it as may.
    Crowded,
    /// Another Service has it on one of the ports.
    Clash { holder: ServiceKey, protocol: Protocol, ports: PortRange },
    /// Its holders have another external traffic policy.
    OtherPolicy(ServiceKey),
    /// Its holders have another selector, and the policy is Local.
    OtherSelector(ServiceKey),
    /// It is held back for the Service that had it.
    Quarantined { former: ServiceKey, until: Timestamp },
}

impl Denial {
    /// Whether the Service has an address together with others and no longer agrees with them.
    pub(crate) const fn is_about_sharing(&self) -> bool {
        match self {
            Self::Clash { .. } | Self::OtherPolicy(_) | Self::OtherSelector(_) | Self::Crowded => true,
            Self::ServiceRange(_)
            | Self::WorkloadNetwork(_)
            | Self::NodeAddress(_)
            | Self::ExternalIp(_)
            | Self::OutsideEveryPool
            | Self::NotInNamedPool { .. }
            | Self::Reserved(_)
            | Self::Avoided(_)
            | Self::NotForService(_)
            | Self::PoolDisabled(_)
            | Self::Held(_)
            | Self::Quarantined { .. } => false,
        }
    }

    pub(crate) const fn code(&self) -> ViolationCode {
        match self {
            Self::ExternalIp(_)
            | Self::Held(_)
            | Self::Crowded
            | Self::Clash { .. }
            | Self::OtherPolicy(_)
            | Self::OtherSelector(_)
            | Self::Quarantined { .. } => ViolationCode::AddressTaken,
            Self::ServiceRange(_)
            | Self::WorkloadNetwork(_)
            | Self::NodeAddress(_)
            | Self::OutsideEveryPool
            | Self::NotInNamedPool { .. }
            | Self::Reserved(_)
            | Self::Avoided(_)
            | Self::NotForService(_)
            | Self::PoolDisabled(_) => ViolationCode::AddressNotAllowed,
        }
    }

    /// What to do about it.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::ServiceRange(_) | Self::WorkloadNetwork(_) => "choose an address of a pool",
            Self::NodeAddress(_) => {
                "a load balancer address is the Services' own, whole; name a Node's address in externalIPs"
            }
            Self::ExternalIp(_) => {
                "an address is an external IP or a load balancer's, not both; choose another, or change that Service first"
            }
            Self::OutsideEveryPool => {
                "choose an address of an AddressPool, create one with it, or allow it with --allow-external-ip"
            }
            Self::NotInNamedPool { .. } => {
                "leave out the pool or the address, or choose an address of that pool"
            }
            Self::Reserved(_) => "choose another address, or take it out of `reserved` of the pool",
            Self::Avoided(_) => "choose another address, or set `avoidBuggyIPs` of the pool to false",
            Self::NotForService(_) => {
                "choose an address of another pool, or change `namespaces` or `serviceSelectors` of this one"
            }
            Self::PoolDisabled(_) => {
                "choose an address of another pool, or set `disabled` of this one to false"
            }
            Self::Held(_) => {
                "leave the field out to get a free one, change the holder first, or give both the same sharing key"
            }
            Self::Crowded => "give the Service another sharing key or none",
            Self::Clash { .. } => {
                "take other ports or another sharing key or none, or change the other Service first"
            }
            Self::OtherPolicy(_) => {
                "give both the same externalTrafficPolicy, or this one another sharing key or none"
            }
            Self::OtherSelector(_) => {
                "with externalTrafficPolicy Local, Services share an address only with the same selector in the same \
                 namespace; give this one another sharing key or none"
            }
            Self::Quarantined { .. } => {
                "choose another address or wait; the Service that had it can have it back"
            }
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceRange(range) => write!(f, "lies in the Service range {range}"),
            Self::WorkloadNetwork(network) => write!(f, "lies in the workload network {network}"),
            Self::NodeAddress(node) => write!(f, "is one of Node {node}"),
            Self::ExternalIp(holder) => write!(f, "is an external IP of Service {holder}"),
            Self::OutsideEveryPool => {
                write!(f, "lies in no pool, and in no range that the control server allows")
            }
            Self::NotInNamedPool { named, pool: Some(pool) } => {
                write!(f, "lies in pool {pool}, not in pool {named} that the Service names")
            }
            Self::NotInNamedPool { named, pool: None } => {
                write!(f, "does not lie in pool {named} that the Service names")
            }
            Self::Reserved(pool) => write!(f, "is reserved in pool {pool}"),
            Self::Avoided(pool) => write!(f, "is left out by pool {pool} (avoidBuggyIPs)"),
            Self::NotForService(pool) => write!(f, "lies in pool {pool}, which is not for this Service"),
            Self::PoolDisabled(pool) => write!(f, "lies in pool {pool}, which is disabled"),
            Self::Held(holder) => write!(f, "is held by Service {holder}"),
            Self::Crowded => write!(f, "is shared by {} Services, which is the limit", super::SHARED_MAX),
            Self::Clash { holder, protocol, ports } => {
                write!(f, "is shared with Service {holder}, which has port {ports}/{}", protocol.as_str())
            }
            Self::OtherPolicy(holder) => {
                write!(f, "is shared with Service {holder}, which has another externalTrafficPolicy")
            }
            Self::OtherSelector(holder) => {
                write!(f, "is shared with Service {holder}, which has other endpoints")
            }
            Self::Quarantined { former, until } => {
                write!(f, "is held back until {until} for Service {former}, which had it")
            }
        }
    }
}
