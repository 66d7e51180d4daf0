//! Translation of a Kubernetes EndpointSlice.

use std::{collections::BTreeSet, net::IpAddr};

use crate::json::{items, text};
use model::admission::decode::{Expect, decode};
use serde_json::{Map, Value, json};

use super::{Settings, Severity, TranslationResult, document, fields, label, labels_of};

/// Label of a slice with the name of its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label of a slice whose Service is headless.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// Maximum number of attempts to leave out invalid endpoints before the whole slice is left out.
const ROUNDS_MAX: usize = 3;

/// Translates an EndpointSlice to an EndpointSet of the same name. The result contains no object if the slice
/// belongs to no Service.
#[must_use]
pub fn endpoint_slice(settings: &Settings, slice: &Value) -> TranslationResult {
    let labels = labels_of(settings, slice);
    let service = labels.get(SERVICE_NAME_LABEL).and_then(Value::as_str).unwrap_or_default().to_owned();
    if service.is_empty() {
        return TranslationResult::default();
    }
    let mut made = TranslationResult::begin(fields::Kind::EndpointSlice, slice);
    let family = text(slice, "/addressType");
    if !matches!(family.as_str(), "IPv4" | "IPv6") {
        made.find(Severity::NotSupported, "addressType", format!("`{family}`: endpoints must be addresses"));
        return made;
    }
    let ports: Vec<_> = items(slice, "/ports")
        .iter()
        .enumerate()
        .filter_map(|(at, each)| port(at, each, &mut made))
        .collect();
    let mut endpoints = Vec::new();
    let mut seen = BTreeSet::new();
    for (number, each) in items(slice, "/endpoints").iter().enumerate() {
        let made_of = endpoint(settings, number, each, &mut made);
        endpoints.extend(made_of.filter(|(address, _)| seen.insert(*address)).map(|(_, endpoint)| endpoint));
    }
    let is_headless =
        slice.pointer("/metadata/labels").is_some_and(|labels| labels.get(HEADLESS_LABEL).is_some());
    if ports.is_empty() && !is_headless {
        // A slice without ports has no endpoints; an EndpointSet without ports would use all ports of the
        // Service. Headless Services may have none.
        endpoints.clear();
    }
    let namespace = settings.name(&text(slice, "/metadata/namespace"));
    let name = text(slice, "/metadata/name");
    finish(&mut made, endpoints, |endpoints| {
        let spec = json!({ "service": service, "ports": ports, "endpoints": endpoints });
        document("EndpointSet", Some(&namespace), &name, &labels, spec)
    });
    made
}

/// Adds an EndpointSet to the result that contains only the valid ones of `endpoints`, so that one invalid
/// address does not affect the others. `whole` builds the manifest of an EndpointSet from its endpoints.
pub(super) fn finish(
    made: &mut TranslationResult,
    mut endpoints: Vec<Value>,
    whole: impl Fn(&[Value]) -> Value,
) {
    for _round in 0..ROUNDS_MAX {
        let document = whole(&endpoints);
        let Err(violations) = decode(&document, &Expect::default()) else { break };
        let bad: BTreeSet<usize> = violations
            .iter()
            .filter_map(|violation| {
                violation.pointer.strip_prefix("/spec/endpoints/")?.split('/').next()?.parse().ok()
            })
            .collect();
        if bad.is_empty() {
            break;
        }
        made.refuse(&violations);
        let mut number = 0;
        endpoints.retain(|_| {
            number += 1;
            !bad.contains(&(number - 1))
        });
    }
    made.finish(&whole(&endpoints));
}

fn port(number: usize, theirs: &Value, made: &mut TranslationResult) -> Option<Value> {
    let mut port = Map::new();
    let Some(listens) = theirs.get("port").and_then(Value::as_u64) else {
        made.find(
            Severity::NotSupported,
            format!("ports[{number}].port"),
            "a port without a number means all ports, which is not supported",
        );
        return None;
    };
    port.insert("port".to_owned(), json!(listens));
    for key in ["name", "protocol"] {
        let word = text(theirs, &format!("/{key}"));
        if !word.is_empty() {
            port.insert(key.to_owned(), json!(word));
        }
    }
    Some(Value::Object(port))
}

fn endpoint(
    settings: &Settings,
    number: usize,
    theirs: &Value,
    made: &mut TranslationResult,
) -> Option<(IpAddr, Value)> {
    let at = format!("endpoints[{number}]");
    // All addresses belong to the same endpoint; consumers use the first.
    let first = text(theirs, "/addresses/0");
    let Ok(address) = first.parse::<IpAddr>() else {
        made.find(Severity::Invalid, format!("{at}.addresses"), format!("`{first}` is not an address"));
        return None;
    };
    let condition = |key: &str| theirs.pointer(&format!("/conditions/{key}")).and_then(Value::as_bool);
    // Unknown conditions count as true; an unknown `serving` is equal to `ready`.
    let ready = condition("ready").unwrap_or(true);
    let conditions = json!({
        "ready": ready,
        "serving": condition("serving").unwrap_or(ready),
        "terminating": condition("terminating").unwrap_or(false),
    });
    let mut endpoint = json!({ "address": address, "conditions": conditions });
    let node = text(theirs, "/nodeName");
    if !node.is_empty() {
        endpoint["node"] = json!(settings.name(&node));
    }
    let zone = text(theirs, "/zone");
    match label(&zone) {
        Some(zone) => endpoint["zone"] = json!(zone),
        None if zone.is_empty() => {}
        None => made.find(
            Severity::NotSupported,
            format!("{at}.zone"),
            format!("`{zone}` is not a DNS label; the endpoint has no zone"),
        ),
    }
    name_host(&mut endpoint, &text(theirs, "/hostname"), &at, made);
    Some((address, endpoint))
}

/// Gives an endpoint its host name, unless it is empty or no DNS label. `at` is the field of the endpoint.
pub(super) fn name_host(endpoint: &mut Value, hostname: &str, at: &str, made: &mut TranslationResult) {
    match label(hostname) {
        Some(hostname) => endpoint["hostname"] = json!(hostname),
        None if hostname.is_empty() => {}
        None => made.find(
            Severity::NotSupported,
            format!("{at}.hostname"),
            format!("`{hostname}` is not a DNS label; the endpoint has no host name"),
        ),
    }
}
