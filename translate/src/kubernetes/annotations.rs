//! What annotations of a Service ask of its load balancer address: those of MetalLB, in both spellings.

use std::net::IpAddr;

use crate::json::{items, text};
use model::primitives::name::Name;
use serde_json::{Map, Value, json};

use super::{READY, Settings, Severity, Surroundings, Translated, names::digest};

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
    if field.is_empty() { given_by_metallb(service) } else { vec![normal(&field)] }
}

/// The addresses that MetalLB gave, as long as nothing of ours stands in the status: a Service keeps them when it moves here.
/// When they cannot be had, the refusal is written into the status, and the next time any address will do.
fn given_by_metallb(service: &Value) -> Vec<String> {
    let note = |prefix: &&str| {
        service.pointer("/metadata/annotations")?.get(format!("{prefix}/ip-allocated-from-pool"))
    };
    let is_told =
        items(service, "/status/conditions").iter().any(|condition| text(condition, "/type") == READY);
    if is_told || PREFIXES.iter().find_map(note).is_none() {
        return Vec::new();
    }
    let addresses = items(service, "/status/loadBalancer/ingress").iter().map(|entry| text(entry, "/ip"));
    addresses.filter(|address| address.parse::<IpAddr>().is_ok()).collect()
}
