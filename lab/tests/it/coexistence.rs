//! Agents on nodes with the footprints of network plugins of Kubernetes, in each proxy mode. The plugins themselves do not run:
//! the objects that they create are there, and their rules are written again as the plugins do.

mod calico;
mod cilium;
mod dump;
mod flannel;
mod footprint;
mod kube_ovn;
mod kube_router;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{
        modes,
        netns::{self, Namespace},
        wait,
    },
    network::{
        client::{self, Connection, at},
        echo::EchoServer,
        topology::{self, Topology},
    },
    processes::binaries,
};
use serde_json::{Value, json};

use self::{
    dump::{Dump, difference, dump},
    footprint::{Footprint, NODES, RuleStore},
};
use crate::addresses::stage::{advertisement, answerers, pool, wait_owner, wait_reached};

/// Load balancer address of the Service.
const VIP: &str = "172.17.8.225";
const PORT: u16 = 8080;
/// Time in which a connection that must fail does not succeed.
const SILENCE: Duration = Duration::from_millis(300);
/// Network of attached workloads. They reach pods of the plugin with the address of their node.
const NETWORK: &str = "apiVersion: tidegate/v1
kind: WorkloadNetwork
metadata: {name: own}
spec:
  cidrs: [10.64.0.0/16, fd64::/64]
  natOutgoing: true
";

/// Plugin with its objects on each node.
struct Plugin {
    /// Name in findings of `tidegate-agent doctor`.
    name: &'static str,
    footprint: Box<dyn Fn(u8) -> Footprint>,
    /// First two bytes, and last byte of the addresses of pods; the third byte is the number of the node.
    pod: fn(u8) -> String,
    /// Stores of the rules on the nodes, whose modes are those of [`modes::NATIVE`].
    stores: [RuleStore; 3],
    /// Connects nodes and pods through a router; without it, each pod is connected with its node.
    connect: Option<fn(&Topology, &[Namespace]) -> Namespace>,
    /// True if the interface of the node to which pods send packets has an IPv4 address.
    has_gateway_address: bool,
    /// True if the plugin also restores saved tables with the rules of all programs.
    restores_tables: bool,
    /// True if the agent in iptables mode must repair its rules after those of the plugin were written again: they are gone, or a rule
    /// before them can decide on the translation of a connection.
    is_repaired: bool,
}

impl Plugin {
    fn new(name: &'static str, footprint: fn(u8) -> Footprint, pod: fn(u8) -> String) -> Self {
        Self {
            name,
            footprint: Box::new(footprint),
            pod,
            stores: [RuleStore::Nft, RuleStore::Legacy, RuleStore::Nft],
            connect: None,
            has_gateway_address: false,
            restores_tables: false,
            is_repaired: false,
        }
    }
}

/// Cluster with a plugin.
struct Stage {
    cluster: Cluster,
    plugin: Plugin,
    footprints: Vec<Footprint>,
    pods: Vec<Namespace>,
    /// Configuration of each node without the agent.
    before: Vec<Dump>,
    /// Table `filter` of each node without the agent, if the plugin restores it.
    saved: Vec<[String; 2]>,
    /// Namespaces of workloads that agents attach.
    workloads: Vec<Namespace>,
    _servers: Vec<EchoServer>,
    _router: Option<Namespace>,
}

impl Stage {
    /// Creates the objects of the plugin, and starts the agents afterwards.
    fn start(plugin: Plugin) -> Self {
        let options = Options { nodes: 3, modes: modes::NATIVE.to_vec(), ..Options::default() };
        let mut cluster = Cluster::start_control(&options).unwrap();
        let pods: Vec<_> =
            NODES.iter().map(|index| Namespace::new(&format!("pod{index}")).unwrap()).collect();
        let footprints: Vec<_> = NODES.iter().map(|index| (plugin.footprint)(*index)).collect();
        let router = plugin.connect.map(|connect| connect(&cluster.topology, &pods));
        for (number, (footprint, pod)) in footprints.iter().zip(&pods).enumerate() {
            let node = cluster.place(node_name(number)).unwrap();
            if router.is_none() {
                netns::join((node, &footprint.host), (pod, "eth0")).unwrap();
            }
            footprint.install(node, pod, plugin.stores[number]);
        }
        let servers =
            pods.iter().zip(BACKENDS).map(|(pod, name)| EchoServer::start(pod, name, PORT).unwrap());
        let servers = servers.collect();
        let nodes = (0..NODES.len()).map(|number| (number, cluster.place(node_name(number)).unwrap()));
        let before = nodes.clone().map(|(_, node)| dump(node)).collect();
        let saving = nodes.filter(|_| plugin.restores_tables);
        let saved =
            saving.map(|(number, node)| footprint::saved_rules(node, plugin.stores[number], "filter"));
        let saved = saved.collect();
        for number in 0..NODES.len() {
            cluster.start_agent(node_name(number)).unwrap();
        }
        for number in 0..NODES.len() {
            cluster.wait_agent_ready(node_name(number)).unwrap();
        }
        cluster.wait_converged().unwrap();
        let workloads = NODES.map(|index| Namespace::new(&format!("own{index}")).unwrap()).to_vec();
        Self {
            cluster,
            plugin,
            footprints,
            pods,
            before,
            saved,
            workloads,
            _servers: servers,
            _router: router,
        }
    }

    fn node(&self, number: usize) -> &Namespace {
        self.cluster.place(node_name(number)).unwrap()
    }

    /// Runs a command of the agent of a node on its machine.
    fn try_agent(&self, number: usize, arguments: &[&str]) -> anyhow::Result<String> {
        let program = binaries::find("tidegate-agent")?.display().to_string();
        let state = format!("--state-dir={}", self.cluster.state_directory(node_name(number)).display());
        self.node(number).run(&program, &[&[state.as_str()], arguments].concat())
    }

    /// Creates a Service with the pods as endpoints, a load balancer address, a workload network, and a workload on each node.
    fn publish(&self) -> SocketAddr {
        let cluster = &self.cluster;
        let mut objects = vec![pool("lan", &["172.17.8.220-172.17.8.229"]), advertisement("lan", &json!({}))];
        for (index, name) in NODES.into_iter().zip(BACKENDS) {
            let spec = json!({ "addresses": [(self.plugin.pod)(index)], "node": format!("node{index}") });
            let metadata = json!({ "name": name, "labels": { "app": "web" } });
            objects.push(json!({ "kind": "Workload", "metadata": metadata, "spec": spec }));
        }
        cluster.apply_objects(&objects).unwrap();
        cluster.apply(NETWORK).unwrap();
        let spec = json!({
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "loadBalancer": { "addresses": [VIP] }, "selector": { "app": "web" },
            "ports": [{ "name": "web", "port": 80, "targetPort": PORT },
                { "name": "dns", "protocol": "UDP", "port": 53, "targetPort": PORT }],
        });
        cluster.add_service("web", spec).unwrap();
        for (number, workload) in self.workloads.iter().enumerate() {
            let name = format!("client{number}");
            wait::until("the attachment", || {
                self.try_agent(number, &["attach", &name, "--netns", workload.name()])
            })
            .unwrap();
        }
        cluster.wait_verified("default/web").unwrap();
        at(cluster.cluster_ip("default/web", 0).unwrap(), 80)
    }

    /// Sends requests to the Service from pods, attached workloads and nodes, and from outside through the load balancer address and
    /// a node port.
    fn send(&self, service: SocketAddr) {
        for (number, index) in NODES.into_iter().enumerate() {
            let is_relayed = modes::NATIVE[number] == "userspace";
            for (place, from, has_address) in [
                ("pod", &self.pods[number], self.plugin.has_gateway_address),
                ("workload", &self.workloads[number], false),
                ("node", self.node(number), true),
            ] {
                if is_relayed && !has_address {
                    // A known fault: the kernel redirects to an IPv4 address of the inbound interface, and drops the packet without one.
                    Connection::open_within(from, service, SILENCE).unwrap_err();
                    continue;
                }
                expect_backends(from, service, &format!("from {place} {number}"));
                let reply = client::udp(from, at(service.ip(), 53));
                assert!(reply.is_ok(), "UDP from {place} {number}: {reply:?}");
            }
            let port = self.cluster.node_port("default/web", 0).unwrap();
            let address = topology::node_addresses(index)[0];
            expect_backends(self.cluster.place("client").unwrap(), at(address, port), "through a node port");
        }
        wait_reached(&self.cluster, &[vip()]);
        expect_backends(
            self.cluster.place("client").unwrap(),
            at(vip(), 80),
            "through the load balancer address",
        );
    }

    /// Asserts that only the node that owns the load balancer address answers for it.
    fn expect_one_announcer(&self) {
        let owner = wait_owner(&self.cluster, vip());
        assert_eq!(answerers(&self.cluster, vip()), BTreeSet::from([owner]));
    }

    /// Asserts that the nodes have all other objects as before the agents started. Returns the dumps.
    fn expect_unchanged(&self, when: &str) -> Vec<Dump> {
        let dumps: Vec<_> = (0..NODES.len()).map(|number| dump(self.node(number))).collect();
        for (number, (dump, before)) in dumps.iter().zip(&self.before).enumerate() {
            let changes = difference(&before.foreign, &dump.foreign);
            assert!(changes.is_empty(), "{when}, mode {}:\n{}", modes::NATIVE[number], changes.join("\n"));
        }
        dumps
    }

    /// Writes the rules of the plugin again while the agents run: removes and creates them, and restores the table `filter` that was
    /// saved before the agents started. Waits until the agents have repaired their rules, and asserts that each has
    /// all objects that it had.
    fn write_rules_again(&self, dumps: &[Dump]) {
        for (number, footprint) in self.footprints.iter().enumerate() {
            let store = self.plugin.stores[number];
            footprint.remove_rules(self.node(number), store);
            footprint.create_rules(self.node(number), store);
            if let Some(saved) = self.saved.get(number) {
                footprint::replace_table(self.node(number), store, saved);
            }
        }
        for (number, before) in dumps.iter().enumerate() {
            wait::until("the objects of the agent", || {
                let changes = difference(&before.own, &dump(self.node(number)).own);
                anyhow::ensure!(
                    changes.is_empty(),
                    "mode {}:\n{}",
                    modes::NATIVE[number],
                    changes.join("\n")
                );
                Ok(())
            })
            .unwrap();
        }
    }

    /// Returns the number of repairs by the agent in iptables mode.
    fn repairs(&self) -> u64 {
        let number = modes::NATIVE.iter().position(|mode| *mode == "iptables").unwrap();
        self.cluster.agent_counter(node_name(number), "driftRepairs").unwrap()
    }

    /// Asserts that `tidegate-agent doctor` names the plugin on each node, and the conflict with the workload network.
    fn expect_named(&self) {
        for (number, mode) in modes::NATIVE.into_iter().enumerate() {
            // The command fails if another check does.
            let program = binaries::find("tidegate-agent").unwrap();
            let command = format!("{} doctor -o json --mode {mode} || true", program.display());
            let text = self.node(number).run("sh", &["-c", &command]).unwrap();
            let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
            let found: Vec<_> =
                findings.iter().filter(|finding| finding["check"] == "foreign-network").collect();
            let messages: Vec<_> = found.iter().map(|finding| finding["message"].as_str().unwrap()).collect();
            let is_named = |message: &&str| {
                message.starts_with(self.plugin.name) && message.contains(" attaches workloads here (")
            };
            assert!(!messages.is_empty() && messages.iter().all(is_named), "{messages:?}");
            assert!(found.iter().all(|finding| finding["state"] == "Warning"), "{found:?}");
        }
    }

    /// Ends the agents and removes their objects, after which the nodes are as before.
    fn clean_up(mut self) {
        for agent in self.cluster.agents.values_mut() {
            agent.terminate().unwrap();
        }
        for (number, mode) in modes::NATIVE.into_iter().enumerate() {
            self.try_agent(number, &["cleanup", "--node=node", "--mode", mode]).unwrap();
        }
        for dump in self.expect_unchanged("after the cleanup") {
            assert_eq!(dump.own, dump::Sections::new());
        }
    }
}

/// Names of the pods in replies.
const BACKENDS: [&str; 3] = ["pod-1", "pod-2", "pod-3"];

fn node_name(number: usize) -> &'static str {
    ["node1", "node2", "node3"][number]
}

fn vip() -> IpAddr {
    VIP.parse().unwrap()
}

/// Connects until each pod has replied.
fn expect_backends(from: &Namespace, to: SocketAddr, place: &str) {
    let mut missing: BTreeSet<_> = BACKENDS.into();
    // The probability that one of three is not among 100 is below 1e-17.
    for _ in 0..100 {
        let reply = client::tcp(from, to).unwrap_or_else(|error| panic!("{place}: {error:#}"));
        missing.remove(reply.backend.as_str());
        if missing.is_empty() {
            return;
        }
    }
    panic!("{place}: {missing:?} never replied");
}

/// Runs the agents beside a plugin: the objects of the plugin and all others stay byte by byte as they are, the Service works, the
/// agents keep their objects while the plugin writes its rules again, and nothing of the agents is left after the cleanup.
fn coexist(plugin: Plugin) {
    let stage = Stage::start(plugin);
    let service = stage.publish();
    stage.send(service);
    stage.expect_one_announcer();
    let dumps = stage.expect_unchanged("beside the agents");
    stage.expect_named();
    let repairs = stage.repairs();
    stage.write_rules_again(&dumps);
    stage.send(service);
    stage.expect_unchanged("after the rules were written again");
    assert_eq!(stage.repairs() > repairs, stage.plugin.is_repaired, "repairs in iptables mode");
    stage.clean_up();
}

fn routed(network: &str, index: u8) -> String {
    format!("{network}.{index}.2")
}

/// F133, F161: flannel, whose rules are in tables of its own, in those of iptables-nft, and in those of iptables-legacy.
#[test]
fn f133_f161_agents_and_flannel_leave_each_other_alone() {
    let flannel = Plugin::new("flannel", flannel::footprint, |index| routed("10.244", index));
    let stores = [RuleStore::Native, RuleStore::Nft, RuleStore::Legacy];
    coexist(Plugin { stores, has_gateway_address: true, ..flannel });
}

/// F133: Calico with VXLAN.
#[test]
fn f133_agents_and_calico_leave_each_other_alone() {
    coexist(Plugin::new("Calico", calico::footprint, |index| routed("192.168", index)));
}

/// F133: Canal.
#[test]
fn f133_agents_and_canal_leave_each_other_alone() {
    let canal = Plugin::new("Canal", calico::canal, |index| routed("10.244", index));
    coexist(Plugin { stores: [RuleStore::Legacy, RuleStore::Nft, RuleStore::Legacy], ..canal });
}

/// F133: Cilium.
#[test]
fn f133_agents_and_cilium_leave_each_other_alone() {
    let cilium = Plugin::new("Cilium", cilium::footprint, |index| format!("10.0.{index}.57"));
    coexist(Plugin { is_repaired: true, ..cilium });
}

/// F133: Kube-OVN.
#[test]
fn f133_agents_and_kube_ovn_leave_each_other_alone() {
    let kube_ovn = Plugin::new("Kube-OVN", kube_ovn::footprint, |index| format!("10.16.0.{}", index + 1));
    coexist(Plugin {
        stores: [RuleStore::Legacy, RuleStore::Nft, RuleStore::Legacy],
        connect: Some(kube_ovn::connect),
        has_gateway_address: true,
        ..kube_ovn
    });
}

/// F131, F133: kube-router with the default settings of ARP. The load balancer address is announced by its owner alone. A table that
/// kube-router restores has no rules of the agent, which writes them again.
#[test]
fn f131_f133_agents_and_kube_router_leave_each_other_alone() {
    let kube_router = Plugin::new("kube-router", kube_router::footprint, |index| routed("10.244", index));
    coexist(Plugin { has_gateway_address: true, restores_tables: true, is_repaired: true, ..kube_router });
}

/// F131: kube-router with its service proxy, which has virtual addresses of its own on an interface of each node, and sets `arp_ignore` and
/// `arp_announce` itself. The agents leave these settings, and the owner of the load balancer address alone answers for it.
#[test]
fn f131_load_balancer_addresses_are_announced_beside_the_proxy_of_kube_router() {
    let mut plugin = Plugin::new("kube-router", kube_router::footprint, |index| routed("10.244", index));
    plugin.has_gateway_address = true;
    plugin.footprint = Box::new(|index| {
        let mut footprint = kube_router::footprint(index);
        kube_router::add_proxy(&mut footprint, &["10.112.0.1", "172.17.8.240"]);
        footprint
    });
    let stage = Stage::start(plugin);
    let service = stage.publish();
    stage.send(service);
    stage.expect_one_announcer();
    stage.expect_unchanged("beside the proxy");
    stage.clean_up();
}
