//! List of Services with addresses and endpoints, which is the common input of all layouts.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use lab::cluster::control::string;
use serde_json::{Value, json};

use crate::fixture_cluster::{Estate, TARGET_PORT, endpoint_object};

/// Name of the Service that the measured changes add, change and remove, in addition to all other Services.
pub(super) const ADDED: &str = "added";
/// Network that contains the endpoints of all Services, those of [`ADDED`] included.
pub(super) const ENDPOINTS: &str = "10.128.0.0/9";
/// Node name of the endpoints: not the measured node, as for most endpoints of a cluster.
pub(super) const ENDPOINTS_NODE: &str = "elsewhere";
/// First endpoint address of [`ADDED`], after those of all other Services.
const ADDED_FIRST: u32 = u32::from_be_bytes([10, 255, 0, 1]);
/// Address that replaces the last endpoint of [`ADDED`].
const REPLACED: Ipv4Addr = Ipv4Addr::new(10, 255, 1, 1);
/// Number of objects per page of a listing.
const PAGE: usize = 5_000;

/// Service with one port, reduced to the fields that the rulesets use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchService {
    /// Namespace and name of the Service.
    pub name: String,
    /// Virtual address of the Service.
    pub address: Ipv4Addr,
    /// Addresses of the endpoints, in order.
    pub endpoints: Vec<Ipv4Addr>,
}

/// Returns all Services of a fixture cluster, sorted by name.
pub(super) fn all(estate: &Estate) -> Result<Vec<BenchService>> {
    let addresses = listed(estate, "services", |object| {
        string(object, "/spec/clusterIPs/0")?.parse().context("a virtual address")
    })?;
    let endpoints = listed(estate, "endpointsets", |object| {
        let endpoints = object["spec"]["endpoints"].as_array().context("an EndpointSet has endpoints")?;
        endpoints.iter().map(|endpoint| Ok(string(endpoint, "/address")?.parse()?)).collect()
    })?;
    ensure!(addresses.len() == endpoints.len(), "every Service of the fixture cluster has one EndpointSet");
    let together = addresses.into_iter().zip(endpoints).map(|((name, address), (set, endpoints))| {
        ensure!(name == set, "each EndpointSet of the fixture cluster has the name of its Service");
        Ok(BenchService { name, address, endpoints })
    });
    together.collect()
}

/// Lists all objects of a kind, sorted by name. Returns for each its `namespace/name` and the value that `of`
/// derives from it.
fn listed<T>(estate: &Estate, kind: &str, of: impl Fn(&Value) -> Result<T>) -> Result<Vec<(String, T)>> {
    let mut objects = Vec::new();
    let mut more = String::new();
    loop {
        let page = estate.cluster.api.get_json(&format!("/v1/{kind}?limit={PAGE}{more}"))?;
        for object in page["items"].as_array().context("a listing has items")? {
            let place = string(object, "/metadata/namespace")?;
            objects.push((format!("{place}/{}", string(object, "/metadata/name")?), of(object)?));
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => more = format!("&continue={token}"),
            _ => break,
        }
    }
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(objects)
}

/// Returns the endpoints of the added Service before and after the replacement of its last one.
pub(super) fn added_endpoints(count: u8) -> [Vec<Ipv4Addr>; 2] {
    let before: Vec<_> = (ADDED_FIRST..ADDED_FIRST + u32::from(count)).map(Ipv4Addr::from).collect();
    let mut after = before.clone();
    if let Some(last) = after.last_mut() {
        *last = REPLACED;
    }
    [before, after]
}

/// Builds the Service [`ADDED`] and its EndpointSet with the given endpoints.
pub(super) fn added_objects(endpoints: &[Ipv4Addr]) -> [Value; 2] {
    let endpoints: Vec<_> =
        endpoints.iter().map(|address| endpoint_object(*address, Some(ENDPOINTS_NODE))).collect();
    [
        json!({"kind": "Service", "metadata": {"name": ADDED}, "spec": {
            "ports": [{"port": crate::fixture_cluster::PORT, "targetPort": TARGET_PORT}],
        }}),
        json!({"kind": "EndpointSet", "metadata": {"name": ADDED}, "spec": {
            "service": ADDED, "endpoints": endpoints,
        }}),
    ]
}
