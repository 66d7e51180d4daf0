//! Health check by default, with real agents: a dead endpoint leaves service although nobody configured a check.

use std::time::Duration;

use anyhow::ensure;
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::wait,
};
use serde_json::{Value, json};

/// Maximum time until a dead endpoint has left service: three failures, 10 s apart, and time for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn is_ready(cluster: &Cluster, service: &str, backend: &str) -> anyhow::Result<bool> {
    let address = cluster.topology.workloads[backend].addresses[0].to_string();
    let compiled = cluster.object(&format!("namespaces/default/endpoints/{service}"))?;
    let endpoints = compiled["ports"][0]["endpoints"].as_array().cloned().unwrap_or_default();
    let found = endpoints.iter().find(|one| one["address"] == address);
    found
        .and_then(|one| one["ready"].as_bool())
        .ok_or_else(|| anyhow::anyhow!("no {address} in {compiled:#}"))
}

/// A backend that stops leaves the Service that nobody configured to be checked, stays in an exempt Service, and returns
/// when it answers again. The only backend of a Service stays.
#[test]
fn f148_a_dead_endpoint_without_a_health_check_leaves_service() {
    let server_arguments = vec!["--default-health-check=tcp".to_owned()];
    let mut cluster = Cluster::start(&Options { server_arguments, ..Options::default() }).unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_backend("web-2", "node2", 12, "web").unwrap();
    cluster.add_backend("alone-1", "node2", 13, "alone").unwrap();
    let spec = |app: &str| json!({ "selector": { "app": app }, "ports": [{ "port": 80, "targetPort": BACKEND_PORT }] });
    cluster.add_service("web", spec("web")).unwrap();
    cluster.add_service("alone", spec("alone")).unwrap();
    let exempt = json!({
        "kind": "Service", "spec": spec("web"),
        "metadata": { "name": "exempt", "annotations": { "tidegate.io/default-health-check": "none" } },
    });
    cluster.apply_objects(&[exempt]).unwrap();
    cluster.wait_converged().unwrap();
    wait::until("all endpoints to answer", || {
        let health = cluster.object("namespaces/default/services/web/health")?;
        let endpoints = health["endpoints"].as_array().cloned().unwrap_or_default();
        let is_healthy = |one: &Value| one["state"] == "Healthy" && one["byDefault"] == true;
        // Two backends, with the IP families that they have.
        ensure!(endpoints.len() >= 2 && endpoints.iter().all(is_healthy), "{health:#}");
        Ok(())
    })
    .unwrap();
    for backend in ["web-2", "alone-1"] {
        cluster.topology.stop_serving(backend);
    }
    wait::until_within(PATIENCE, "the dead endpoint to leave", || {
        ensure!(!is_ready(&cluster, "web", "web-2")?);
        let alone = cluster.object("namespaces/default/services/alone/health")?;
        ensure!(
            alone["endpoints"][0]["state"] == "Unhealthy" && alone["endpoints"][0]["kept"] == true,
            "{alone:#}"
        );
        Ok(())
    })
    .unwrap();
    assert!(is_ready(&cluster, "web", "web-1").unwrap(), "the other endpoint answers");
    assert!(is_ready(&cluster, "alone", "alone-1").unwrap(), "the last endpoint stays");
    assert!(is_ready(&cluster, "exempt", "web-2").unwrap(), "an exempt Service");
    let exempt = cluster.object("namespaces/default/services/exempt/health").unwrap();
    assert_eq!(exempt["endpoints"][0]["state"], "NotChecked", "{exempt:#}");
    cluster.topology.serve("web-2", BACKEND_PORT).unwrap();
    wait::until_within(PATIENCE, "the endpoint to return", || {
        ensure!(is_ready(&cluster, "web", "web-2")?);
        Ok(())
    })
    .unwrap();
}
