//! HTTP routing: `tidegate-gateway` on two nodes behind a load balancer address, with real packets.

mod acme;
mod tls;

use std::{net::SocketAddr, path::Path};

use anyhow::{Context as _, Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::{netns::Namespace, wait},
    network::{
        client::at,
        steady_client::SteadyClient,
        topology::node_addresses,
        web::{self, Page},
    },
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::{Value, json};

use self::acme::TestIssuer;
use crate::addresses::stage::{addresses, stage_with};

/// Nodes with a gateway.
const NODES: [&str; 2] = ["node1", "node2"];
/// Number of requests or connections of a steady client before and after each change.
const STEADY: usize = 20;

/// Cluster with gateways.
struct HttpStage {
    cluster: Cluster,
    gateways: Vec<Process>,
    client: Namespace,
    /// Virtual address of the gateways.
    edge: SocketAddr,
    directory: tempfile::TempDir,
    /// ACME server, once it is started.
    issuer: Option<TestIssuer>,
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Rule for the paths below a prefix.
fn rule(prefix: &str, service: &str) -> Value {
    json!({
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "backendRefs": [{"name": service, "port": 80}],
    })
}

fn route(name: &str, hostnames: &[&str], rules: &[Value]) -> Value {
    let parents = json!([{"name": "edge"}]);
    object("HttpRoute", name, &json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules}))
}

impl HttpStage {
    /// Starts a cluster with the Services `web` (two endpoints) and `api`, a gateway on each node behind the load
    /// balancer address of the Service `edge`, and a route for `www.example.org`.
    fn start() -> Self {
        let issuer = TestIssuer::new();
        let options = Options { nodes: 2, server_arguments: issuer.arguments(), ..Options::default() };
        let mut cluster = stage_with(&options);
        for (name, node, host, app) in
            [("web-1", "node1", 11, "web"), ("web-2", "node2", 12, "web"), ("api-1", "node1", 21, "api")]
        {
            add_pages(&mut cluster, name, node, host, app);
        }
        let backend = |name: &str| {
            let ports = json!([{"port": 80, "targetPort": BACKEND_PORT}]);
            object("Service", name, &json!({"selector": {"app": name}, "ports": ports}))
        };
        let endpoints: Vec<_> = [1, 2]
            .map(|index| json!({"address": node_addresses(index)[0], "node": NODES[usize::from(index) - 1]}))
            .into();
        let ports = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
        let objects = [
            backend("web"),
            backend("api"),
            object(
                "Service",
                "edge",
                &json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports}),
            ),
            object(
                "EndpointSet",
                "edge",
                &json!({"service": "edge", "ports": ports, "endpoints": endpoints}),
            ),
            object(
                "Gateway",
                "edge",
                &json!({"listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}),
            ),
            route(
                "web",
                &["www.example.org"],
                &[rule("/", "web"), rule("/api", "api"), rule("/api/pages", "web")],
            ),
        ];
        cluster.apply_objects(&objects).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let gateways = NODES.map(|node| start_gateway(&cluster, node, directory.path()));
        cluster.wait_verified("default/edge").unwrap();
        let edge = at(addresses(&cluster, "default/edge").unwrap()[0], 80);
        let client = cluster.place("client").unwrap().clone();
        Self { cluster, gateways: gateways.into(), client, edge, directory, issuer: Some(issuer) }
    }

    fn get(&self, host: &str, path: &str) -> Result<Page> {
        web::get(&self.client, self.edge, host, path)
    }

    /// Waits until ten requests in a row get one of the pages.
    #[track_caller]
    fn wait_pages(&self, host: &str, path: &str, pages: &[&str]) {
        wait::until(&format!("{pages:?} at {host}{path}"), || {
            for _ in 0..10 {
                let page = self.get(host, path)?;
                let body = page.body.trim();
                ensure!(page.status == 200 && pages.contains(&body), "{page:?}");
            }
            Ok(())
        })
        .unwrap();
    }

    /// Starts a client that sends one request after another to `www.example.org`, and accepts pages only.
    fn steady(&self) -> SteadyClient {
        let (client, edge) = (self.client.clone(), self.edge);
        SteadyClient::start_with(move || {
            let page = web::get(&client, edge, "www.example.org", "/")?;
            ensure!(page.status == 200, "{page:?}");
            Ok(())
        })
    }
}

/// Adds a workload with a web server, whose page is its name.
fn add_pages(cluster: &mut Cluster, name: &str, node: &str, host: u8, app: &str) {
    cluster.add_place(name, node, host).unwrap();
    cluster.topology.serve_pages(name, BACKEND_PORT).unwrap();
    let record = cluster.workload_record(name, app).unwrap();
    cluster.apply_objects(&[record]).unwrap();
}

fn start_gateway(cluster: &Cluster, node: &str, directory: &Path) -> Process {
    let state = directory.join(node);
    std::fs::create_dir_all(&state).unwrap();
    let plan = Plan {
        label: format!("tidegate-gateway {node}"),
        namespace: cluster.place(node).unwrap().clone(),
        program: binaries::find("tidegate-gateway").unwrap(),
        arguments: vec![
            format!("--api={}", cluster.api.url()),
            format!("--name={node}"),
            format!("--state-dir={}", state.display()),
            "--access-log".to_owned(),
        ],
        environment: Vec::new(),
        log: directory.join(format!("{node}.log")),
    };
    Process::start(plan).unwrap()
}

/// Requests through a load balancer address reach the Service that the host name (F141) and the longest path prefix
/// (F142) select; others get 404, or the Service of a route for all host names. Changes of endpoints and routes apply in
/// the same processes, without a failed request (F143). Over TLS, the server name selects the certificate, which can be
/// renewed (F144). Certificates are ordered from an ACME server, which verifies host names through the gateways, and renewed.
/// New processes of the program take over without a failed request. The gateways route on without a control server, also after a
/// restart. Without any gateway, connections to other Services go on (F147).
#[test]
fn f141_f142_f143_f144_f147_requests_reach_the_services_of_their_routes() {
    let mut stage = HttpStage::start();
    let www = "www.example.org";
    let web = ["web-1", "web-2"];
    stage.wait_pages(www, "/", &web);
    for (path, pages) in [
        ("/other?a=b", &web[..]),
        ("/apis", &web),
        ("/api", &["api-1"]),
        ("/api/x", &["api-1"]),
        ("/api/pages/1", &web),
    ] {
        stage.wait_pages(www, path, pages);
    }
    assert_eq!(stage.get("other.example.org", "/").unwrap().status, 404);
    let all_hosts = route("default", &[], &[rule("/", "api")]);
    stage.cluster.apply_objects(&[all_hosts]).unwrap();
    stage.wait_pages("other.example.org", "/", &["api-1"]);
    stage.wait_pages(www, "/", &web);

    endpoints_change(&mut stage);
    tls::terminates_tls(&mut stage);
    processes_are_replaced(&mut stage);
    acme::certificates_are_ordered(&mut stage);
    routing_survives_control(&mut stage);
    services_survive_gateways(&mut stage);
    acme::ordered_certificates_are_renewed(&stage);
}

/// An endpoint is removed and its server stopped, and another one is added, while a client sends requests. Then a rule
/// gets another Service.
fn endpoints_change(stage: &mut HttpStage) {
    let pids: Vec<_> = stage.gateways.iter().map(Process::pid).collect();
    let steady = stage.steady();
    steady.wait(STEADY).unwrap();
    stage.cluster.delete("namespaces/default/workloads/web-1").unwrap();
    stage.wait_pages("www.example.org", "/", &["web-2"]);
    stage.cluster.topology.stop_serving("web-1");
    steady.wait(STEADY).unwrap();
    add_pages(&mut stage.cluster, "web-3", "node1", 13, "web");
    wait::until("the new endpoint", || {
        let page = stage.get("www.example.org", "/")?;
        ensure!(page.body.trim() == "web-3", "{page:?}");
        Ok(())
    })
    .unwrap();
    let rules = json!({"spec": {"rules": [rule("/", "web"), rule("/api", "web")]}});
    stage.cluster.patch("namespaces/default/httproutes/web", &rules).unwrap();
    stage.wait_pages("www.example.org", "/api/x", &["web-2", "web-3"]);
    steady.wait(STEADY).unwrap();
    steady.end(0).unwrap();
    assert_eq!(stage.gateways.iter().map(Process::pid).collect::<Vec<_>>(), pids);
}

/// A new process takes over the sockets of each gateway, as after an update of the program, while a client sends requests.
fn processes_are_replaced(stage: &mut HttpStage) {
    let steady = stage.steady();
    for (index, node) in NODES.into_iter().enumerate() {
        steady.wait(STEADY).unwrap();
        let new = start_gateway(&stage.cluster, node, stage.directory.path());
        let mut old = std::mem::replace(&mut stage.gateways[index], new);
        let ended = || old.exit_status().with_context(|| stage.gateways[index].log());
        let status = wait::until("the end of the old process", ended).unwrap();
        assert!(status.success(), "{status}");
    }
    steady.wait(STEADY).unwrap();
    steady.end(0).unwrap();
    stage.wait_secure("www.example.org", &["web-2", "web-3"]);
}

/// The control server dies. Requests go on, also after a restart of the gateways, which begin with the state on disk.
fn routing_survives_control(stage: &mut HttpStage) {
    for node in NODES {
        let path = stage.directory.path().join(node).join("routes.jsonl");
        wait::until_true("the state on disk", || {
            // The last route that was added.
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            text.contains("\"web-3\"") && text.contains("secure.example.org")
        })
        .unwrap();
    }
    stage.cluster.server.kill();
    stage.wait_pages("www.example.org", "/", &["web-2", "web-3"]);
    for gateway in &mut stage.gateways {
        let status = gateway.terminate().unwrap();
        assert!(status.success(), "{status}");
        gateway.start_again().unwrap();
    }
    stage.wait_secure("www.example.org", &["web-2", "web-3"]);
    stage.wait_pages("www.example.org", "/api/x", &["web-2", "web-3"]);
    stage.wait_pages("other.example.org", "/", &["api-1"]);
    stage.cluster.start_control_again().unwrap();
}

/// All gateways are killed while a client connects to a Service without HTTP routes, whose endpoints change meanwhile.
fn services_survive_gateways(stage: &mut HttpStage) {
    stage.cluster.wait_converged().unwrap();
    stage.cluster.add_backend("tcp-1", "node1", 41, "tcp").unwrap();
    let ports = json!([{"port": 7000, "targetPort": BACKEND_PORT}]);
    let spec =
        json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "selector": {"app": "tcp"}, "ports": ports});
    stage.cluster.add_service("tcp", spec).unwrap();
    let tcp = at(addresses(&stage.cluster, "default/tcp").unwrap()[0], 7000);
    wait::until("the Service", || stage.cluster.tcp("client", tcp)).unwrap();
    let steady = SteadyClient::start(&stage.client, tcp);
    steady.wait(STEADY).unwrap();
    stage.gateways.iter_mut().for_each(Process::kill);
    assert!(stage.get("www.example.org", "/").is_err());
    steady.wait(STEADY).unwrap();
    stage.cluster.add_backend("tcp-2", "node2", 42, "tcp").unwrap();
    wait::until("both endpoints", || stage.cluster.expect_backends("client", tcp, &["tcp-1", "tcp-2"]))
        .unwrap();
    steady.end(0).unwrap();
    for gateway in &mut stage.gateways {
        gateway.start_again().unwrap();
    }
    stage.wait_pages("www.example.org", "/", &["web-2", "web-3"]);
}
