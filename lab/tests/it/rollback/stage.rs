//! Cluster with a node in each of three modes, addresses announced by ARP and by BGP, and Services of every
//! type. The Workloads have no processes, since only rules matter.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    host::{modes, wait},
    network::topology::{fabric_addresses, node_addresses, workload_addresses},
    processes::{
        binaries,
        routers::{Frr, RouterPlan, learned},
    },
};
use serde_json::{Value, json};

use super::{
    changes::Step,
    seen::{self, Seen},
};

/// Apply set of the Services and their endpoints.
pub(crate) const APPLY_SET: &str = "base";
const MODES: [&str; 3] = modes::NATIVE;
const ASN: u32 = 64_512;
const ROUTER_ASN: u32 = 64_600;
/// Host number of the router.
const ROUTER: u8 = 1;
/// Services whose addresses are announced by ARP; those in `BY_BGP` are announced by BGP.
const BY_ARP: [&str; 2] = ["near", "near-local"];
const BY_BGP: [&str; 2] = ["far", "far-local"];

pub(crate) struct Stage {
    /// FRR router; `None` in ipvs mode, in which nothing is announced.
    router: Option<Frr>,
    cluster: Cluster,
}

impl Stage {
    pub(crate) fn new() -> Self {
        // Prevents takeovers between nodes on a busy machine.
        let agent_arguments = vec!["--peer-multiplier=50".to_owned()];
        let options = Options { nodes: 3, modes: MODES.to_vec(), agent_arguments, ..Options::default() };
        let cluster = Cluster::start(&options).unwrap();
        let place = cluster.topology.add_place("router", ROUTER).unwrap();
        let neighbours = (1..=3).map(|index| (node_addresses(index)[0], ASN)).collect();
        let plan = RouterPlan::new(ROUTER_ASN, Ipv4Addr::new(172, 17, 8, ROUTER), neighbours);
        let router = Frr::start(&place, &plan).unwrap();
        let stage = Self { router: Some(router), cluster };
        stage.cluster.apply_objects(&pools()).unwrap();
        stage.cluster.apply_objects(&announcing()).unwrap();
        stage.carry_out(&Step::Apply(services()));
        stage
    }

    /// Starts a cluster with a single node, in ipvs mode. Its objects are those of the cluster with three
    /// nodes, so some refer to Nodes that do not exist.
    pub(crate) fn in_ipvs_mode() -> Self {
        let options = Options { nodes: 1, modes: modes::GUEST.to_vec(), ..Options::default() };
        let stage = Self { router: None, cluster: Cluster::start(&options).unwrap() };
        stage.cluster.apply_objects(&pools()).unwrap();
        stage.carry_out(&Step::Apply(services()));
        stage
    }

    /// Waits until all Services are programmed, all addresses are announced, and the observed state no longer
    /// changes. Returns this state.
    pub(crate) fn settled(&self) -> Seen {
        self.tidegate(&["wait", "--for=verified", "--quiet"]);
        if let Some(router) = &self.router {
            self.wait_announced(router);
        }
        let mut last = self.look().unwrap();
        wait::until("nothing to change any longer", || {
            let now = self.look()?;
            let is_still = now == last;
            let difference = seen::difference(&last, &now);
            last = now;
            ensure!(is_still, "{difference}");
            Ok(())
        })
        .unwrap();
        let words: &[_] = match self.router {
            Some(_) => &[("node1", " : goto cluster-"), ("node2", "-j DNAT"), ("node3", "forward tcp")],
            None => &[("node1", "-A -t "), ("node1", "-j MASQUERADE"), ("node1", "add ")],
        };
        for (node, word) in words {
            let lines = seen::lines_of(&last, node).filter(|line| line.contains(word));
            assert!(lines.count() > 0, "{node} lists nothing with {word}: {last:#?}");
        }
        last
    }

    fn wait_announced(&self, router: &Frr) {
        for name in BY_ARP {
            let address = self.cluster.wait_load_balancer_ip(&format!("default/{name}")).unwrap();
            wait::until(&format!("every candidate to do its part for {address}"), || {
                let record = self.cluster.address(address)?;
                let candidates = record["spec"]["announcement"]["candidates"].as_array().cloned();
                let candidates = candidates.unwrap_or_default();
                ensure!(!candidates.is_empty(), "{record:#}");
                for (rank, candidate) in candidates.iter().enumerate() {
                    let node = string(candidate, "/node")?;
                    let wanted = if rank == 0 { "Owner" } else { "Standby" };
                    ensure!(record["status"]["nodes"][&node]["role"] == wanted, "{record:#}");
                }
                Ok(())
            })
            .unwrap();
        }
        for (name, ways) in BY_BGP.into_iter().zip([3, 2]) {
            let address = self.cluster.wait_load_balancer_ip(&format!("default/{name}")).unwrap();
            wait::until(&format!("{ways} ways to {address}"), || {
                let routes = learned(&router.namespace)?;
                let route = routes.iter().find(|route| route["dst"] == address.to_string());
                let hops = route.map_or(0, |route| route["nexthops"].as_array().map_or(1, Vec::len));
                ensure!(hops == ways, "{routes:#?}");
                Ok(())
            })
            .unwrap();
        }
    }

    pub(crate) fn look(&self) -> Result<Seen> {
        seen::of(&self.cluster, self.router.as_ref())
    }

    pub(crate) fn is_in_ipvs_mode(&self) -> bool {
        self.router.is_none()
    }

    /// Returns the newest revision of the store.
    pub(crate) fn revision(&self) -> u64 {
        let status = self.cluster.api.get_json("/v1/status").unwrap();
        let position = string(&status, "/position").unwrap();
        position.rsplit_once('-').unwrap().1.parse().unwrap()
    }

    pub(crate) fn carry_out(&self, step: &Step) {
        let answer = match step {
            Step::Apply(objects) => {
                // A pool cannot be deleted before the Services that hold its addresses.
                let is_member = objects.iter().all(|object| object["kind"] != "AddressPool");
                let set = if is_member { format!("&applySet={APPLY_SET}") } else { String::new() };
                let path = format!("/v1/apply?evict=true{set}");
                self.cluster.api.send_json("POST", &path, &Value::from(objects.clone()))
            }
            Step::Patch(path, patch) => self.cluster.patch(path, patch),
            Step::Delete(path) => self.cluster.delete(path),
        };
        let done = answer.unwrap().success();
        assert!(done.is_ok(), "{step}: {done:?}");
    }

    /// Runs the CLI and returns its output. Panics if it fails.
    pub(crate) fn tidegate(&self, arguments: &[&str]) -> String {
        let program = binaries::find("tidegate").unwrap();
        let arguments = [&["--api", self.cluster.api.url()], arguments].concat();
        self.cluster.place("control").unwrap().run(program.to_str().unwrap(), &arguments).unwrap()
    }
}

fn pools() -> Vec<Value> {
    let pool = |name: &str, addresses: &[&str]| {
        object(
            "AddressPool",
            name,
            json!({"addresses": addresses, "autoAssign": false, "quarantineSeconds": 0}),
        )
    };
    vec![pool("lan", &["172.17.8.220-172.17.8.229"]), pool("routed", &["10.200.0.0/28"])]
}

/// Builds an Advertisement by ARP, one by BGP, and the BGP peer.
fn announcing() -> Vec<Value> {
    vec![
        object("Advertisement", "lan", json!({"addressPools": ["lan"]})),
        object("Advertisement", "routed", json!({"type": "BGP", "addressPools": ["routed"]})),
        object(
            "BgpPeer",
            "router",
            json!({
                "peerAddress": fabric_addresses(ROUTER)[0], "peerASN": ROUTER_ASN, "localASN": ASN, "connectTime": 1,
            }),
        ),
    ]
}

fn services() -> Vec<Value> {
    let mut all = Vec::new();
    for (name, node, host, app) in [
        ("web-1", 1, 11, "web"),
        ("web-2", 2, 12, "web"),
        ("web-3", 3, 13, "web"),
        ("web-4", 1, 14, "web"),
        ("api-1", 1, 21, "api"),
        ("api-2", 2, 22, "api"),
    ] {
        all.push(workload(name, node, host, app));
    }
    let service = |name: &str, spec: Value| object("Service", name, spec);
    let ports = json!([{"name": "web", "port": 80, "targetPort": 8080}]);
    let balanced = |pool: &str, app: &str, policy: &str| {
        json!({
            "type": "LoadBalancer", "selector": {"app": app}, "externalTrafficPolicy": policy,
            "loadBalancer": {"pool": pool}, "ports": ports,
        })
    };
    all.extend([
        service(
            "plain",
            json!({"selector": {"app": "web"}, "ports": [
                {"name": "web", "port": 80, "targetPort": 8080},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 8053},
            ]}),
        ),
        service(
            "dual",
            json!({
                "type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "api"}, "ports": ports,
            }),
        ),
        service("near", balanced("lan", "web", "Cluster")),
        service("near-local", balanced("lan", "api", "Local")),
        service("far", balanced("routed", "web", "Cluster")),
        service("far-local", balanced("routed", "api", "Local")),
        service(
            "sticky",
            json!({"selector": {"app": "web"}, "sessionAffinity": "ClientIP", "ports": ports}),
        ),
        service(
            "outside",
            json!({"selector": {"app": "api"}, "externalIPs": ["203.0.113.20"], "ports": ports}),
        ),
        service("manual", json!({"ports": ports})),
        endpoints("manual", &[("10.1.1.31", 1), ("10.1.2.32", 2), ("10.1.3.33", 1)]),
    ]);
    all
}

pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "tidegate/v1", "kind": kind, "metadata": {"name": name}});
    object["spec"] = spec;
    object
}

pub(crate) fn workload(name: &str, node: u8, host: u8, app: &str) -> Value {
    let spec = json!({"addresses": workload_addresses(node, host), "node": format!("node{node}")});
    let mut workload = object("Workload", name, spec);
    workload["metadata"]["labels"] = json!({"app": app});
    workload
}

pub(crate) fn endpoints(service: &str, addresses: &[(&str, u16)]) -> Value {
    let endpoint = |(address, weight): &(&str, u16)| json!({"address": address, "weight": weight});
    let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
    let ports = json!([{"name": "web", "port": 8080}]);
    object("EndpointSet", service, json!({"service": service, "ports": ports, "endpoints": endpoints}))
}
