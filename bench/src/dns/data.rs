//! Names of the DNS benchmark: objects of the control server, and the same records for other name servers.

use std::{fmt::Write, net::Ipv4Addr};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Kind of names that are asked for their IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NameKind {
    /// Service with one address.
    Service,
    /// Headless Service with the addresses of all endpoints.
    Headless,
    /// Name of another zone, from the cache of a server that forwards.
    Cached,
}

impl NameKind {
    /// All kinds, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Service, Self::Headless, Self::Cached];

    /// Name of the kind on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Headless => "headless",
            Self::Cached => "cached",
        }
    }
}

/// Numbers of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameSet {
    /// Number of Services. Each tenth one is headless.
    pub services: u32,
    /// Endpoints per Service.
    pub endpoints: u8,
    /// Number of names of the other zone.
    pub cached: u32,
}

/// Zone of the cluster.
const CLUSTER_ZONE: &str = "cluster.local";
/// Zone of the names that are forwarded.
pub(super) const OTHER_ZONE: &str = "example.net";
/// First cluster IP; the ones before it are for other Services.
const CLUSTER_IPS: u32 = u32::from_be_bytes([10, 96, 1, 0]);
/// First address of an endpoint.
const ENDPOINTS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// Address of the names of the other zone.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// One of this number of Services is headless.
const HEADLESS_PART: u32 = 10;

impl NameSet {
    /// Returns the Services with their endpoints.
    pub(super) fn objects(&self) -> Vec<Value> {
        (0..self.services).flat_map(|number| self.service(number)).collect()
    }

    fn service(&self, number: u32) -> [Value; 2] {
        let (name, is_headless) = (service_name(number), is_headless(number));
        let cluster_ip = if is_headless { "None".to_owned() } else { cluster_ip(number).to_string() };
        let endpoints: Vec<_> =
            self.endpoints_of(number).map(|address| json!({ "address": address })).collect();
        [
            json!({ "kind": "Service", "metadata": { "name": name }, "spec": {
                "clusterIP": cluster_ip, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] } }),
            json!({ "kind": "EndpointSet", "metadata": { "name": name }, "spec": {
                "service": name, "endpoints": endpoints } }),
        ]
    }

    fn endpoints_of(&self, number: u32) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let first = ENDPOINTS + number * u32::from(self.endpoints);
        (first..first + u32::from(self.endpoints)).map(Ipv4Addr::from)
    }

    /// Returns the names of a kind.
    pub(super) fn names(&self, kind: NameKind) -> Vec<String> {
        let services = |wanted: bool| {
            let numbers = (0..self.services).filter(move |number| is_headless(*number) == wanted);
            numbers.map(|number| format!("{}.default.svc.{CLUSTER_ZONE}", service_name(number))).collect()
        };
        match kind {
            NameKind::Service => services(false),
            NameKind::Headless => services(true),
            NameKind::Cached => {
                (0..self.cached).map(|number| format!("host-{number:05}.{OTHER_ZONE}")).collect()
            }
        }
    }

    /// Returns all names of the cluster zone with their addresses.
    fn records(&self) -> Vec<(String, Ipv4Addr)> {
        let of = |number: u32| -> Vec<Ipv4Addr> {
            if is_headless(number) { self.endpoints_of(number).collect() } else { vec![cluster_ip(number)] }
        };
        let all =
            (0..self.services).map(|number| (format!("{}.default.svc", service_name(number)), of(number)));
        all.flat_map(|(name, addresses)| addresses.into_iter().map(move |address| (name.clone(), address)))
            .collect()
    }

    /// Returns the cluster zone as a zone file (RFC 1035 §5).
    pub(super) fn cluster_zone(&self) -> String {
        let mut text = zone_head(CLUSTER_ZONE, 5);
        for (name, address) in self.records() {
            // Writing to a String cannot fail; the same applies below.
            let _ = writeln!(text, "{name} A {address}");
        }
        text
    }

    /// Returns the names of the cluster zone as a hosts file.
    pub(super) fn hosts(&self) -> String {
        self.records().into_iter().fold(String::new(), |mut text, (name, address)| {
            let _ = writeln!(text, "{address} {name}.{CLUSTER_ZONE}");
            text
        })
    }

    /// Returns the other zone as a zone file.
    pub(super) fn other_zone(&self) -> String {
        (0..self.cached).fold(zone_head(OTHER_ZONE, 86_400), |mut text, number| {
            let _ = writeln!(text, "host-{number:05} A {OTHER}");
            text
        })
    }
}

fn zone_head(zone: &str, ttl: u32) -> String {
    format!(
        "$ORIGIN {zone}.\n$TTL {ttl}\n@ SOA ns.dns hostmaster 1 7200 1800 86400 5\n@ NS ns.dns\nns.dns A 10.96.0.53\n"
    )
}

fn service_name(number: u32) -> String {
    format!("service-{number:05}")
}

fn cluster_ip(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(CLUSTER_IPS + number)
}

const fn is_headless(number: u32) -> bool {
    number.is_multiple_of(HEADLESS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_get_the_same_records() {
        let names = NameSet { services: 2, endpoints: 2, cached: 1 };
        assert!(names.cluster_zone().ends_with(
            "service-00000.default.svc A 10.128.0.0\nservice-00000.default.svc A 10.128.0.1\n\
             service-00001.default.svc A 10.96.1.1\n"
        ));
        assert!(names.hosts().ends_with("10.96.1.1 service-00001.default.svc.cluster.local\n"));
        assert!(names.other_zone().ends_with("host-00000 A 192.0.2.1\n"));
        assert_eq!(names.names(NameKind::Headless), ["service-00000.default.svc.cluster.local"]);
        let objects = names.objects();
        assert_eq!(objects[0]["spec"]["clusterIP"], "None");
        assert_eq!(objects[3]["spec"]["endpoints"][1]["address"], "10.128.0.3");
    }
}
