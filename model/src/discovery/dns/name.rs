//! Position of a name in the cluster zone.

use crate::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::name::{Label, Name, Namespace},
};

/// Meaning of a name relative to the cluster zone, by the schema of the specification. Whether the Service or the
/// endpoint exists is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ZoneName {
    /// The zone itself.
    Apex,
    /// Name with the version of the specification, `dns-version`.
    Version,
    /// Name of the name server of the zone, `ns.dns`.
    NameServer,
    /// Name without records above other names: `svc`, `pod` and `dns`.
    Empty,
    /// Namespace: `NAMESPACE.svc` or `NAMESPACE.pod`.
    Namespace(Namespace),
    /// Service: `SERVICE.NAMESPACE.svc`.
    Service(ServiceKey),
    /// Protocol of a Service, above its port names: `_PROTOCOL.SERVICE.NAMESPACE.svc`.
    Protocol(ServiceKey, Protocol),
    /// Named port of a Service: `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc`.
    Port(ServiceKey, Protocol, Label),
    /// Endpoint of a headless Service: `HOST.SERVICE.NAMESPACE.svc`.
    Host(ServiceKey, String),
    /// Endpoints of a headless Service in a failure zone: `ZONE.pin._zone.SERVICE.NAMESPACE.svc`, or `prefer` for all
    /// endpoints if the zone has none.
    Zonal {
        /// Headless Service.
        service: ServiceKey,
        /// Failure zone.
        zone: Label,
        /// True if endpoints outside of the zone are never returned.
        is_pinned: bool,
    },
    /// Workload by its address: `10-1-2-3.NAMESPACE.pod`.
    Workload(Namespace, String),
    /// Name above those of failure zones: `_zone.SERVICE.NAMESPACE.svc`, or `pin` or `prefer` below it.
    Zones(ServiceKey),
    /// Name that the schema does not permit.
    Unknown,
}

impl ZoneName {
    /// Returns the meaning of a name from its labels below the zone, from left to right.
    pub(super) fn of(labels: &[String]) -> Self {
        let mut from_right: Vec<&str> = labels.iter().map(String::as_str).collect();
        from_right.reverse();
        match from_right[..] {
            [] => Self::Apex,
            ["dns-version"] => Self::Version,
            ["dns", "ns"] => Self::NameServer,
            ["dns" | "svc" | "pod"] => Self::Empty,
            ["svc" | "pod", namespace] => namespace_of(namespace).map_or(Self::Unknown, Self::Namespace),
            ["svc", namespace, service, ref below @ ..] => {
                service_of(namespace, service).map_or(Self::Unknown, |key| Self::below_service(key, below))
            }
            ["pod", namespace, address] => namespace_of(namespace)
                .map_or(Self::Unknown, |namespace| Self::Workload(namespace, address.to_owned())),
            _ => Self::Unknown,
        }
    }

    fn below_service(key: ServiceKey, below: &[&str]) -> Self {
        match *below {
            [] => Self::Service(key),
            ["_zone", mode @ ("pin" | "prefer"), zone] => Label::parse(zone)
                .map_or(Self::Unknown, |zone| Self::Zonal { service: key, zone, is_pinned: mode == "pin" }),
            ["_zone"] | ["_zone", "pin" | "prefer"] => Self::Zones(key),
            [protocol] if protocol.starts_with('_') => {
                protocol_of(protocol).map_or(Self::Unknown, |protocol| Self::Protocol(key, protocol))
            }
            [protocol, port] if protocol.starts_with('_') => {
                let port = port.strip_prefix('_').and_then(|port| Label::parse(port).ok());
                match (protocol_of(protocol), port) {
                    (Some(protocol), Some(port)) => Self::Port(key, protocol, port),
                    _ => Self::Unknown,
                }
            }
            [host] => Self::Host(key, host.to_owned()),
            _ => Self::Unknown,
        }
    }
}

fn namespace_of(label: &str) -> Option<Namespace> {
    Namespace::parse(label).ok()
}

fn service_of(namespace: &str, service: &str) -> Option<ServiceKey> {
    Some(ServiceKey { namespace: namespace_of(namespace)?, name: Name::parse(service).ok()? })
}

fn protocol_of(label: &str) -> Option<Protocol> {
    match label {
        "_tcp" => Some(Protocol::Tcp),
        "_udp" => Some(Protocol::Udp),
        "_sctp" => Some(Protocol::Sctp),
        _ => None,
    }
}
