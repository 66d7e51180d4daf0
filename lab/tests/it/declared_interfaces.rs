//! Interfaces that Workloads declare: from the object in the store to packets of a virtual machine, a container and a machine
//! behind an interface of the node.

use std::{
    io::Read as _,
    net::IpAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{netns::Namespace, shell, wait},
    network::{
        client::{self, Connection, at},
        echo::EchoServer,
    },
    processes::binaries,
};
use serde_json::{Value, json};

/// Time in which a connection that must fail does not succeed.
const SILENCE: Duration = Duration::from_millis(300);
const POLICY: &str = "apiVersion: tidegate/v1
kind: NetworkPolicy
metadata: {name: clients-only}
spec:
  selector: {matchLabels: {app: web}}
  ingress:
  - from: [{workloadSelector: {matchLabels: {app: client}}}]
    ports: [{port: 8080}]
";

/// Process that carries frames between a TAP interface of a node and one of another namespace, as a virtual machine does.
struct VirtualMachine(Child);

impl VirtualMachine {
    fn start(node: &Namespace, interface: &str, guest: &Namespace) -> Self {
        const PROGRAM: &str = r"
import ctypes, fcntl, os, select, struct, sys
def tap(namespace, name):
    with open('/run/netns/' + namespace) as place:
        assert ctypes.CDLL(None).setns(place.fileno(), 0x40000000) == 0
    device = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(device, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1002))
    return device
ends = [tap(sys.argv[1], sys.argv[2]), tap(sys.argv[3], 'eth0')]
print('ready', flush=True)
while True:
    for end in select.select(ends, [], [])[0]:
        try:
            os.write(ends[1 - ends.index(end)], os.read(end, 65536))
        except OSError:
            pass
";
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM, node.name(), interface, guest.name()]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        Self(process)
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a network that permits the interfaces of the test, with a container namespace.
fn apply_network(cluster: &Cluster, container: &Namespace) {
    let network = json!({
        "apiVersion": "tidegate/v1", "kind": "WorkloadNetwork", "metadata": { "name": "pods" },
        "spec": {
            "cidrs": ["10.64.0.0/16", "fd64::/64"],
            "interfaces": { "names": ["tap*", "host0"], "networkNamespaces": [container.name()] },
        },
    });
    cluster.apply_objects(&[network]).unwrap();
}

fn workload(name: &str, app: &str, interface: &Value, addresses: &[String]) -> Value {
    json!({
        "apiVersion": "tidegate/v1", "kind": "Workload", "metadata": { "name": name, "labels": { "app": app } },
        "spec": { "node": "node1", "interface": interface, "addresses": addresses },
    })
}

/// Sends a Workload to the API, as a user does, and returns the answer.
fn post(cluster: &Cluster, workload: &Value) -> Value {
    let answer = cluster.api.send_json("POST", "/v1/namespaces/default/workloads", workload).unwrap();
    answer.success().unwrap().json()
}

fn delete(cluster: &Cluster, name: &str) {
    let path = format!("/v1/namespaces/default/workloads/{name}");
    cluster.api.send("DELETE", &path, &[], String::new()).unwrap().success().unwrap();
}

/// Waits until the Node has configured the interface of a Workload, and returns the addresses of the Workload.
fn configured(cluster: &Cluster, name: &str) -> Vec<IpAddr> {
    wait::until("the configured interface", || {
        let found = cluster.object(&format!("namespaces/default/workloads/{name}"))?;
        let condition = programmed(&found)?;
        anyhow::ensure!(condition["status"] == "True", "{condition}");
        let addresses: Vec<IpAddr> = serde_json::from_value(found["spec"]["addresses"].clone())?;
        anyhow::ensure!(addresses.len() == 2, "{found}");
        Ok(addresses)
    })
    .unwrap()
}

fn programmed(workload: &Value) -> anyhow::Result<Value> {
    let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "Programmed");
    found.ok_or_else(|| anyhow::anyhow!("no condition Programmed: {workload}"))
}

/// Gives the interface of a machine its addresses and the default routes over the node.
fn configure(machine: &Namespace, addresses: &[IpAddr]) {
    let mut lines = vec!["link set eth0 up".to_owned(), "route add 169.254.1.1 dev eth0".to_owned()];
    lines.extend(addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => format!("addr add {v4}/32 dev eth0"),
        IpAddr::V6(v6) => format!("addr add {v6}/128 dev eth0 nodad"),
    }));
    lines.push("route add default via 169.254.1.1 dev eth0".to_owned());
    lines.push("-6 route add default via fe80::ecee:eeff:feee:eeee dev eth0".to_owned());
    for line in lines {
        machine.run("ip", &line.split_whitespace().collect::<Vec<_>>()).unwrap();
    }
}

/// Returns the links, addresses, routes and kernel parameters of an interface of a node, in order.
fn settings(node: &Namespace, interface: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in [
        format!("-o addr show dev {interface}"),
        format!("route show table all dev {interface}"),
        format!("-6 route show table all dev {interface}"),
        "route show proto 116".to_owned(),
        "-6 route show proto 116".to_owned(),
        "-o link".to_owned(),
    ] {
        let words: Vec<_> = part.split_whitespace().collect();
        let text = node.run("ip", &words).unwrap();
        // The queue of a link that was never up has another name than one that is down again.
        lines.extend(text.lines().map(|line| line.split(" qdisc ").next().unwrap_or_default().to_owned()));
    }
    for kind in ["ipv4", "ipv6"] {
        let pattern = format!("^net.{kind}.(conf|neigh).{interface}.");
        lines.extend(node.run("sysctl", &["-a", "-r", &pattern]).unwrap().lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

fn agent(cluster: &Cluster, node: &str, arguments: &[&str]) -> String {
    let program = binaries::find("tidegate-agent").unwrap().display().to_string();
    let state = format!("--state-dir={}", cluster.state_directory(node).display());
    wait::until("the command of the agent", || shell::run(&program, &[&[state.as_str()], arguments].concat()))
        .unwrap()
}

/// Attaches a client on the second node, and waits for its record.
fn client(cluster: &Cluster, app: &str) -> Namespace {
    let namespace = Namespace::new(app).unwrap();
    agent(
        cluster,
        "node2",
        &["attach", app, "--netns", namespace.name(), "--workload-label", &format!("app={app}")],
    );
    wait::until("the record of the client", || {
        let found = cluster.object(&format!("namespaces/default/workloads/{app}"))?;
        anyhow::ensure!(found["spec"]["addresses"].as_array().is_some_and(|all| all.len() == 2), "{found}");
        Ok(())
    })
    .unwrap();
    namespace
}

fn two_nodes(container: &Namespace) -> Cluster {
    let cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    apply_network(&cluster, container);
    cluster
}

/// F150: a Workload that is posted to the API with a TAP interface of a node makes the agent configure the interface, and
/// packets flow to the virtual machine behind it; an interface that the node needs is refused. The deletion of the Workload
/// leaves the node as it was, and the interface in place. Neither a restart of the agent nor one of the control server changes
/// anything.
#[test]
fn f150_a_declared_interface_is_configured_and_its_deletion_undoes_it() {
    let guest = Namespace::new("guest").unwrap();
    let mut cluster = two_nodes(&guest);
    let node = cluster.place("node1").unwrap().clone();
    let _machine = VirtualMachine::start(&node, "tap0", &guest);
    let client = client(&cluster, "client");
    let before = settings(&node, "tap0");

    let tap = json!({ "network": "pods", "kind": "Tap", "name": "tap0" });
    post(&cluster, &workload("vm", "web", &tap, &[]));
    let addresses = configured(&cluster, "vm");
    configure(&guest, &addresses);
    let server = EchoServer::start(&guest, "vm", 8080).unwrap();
    for address in &addresses {
        let reply =
            wait::until("a reply of the virtual machine", || client::tcp(&client, at(*address, 8080)))
                .unwrap();
        assert_eq!(reply.backend, "vm");
        let route = node.run("ip", &["route", "get", &address.to_string()]).unwrap();
        assert!(route.contains("dev tap0"), "{route}");
    }
    let listed = cluster.object("attachments").unwrap();
    let items = listed["items"].as_array().unwrap();
    assert!(
        items.iter().any(|item| item["spec"]["declared"] == true && item["spec"]["kind"] == "Tap"),
        "{listed}"
    );

    let configured_settings = settings(&node, "tap0");
    cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
    cluster.server.kill();
    cluster.start_agent_again("node1").unwrap();
    for address in &addresses {
        wait::until("a reply without a control server", || client::tcp(&client, at(*address, 8080))).unwrap();
    }
    assert_eq!(settings(&node, "tap0"), configured_settings);
    cluster.start_control_again().unwrap();

    // The interface of the node itself is not permitted by the network, and refused by the agent if it is.
    let uplink = json!({ "network": "pods", "kind": "Host", "name": "eth0" });
    let refused = cluster
        .api
        .send_json("POST", "/v1/namespaces/default/workloads", &workload("uplink", "web", &uplink, &[]))
        .unwrap();
    assert_eq!(refused.status, 422, "{:?}", refused.json());
    let network = json!({
        "apiVersion": "tidegate/v1", "kind": "WorkloadNetwork", "metadata": { "name": "pods" },
        "spec": { "cidrs": ["10.64.0.0/16", "fd64::/64"], "interfaces": { "names": ["*"] } },
    });
    cluster.apply_objects(&[network]).unwrap();
    post(&cluster, &workload("uplink", "web", &uplink, &[]));
    wait::until("the refusal of the agent", || {
        let condition = programmed(&cluster.object("namespaces/default/workloads/uplink")?)?;
        anyhow::ensure!(condition["reason"] == "InterfaceRefused", "{condition}");
        Ok(())
    })
    .unwrap();
    client::tcp(&client, at(addresses[0], 8080)).unwrap();
    delete(&cluster, "uplink");

    drop(server);
    delete(&cluster, "vm");
    wait::until("the former settings of the node", || {
        let now = settings(&node, "tap0");
        anyhow::ensure!(now == before, "{now:#?} is not {before:#?}");
        Ok(())
    })
    .unwrap();
    wait::until("no record", || {
        let listed = cluster.object("attachments")?;
        anyhow::ensure!(listed["items"].as_array().is_some_and(|items| items.len() == 1), "{listed}");
        Ok(())
    })
    .unwrap();
}

/// F159: one policy and the blocks of the nodes cover a virtual machine behind a TAP interface, a container and a machine behind
/// another interface of the node, without a route or address that is set on the node by hand: the client of another node that the
/// policy names connects to each, in both families; another client does not, nor does the first one to another port.
#[test]
fn f159_one_policy_and_the_block_routes_cover_a_tap_a_container_and_a_host_interface() {
    let [guest, container, metal] = ["guest", "container", "metal"].map(|role| Namespace::new(role).unwrap());
    let cluster = two_nodes(&container);
    let node = cluster.place("node1").unwrap().clone();
    let _machine = VirtualMachine::start(&node, "tap0", &guest);
    node.ip(&[format!("link add host0 type veth peer name eth0 netns {}", metal.name())]).unwrap();
    for (name, interface) in [
        ("vm", json!({ "network": "pods", "kind": "Tap", "name": "tap0" })),
        ("metal", json!({ "network": "pods", "kind": "Host", "name": "host0" })),
        (
            "container",
            json!({ "network": "pods", "kind": "Veth", "name": "eth0", "networkNamespace": container.name() }),
        ),
    ] {
        post(&cluster, &workload(name, "web", &interface, &[]));
    }
    let [vm, bare, inside] = ["vm", "metal", "container"].map(|name| configured(&cluster, name));
    configure(&guest, &vm);
    configure(&metal, &bare);
    cluster.apply(POLICY).unwrap();
    let (named, stranger) = (client(&cluster, "client"), client(&cluster, "stranger"));
    let targets = [(&guest, "vm", vm), (&metal, "metal", bare), (&container, "container", inside)];
    let _servers: Vec<_> = targets
        .iter()
        .flat_map(|(place, name, _)| [8080, 8081].map(|port| EchoServer::start(place, name, port).unwrap()))
        .collect();
    for (_, name, addresses) in &targets {
        for address in addresses {
            let reply = wait::until("a reply", || client::tcp(&named, at(*address, 8080))).unwrap();
            assert_eq!(reply.backend, *name);
            let blocked =
                |from: &Namespace, port| Connection::open_within(from, at(*address, port), SILENCE).is_err();
            wait::until_true("the policy of the workload", || blocked(&stranger, 8080)).unwrap();
            assert!(blocked(&named, 8081), "{name} {address}");
        }
    }
    // Without the policy, all connect: the routes are those of the blocks.
    let policy = "/v1/namespaces/default/networkpolicies/clients-only";
    cluster.api.send("DELETE", policy, &[], String::new()).unwrap().success().unwrap();
    for (_, name, addresses) in &targets {
        for address in addresses {
            for port in [8080, 8081] {
                let reply = wait::until("a reply", || client::tcp(&stranger, at(*address, port))).unwrap();
                assert_eq!(reply.backend, *name);
            }
        }
    }
}
