//! Converts the endpoints of DNS names to EndpointSets: one for each name, or one for each port of an SRV
//! name. Does no I/O.

use std::collections::BTreeMap;

use model::{
    admission::decode::{Expect, decode},
    kinds::resource::Object,
    primitives::name::Namespace,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{machine::Target, parse::Binding};

/// Annotation with the DNS name of the endpoints.
const NAME_ANNOTATION: &str = "tidegate.io/dns-name";

/// Returns the EndpointSets for the current endpoints of a DNS name.
pub(super) fn endpoint_sets<'a>(
    namespace: &Namespace,
    binding: &Binding,
    targets: impl Iterator<Item = &'a Target>,
) -> Result<Vec<Object>, String> {
    let mut by_port = BTreeMap::<Option<u16>, Vec<Value>>::new();
    for target in targets {
        let port = target.port.or(binding.port);
        by_port.entry(port).or_default().push(json!({ "address": target.address, "weight": target.weight }));
    }
    let set = |(port, endpoints): (Option<u16>, Vec<Value>)| {
        let mut spec = json!({ "service": binding.service.as_str(), "endpoints": endpoints });
        if let Some(port) = port {
            let mut json = json!({ "port": port });
            if let Some(name) = &binding.port_name {
                json["name"] = name.as_str().into();
            }
            spec["ports"] = json!([json]);
        }
        let annotations: Map<String, Value> =
            [(NAME_ANNOTATION.to_owned(), binding.name.as_str().into())].into_iter().collect();
        let value = json!({
            "kind": "EndpointSet",
            "metadata": {
                "name": set_name(binding, port.filter(|_| binding.is_srv())),
                "namespace": binding.namespace.as_ref().unwrap_or(namespace).as_str(),
                "annotations": annotations,
            },
            "spec": spec,
        });
        decode(&value, &Expect::default()).map_err(|violations| {
            let words =
                violations.iter().map(|violation| format!("{} {}", violation.pointer, violation.message));
            words.collect::<Vec<_>>().join("; ")
        })
    };
    by_port.into_iter().map(set).collect()
}

/// Returns the name of the EndpointSet for a DNS name and, for an SRV name, a port. The name is stable across
/// restarts, and unique per DNS name and Service.
fn set_name(binding: &Binding, port: Option<u16>) -> String {
    let port_name = binding.port_name.as_ref().map(ToString::to_string).unwrap_or_default();
    let hash = Sha256::digest(format!("{}\n{port_name}\n{:?}", binding.name, binding.port));
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let port = port.map(|port| format!("-{port}")).unwrap_or_default();
    format!("{}-dns-{hash}{port}", binding.service)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(binding: &str, targets: &[(&str, Option<u16>, u16)]) -> Vec<Value> {
        let targets: Vec<_> = targets
            .iter()
            .map(|(address, port, weight)| Target {
                address: address.parse().unwrap(),
                port: *port,
                weight: *weight,
            })
            .collect();
        let namespace = Namespace::parse("default").unwrap();
        let sets = endpoint_sets(&namespace, &binding.parse().unwrap(), targets.iter()).unwrap();
        sets.iter().map(Object::to_json).collect()
    }

    #[test]
    fn a_name_is_a_set_and_an_srv_name_a_set_for_each_port() {
        let found = sets("shop/web:http=a.example:8080", &[("192.0.2.1", None, 1), ("2001:db8::1", None, 1)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["metadata"]["namespace"], "shop");
        assert_eq!(found[0]["spec"]["ports"], json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]));
        assert_eq!(found[0]["spec"]["endpoints"][1]["address"], "2001:db8::1");

        let found = sets("db=_pg._tcp.example", &[("192.0.2.1", Some(1), 5), ("192.0.2.2", Some(2), 6)]);
        assert_eq!(found.len(), 2);
        assert_ne!(found[0]["metadata"]["name"], found[1]["metadata"]["name"]);
        assert_eq!(
            (&found[1]["spec"]["ports"][0]["port"], &found[1]["spec"]["endpoints"][0]["weight"]),
            (&json!(2), &json!(6))
        );
    }

    #[test]
    fn two_names_of_a_service_are_two_sets() {
        let name = |binding| sets(binding, &[("192.0.2.1", None, 1)])[0]["metadata"]["name"].clone();
        assert_ne!(name("web=a.example"), name("web=b.example"));
        assert_eq!(name("web=a.example"), name("web=A.Example."));
    }
}
