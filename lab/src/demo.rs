//! A set of Services that looks like somebody's cluster: several teams, addresses for the outside, a health check that fails, a
//! history with authors. It is what the page shows after `make lab`, and what pictures of it are taken of. All of it is real:
//! the backends answer, and the one that does not was stopped.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{cluster::Cluster, control::number, scene::BACKEND_PORT, wait};

/// A Service of the demo set.
struct Offer {
    namespace: &'static str,
    name: &'static str,
    kind: &'static str,
    author: &'static str,
    /// The machines of its backends, by number; each machine once.
    backends: &'static [u8],
}

const OFFERS: [Offer; 9] = [
    offer("shop", "storefront", "LoadBalancer", "ana", &[1, 2, 3]),
    offer("shop", "cart", "ClusterIP", "ana", &[1, 2]),
    offer("shop", "checkout", "LoadBalancer", "ben", &[2, 3]),
    offer("shop", "search", "ClusterIP", "ben", &[1, 3]),
    offer("billing", "invoices", "ClusterIP", "carla", &[1, 2]),
    offer("billing", "payments", "LoadBalancer", "carla", &[1, 2, 3]),
    offer("media", "images", "NodePort", "dev-pipeline", &[2, 3]),
    offer("media", "thumbnails", "ClusterIP", "dev-pipeline", &[3]),
    offer("ops", "metrics", "NodePort", "dev-pipeline", &[1, 2]),
];

/// The Service whose backend is stopped in the end, and the machine that the backend is on.
pub const ILL: (&str, &str, u8) = ("shop", "checkout", 3);
/// Machines that the set needs.
pub const NODES_MIN: usize = 3;
/// Host numbers of workloads from here on, so that the story's own are not met.
const HOSTS_FROM: u8 = 100;

const fn offer(
    namespace: &'static str,
    name: &'static str,
    kind: &'static str,
    author: &'static str,
    backends: &'static [u8],
) -> Offer {
    Offer { namespace, name, kind, author, backends }
}

/// Brings up the demo set on a cluster with three nodes or more, as far as everything in it is well.
///
/// # Errors
/// A name is taken, or something is refused.
pub fn add(cluster: &mut Cluster) -> Result<()> {
    write(cluster, "platform", &settings())?;
    for (offer, number) in OFFERS.iter().zip(0_u8..) {
        let objects = put_up(cluster, offer, number)?;
        write(cluster, offer.author, &objects)?;
    }
    wait_unhealthy(cluster, 0)?;
    for offer in &OFFERS {
        cluster.wait_verified(&format!("{}/{}", offer.namespace, offer.name))?;
    }
    Ok(())
}

/// Changes a Service and stops a backend, and waits until health checks have noticed: the problem that the page shows.
///
/// # Errors
/// The set was not brought up, or nobody notices.
pub fn fall_ill(cluster: &mut Cluster) -> Result<()> {
    let (namespace, name, machine) = ILL;
    let patch = json!({"metadata": {"labels": {"release": "2026-11"}}});
    let path = format!("/v1/namespaces/{namespace}/services/{name}");
    let headers = [
        ("content-type", "application/merge-patch+json"),
        ("x-tidegate-author", "ben"),
        ("x-change-message", "release 2026-11"),
    ];
    cluster.api.send("PATCH", &path, &headers, patch.to_string())?.success()?;
    cluster.topology.stop_serving(&workload(name, machine));
    wait_unhealthy(cluster, 2)
}

/// The name of a backend.
fn workload(name: &str, machine: u8) -> String {
    format!("{name}-{machine}")
}

fn settings() -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    vec![
        object("AddressPool", "public", json!({"addresses": ["172.25.1.208/28"], "autoAssign": false})),
        object("Advertisement", "public", json!({"type": "L2", "addressPools": ["public"]})),
    ]
}

/// Puts up the backends of an offer; gives its objects.
fn put_up(cluster: &mut Cluster, offer: &Offer, number: u8) -> Result<Vec<Value>> {
    let Offer { namespace, name, kind, author: _, backends } = offer;
    let mut spec = json!({
        "type": kind,
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": BACKEND_PORT}],
    });
    if *kind == "LoadBalancer" {
        spec["loadBalancer"] = json!({"pool": "public"});
    }
    if *name == "checkout" {
        spec["healthCheck"] =
            json!({"type": "Tcp", "intervalMs": 500, "timeoutMs": 400, "rise": 2, "fall": 2});
    }
    let mut objects = vec![json!({"apiVersion": "tidegate/v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": {"team": namespace}}, "spec": spec})];
    for machine in *backends {
        let (name_there, node) = (workload(name, *machine), format!("node{machine}"));
        cluster.add_place(&name_there, &node, HOSTS_FROM + number)?;
        cluster.topology.serve(&name_there, BACKEND_PORT)?;
        let mut record = cluster.workload_record(&name_there, name)?;
        record["metadata"]["namespace"] = json!(namespace);
        objects.push(record);
    }
    Ok(objects)
}

/// Writes objects in one request, in somebody's name.
fn write(cluster: &Cluster, author: &str, objects: &[Value]) -> Result<()> {
    let headers = [("content-type", "application/json"), ("x-tidegate-author", author)];
    let answer = cluster.api.send("POST", "/v1/apply", &headers, Value::from(objects).to_string())?;
    answer.success().map(drop).with_context(|| format!("writing in the name of {author}"))
}

/// Waits until health checks have found so many addresses of the Service that falls ill unhealthy; a backend has two, one of
/// each family.
fn wait_unhealthy(cluster: &Cluster, wanted: u64) -> Result<()> {
    let (namespace, name, _) = ILL;
    wait::until(&format!("{wanted} endpoints of {namespace}/{name} to be unhealthy"), || {
        let service = cluster.service(&format!("{namespace}/{name}"))?;
        let count = |what: &str| number(&service, &format!("/status/endpoints/{what}")).unwrap_or(0);
        ensure!(count("total") > 0 && count("unhealthy") == wanted, "{:#}", service["status"]);
        Ok(())
    })
}
