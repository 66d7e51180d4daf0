//! Reasons why a Service may not have an address, as messages that name the conflicting object.

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

/// Reason why a Service may not have an address. `Display` writes the predicate of a sentence whose subject is the
/// address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The address is in this range of cluster IPs.
    ServiceRange(IpNet),
    /// The address lies in this workload network.
    WorkloadNetwork(IpNet),
    /// The address belongs to this Node.
    NodeAddress(Name),
    /// The address is an external IP of this Service.
    ExternalIp(ServiceKey),
    /// The address is neither in a pool nor in a range that the operator allows.
    OutsideEveryPool,
    /// The Service names the pool `named`, but the address is in `pool`, or in no pool if that is `None`.
    NotInNamedPool { named: Name, pool: Option<Name> },
    /// The address is in `spec.reserved` of this pool, so it is never assigned.
    Reserved(Name),
    /// The address ends in .0 or .255, and this pool excludes such addresses (`avoidBuggyIPs`).
    Avoided(Name),
    /// The namespaces or selectors of this pool exclude the Service.
    NotForService(Name),
    /// This pool, which contains the address, is disabled.
    PoolDisabled(Name),
    /// This Service has the address, and the two Services do not share addresses.
    Held(ServiceKey),
    /// The maximum number of Services already share the address.
    Crowded,
    /// This Service already uses one of the ports on the address.
    Clash { holder: ServiceKey, protocol: Protocol, ports: PortRange },
    /// The Services that have the address, such as this one, have a different external traffic policy.
    OtherPolicy(ServiceKey),
    /// The external traffic policy is Local, and the Services that have the address, such as this one, have a
    /// different selector.
    OtherSelector(ServiceKey),
    /// The address is reserved for its former Service until this time.
    Quarantined { former: ServiceKey, until: Timestamp },
}

impl Denial {
    /// Returns true if the denial is a conflict with the Services that already share the address.
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

    /// Returns the Service that the message names, as `Service namespace/name`; `None` if there is none.
    pub(crate) const fn holder(&self) -> Option<&ServiceKey> {
        match self {
            Self::ExternalIp(holder)
            | Self::Held(holder)
            | Self::Clash { holder, .. }
            | Self::OtherPolicy(holder)
            | Self::OtherSelector(holder)
            | Self::Quarantined { former: holder, .. } => Some(holder),
            Self::ServiceRange(_)
            | Self::WorkloadNetwork(_)
            | Self::NodeAddress(_)
            | Self::OutsideEveryPool
            | Self::NotInNamedPool { .. }
            | Self::Reserved(_)
            | Self::Avoided(_)
            | Self::NotForService(_)
            | Self::PoolDisabled(_)
            | Self::Crowded => None,
        }
    }

    /// Returns an instruction for the user that resolves the denial.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::ServiceRange(_) | Self::WorkloadNetwork(_) => "choose an address of a pool",
            Self::NodeAddress(_) => {
                "a load balancer address belongs to Services only; put a Node's address into externalIPs"
            }
            Self::ExternalIp(_) => {
                "an address is either an external IP or a load balancer address; choose another, or change that Service first"
            }
            Self::OutsideEveryPool => {
                "choose an address of an AddressPool, create one with it, or allow it with --allow-external-ip"
            }
            Self::NotInNamedPool { .. } => "omit the pool or the address, or choose an address of that pool",
            Self::Reserved(_) => "choose another address, or remove it from `reserved` of the pool",
            Self::Avoided(_) => "choose another address, or set `avoidBuggyIPs` of the pool to false",
            Self::NotForService(_) => {
                "choose an address of another pool, or change `namespaces` or `serviceSelectors` of this one"
            }
            Self::PoolDisabled(_) => {
                "choose an address of another pool, or set `disabled` of this one to false"
            }
            Self::Held(_) => {
                "omit the field to receive a free address, change the holder first, or give both the same sharing key"
            }
            Self::Crowded => "give the Service another sharing key or none",
            Self::Clash { .. } => {
                "use other ports, another sharing key or none, or change the other Service first"
            }
            Self::OtherPolicy(_) => {
                "give both the same externalTrafficPolicy, or this one another sharing key or none"
            }
            Self::OtherSelector(_) => {
                "with externalTrafficPolicy Local, Services share an address only with the same selector in the same \
                 namespace; give this one another sharing key or none"
            }
            Self::Quarantined { .. } => {
                "choose another address, or wait; until then only its former Service can have it"
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
                write!(f, "is in no pool and in no range that the control server allows")
            }
            Self::NotInNamedPool { named, pool: Some(pool) } => {
                write!(f, "lies in pool {pool}, not in pool {named} that the Service names")
            }
            Self::NotInNamedPool { named, pool: None } => {
                write!(f, "does not lie in pool {named} that the Service names")
            }
            Self::Reserved(pool) => write!(f, "is reserved in pool {pool}"),
            Self::Avoided(pool) => write!(f, "is excluded by pool {pool} (avoidBuggyIPs)"),
            Self::NotForService(pool) => write!(f, "lies in pool {pool}, which is not for this Service"),
            Self::PoolDisabled(pool) => write!(f, "lies in pool {pool}, which is disabled"),
            Self::Held(holder) => write!(f, "is held by Service {holder}"),
            Self::Crowded => write!(f, "is shared by {} Services, which is the limit", super::SHARED_MAX),
            Self::Clash { holder, protocol, ports } => {
                write!(f, "is shared with Service {holder}, which has port {ports}/{}", protocol.as_str())
            }
            Self::OtherPolicy(holder) => {
                write!(f, "is shared with Service {holder}, which has a different externalTrafficPolicy")
            }
            Self::OtherSelector(holder) => {
                write!(f, "is shared with Service {holder}, which has different endpoints")
            }
            Self::Quarantined { former, until } => {
                write!(f, "is in quarantine until {until} for its former Service {former}")
            }
        }
    }
}
