//! Translation of the load balancer settings in MetalLB's Service annotations, under the current and the
//! former prefix.

use std::net::IpAddr;

use crate::json::{items, text};
use model::{
    kinds::service::HOSTNAMES_MAX,
    primitives::{domain_name::DomainName, name::Name},
};
use serde_json::{Map, Value, json};

use super::{HOSTNAMES, READY, Settings, Severity, Surroundings, TranslationResult, names::digest};

/// Annotation prefixes in order of precedence.
const PREFIXES: [&str; 2] = ["metallb.io", "metallb.universe.tf"];

/// Returns the value and the field path of the annotation `key`, under the first MetalLB prefix (current or
/// former) that the Service uses.
fn annotation(service: &Value, key: &str, made: &mut TranslationResult) -> Option<(String, String)> {
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
        made.find(
            Severity::NotSupported,
            second.1,
            format!("differs from {}, which takes precedence", first.1),
        );
    }
    Some(first).filter(|(value, _)| !value.is_empty())
}

/// Translates the MetalLB annotations of a Service to `spec.loadBalancer` of the translated Service. Returns
/// `None` if the annotations request nothing.
pub(super) fn load_balancer(
    settings: &Settings,
    around: &Surroundings,
    service: &Value,
    made: &mut TranslationResult,
) -> Option<Value> {
    let mut wanted = Map::new();
    if let Some((pool, _)) = annotation(service, "address-pool", made) {
        // A pool of the cluster, or one created in Tidegate.
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

/// Returns the host names in the annotation of ExternalDNS, separated by commas. Names that Tidegate does not support,
/// such as wildcard names, are reported and left out.
pub(super) fn hostnames(service: &Value, made: &mut TranslationResult) -> Vec<String> {
    let annotation = service.pointer("/metadata/annotations").and_then(|all| all.get(HOSTNAMES)?.as_str());
    let mut names: Vec<String> = Vec::new();
    let mut fail = |message: String| {
        made.find(Severity::NotSupported, format!("metadata.annotations[\"{HOSTNAMES}\"]"), message);
    };
    let texts = annotation.unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty());
    for text in texts {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        match DomainName::parse(&name) {
            _ if names.contains(&name) => {}
            Ok(_) if names.len() == HOSTNAMES_MAX => {
                fail(format!("more than {HOSTNAMES_MAX} names; further ones are left out"));
                break;
            }
            Ok(_) => names.push(name),
            Err(error) => fail(format!("`{text}` is left out: it {error}")),
        }
    }
    names
}

/// Returns the load balancer addresses that a Service requests. An invalid address is kept, so that the
/// translated Service is rejected: without the address, any address would be assigned.
fn addresses(service: &Value, made: &mut TranslationResult) -> Vec<String> {
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

/// Returns the addresses that MetalLB has assigned to a Service, unless the adapter has already written the
/// Service's status. They are requested, so that a Service keeps its address when it is migrated. If an
/// address is not available, the rejection is written to the status, and from then on any address is
/// requested.
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
