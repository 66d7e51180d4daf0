//! Report of the engine's networks and their containers, for the status API. Does no I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::plan::{Elsewhere, EngineState, network_owner};

/// Lists every network of the engine by name, with its bridge interface, subnets, containers and their
/// addresses, and other Nodes with the same subnets.
pub(super) fn report(engine: &EngineState, elsewhere: &Elsewhere) -> Value {
    let mut members = BTreeMap::<&str, Vec<Value>>::new();
    for container in engine.containers.values() {
        // A container that joins another container's network is listed there.
        let Ok(owner) = network_owner(engine, container) else { continue };
        for attachment in owner.networks.values().filter(|attachment| !attachment.addresses.is_empty()) {
            let member = json!({ "name": container.name, "addresses": attachment.addresses });
            members.entry(attachment.network_id.as_str()).or_default().push(member);
        }
    }
    let mut networks: Vec<_> = engine.networks.iter().collect();
    networks.sort_by_key(|(id, network)| (&network.name, *id));
    let networks = networks.into_iter().map(|(id, network)| {
        let mut containers = members.remove(id.as_str()).unwrap_or_default();
        containers.sort_by_key(|member| member["name"].as_str().map(str::to_owned));
        let others = network.subnets.iter().filter_map(|subnet| elsewhere.subnets.get(subnet)).flatten();
        json!({
            "name": network.name, "driver": network.driver, "link": network.link, "subnets": network.subnets,
            "containers": containers, "sameSubnetOn": others.collect::<std::collections::BTreeSet<_>>(),
        })
    });
    networks.collect()
}
