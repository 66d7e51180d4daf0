//! What annotations of a Service ask of its load balancer address: those of MetalLB, in both spellings.

use std::net::IpAddr;

use model::name::Name;
use serde_json::{Map, Value, json};
use translate::json::text;

use super::{Settings, Severity, Surroundings, Translated, names::digest};

/// Both groups of annotations; where both are there, the first counts.
const PREFIXES: [&str; 2] = ["metallb.io", "metallb.universe.tf"];

/// The value of an annotation and its full name.
fn annotation(service: &Value, key: &str, made: &mut Translated) -> Option<(String, String)> {
    let annotations = service.pointer("/metadata/annotations")?;
    let mut found = PREFIXES.iter().filter_map(|prefix| {
        let name = format!("{prefix}/{key}");
        Some((
            annotations.get(&name)?.as_str()?.trim().to_owned(),
            format!("metadata.annotations[\"{name}\"]"),
        ))
    });
    let first = found.next()?;
    if let Some(second) = found.next().filter(|second| second.0 != first.0) {
        made.find(Severity::NotSupported, second.1, format!("{} says something else, and counts", first.1));
    }
    Some(first).filter(|(value, _)| !value.is_empty())
}

/// `spec.loadBalancer`; nothing when nothing is asked.
pub(super) fn load_balancer(
    settings: &Settings,
    around: &Surroundings,
    service: &Value,
    made: &mut Translated,
) -> Option<Value> {
    let mut wanted = Map::new();
    if let Some((pool, _)) = annotation(service, "address-pool", made) {
        // A pool of the cluster's own, or one that somebody made here.
        let name = if around.pools.contains(&pool) { settings.name(&pool) } else { pool };
        wanted.insert("pool".to_owned(), json!(name));
    }
    let addresses = addresses(service, made);
    if !addresses.is_empty() {
        wanted.insert("addresses".to_owned(), json!(addresses));
    }
    if let Some((key, _)) = annotation(service, "allow-shared-ip", made) {
        let own =
            format!("{}{key}", settings.cluster.as_ref().map(|name| format!("{name}--")).unwrap_or_default());
        let is_name = own.len() <= 63 && Name::parse(&own).is_ok();
        wanted.insert(
            "sharingKey".to_owned(),
            json!(if is_name { own } else { format!("key-{}", digest(&own)) }),
        );
    }
    (!wanted.is_empty()).then_some(Value::Object(wanted))
}

/// The addresses that are asked for. What is no address stays, so that the Service is refused as a whole: without it, it would
/// get any address.
fn addresses(service: &Value, made: &mut Translated) -> Vec<String> {
    let field = text(service, "/spec/loadBalancerIP");
    let normal =
        |text: &str| text.parse::<IpAddr>().map_or_else(|_| text.to_owned(), |address| address.to_string());
    if let Some((list, at)) = annotation(service, "loadBalancerIPs", made) {
        if !field.is_empty() {
            made.find(Severity::NotSupported, "spec.loadBalancerIP", format!("{at} counts"));
        }
        return list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(normal).collect();
    }
    if field.is_empty() { Vec::new() } else { vec![normal(&field)] }
}
