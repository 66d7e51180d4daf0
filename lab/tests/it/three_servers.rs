//! Test of the five commands in the README that create a cluster of three control servers with TLS, followed
//! by the failure of one of the three machines.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers, and then says what others said"
)]

mod certificates;
mod page;
mod stage;

use std::{fs, net::SocketAddr};

use anyhow::{Context, ensure};
use lab::{
    cluster::control::{Http, number},
    host::wait,
    network::{
        client::{self, Connection},
        echo::EchoServer,
    },
};
use page::{Typed, commands};
use serde_json::{Value, json};
use stage::Stage;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const HEADING: &str = "## Three control servers, with TLS";
/// Machines of the control servers: names and last octets of their addresses.
const CONTROL: [(&str, u8); 3] = [("control1", 1), ("control2", 2), ("control3", 3)];
/// Address of the agent's HTTP endpoint.
const AGENT: &str = "127.0.0.1:7441";

/// Commands of the README, in the order in which it lists them.
struct Commands {
    server: String,
    authority: String,
    exports: String,
    join_token: String,
    agent: String,
}

impl Commands {
    fn read() -> Self {
        let typed = commands(&fs::read_to_string(README).unwrap(), HEADING);
        let texts: Vec<_> = typed.iter().map(|Typed { is_root, text }| (*is_root, text.clone())).collect();
        let [(true, server), (false, authority), (false, exports), (false, join_token), (true, agent)] =
            &texts[..]
        else {
            panic!("the README leads there by five commands, the first and the last of root: {typed:#?}");
        };
        let [server, authority, exports, join_token, agent] =
            [server, authority, exports, join_token, agent].map(Clone::clone);
        Self { server, authority, exports, join_token, agent }
    }

    /// Returns the assignment of the environment variable with the URLs of the control servers.
    fn servers(&self) -> &str {
        let word = self.exports.split_whitespace().find(|word| word.starts_with("TIDEGATE_API="));
        word.expect("the README exports where the servers are")
    }
}

/// Machines of the control servers, machine of a user, and a node.
struct Cluster {
    stage: Stage,
    commands: Commands,
    _backend: EchoServer,
}

impl Cluster {
    /// Starts the control servers and creates a join token by the first four commands of the README.
    /// `variables` are additional environment variables of the servers.
    fn start(variables: &str) -> Self {
        let mut commands = Commands::read();
        commands.server = format!("env {variables} {}", commands.server);
        let mut stage = Stage::new();
        for (machine, host) in CONTROL.into_iter().chain([("node-1", 11), ("backend", 21), ("user", 31)]) {
            stage.add(machine, host);
        }
        let backend = EchoServer::start(stage.place("backend"), "web-1", 8080).unwrap();
        stage.start_etcd(&CONTROL);
        let (first, others) = CONTROL.split_first().unwrap();
        stage.start(first.0, "server", &commands.server);
        let token = stage.file(first.0, "bootstrap-token");
        let ready = || fs::metadata(&token).context("there is no token");
        stage.program(first.0, "server").wait_ready(ready).unwrap();
        fs::copy(&token, stage.file("user", "bootstrap-token")).unwrap();
        for (machine, host) in others {
            let here = commands.server.replace("--listen 10.0.0.1:", &format!("--listen 10.0.0.{host}:"));
            assert_ne!(here, commands.server, "the README says where the first of them listens");
            stage.start(machine, "server", &here);
        }
        wait::until("the authority's certificate", || stage.run("user", &commands.authority)).unwrap();
        let cluster = Self { stage, commands, _backend: backend };
        cluster.compare_pin();
        let join = cluster.commands.join_token.clone();
        cluster.tidegate(&join).unwrap();
        fs::copy(cluster.stage.file("user", "join-token"), cluster.stage.file("node-1", "join-token"))
            .unwrap();
        cluster
    }

    /// Starts the agent by the last command of the README.
    fn start_agent(&mut self) {
        let agent = format!("env {} {}", self.commands.servers(), self.commands.agent);
        self.stage.start("node-1", "agent", &agent);
        let http = self.agent();
        let program = self.stage.program("node-1", "agent");
        program.wait_ready(|| http.get("/healthz")?.success().map(drop)).unwrap();
    }

    /// Asserts that the hash of the downloaded CA certificate is the one in the server log, a comparison that
    /// the README recommends to users.
    fn compare_pin(&self) {
        let hash = "openssl x509 -in ca.pem -outform der | sha256sum | cut -d ' ' -f 1";
        let hash = self.stage.run("user", hash).unwrap();
        let log = fs::read_to_string(self.stage.file("control1", "server.log")).unwrap();
        let pin = format!("sha256:{}", hash.trim());
        assert!(
            log.lines().any(|line| line.contains("pin=") && line.contains(&pin)),
            "{pin} is not in\n{log}"
        );
    }

    /// Runs a `tidegate` command with the environment variables that the README exports, and returns its
    /// output.
    fn tidegate(&self, command: &str) -> anyhow::Result<String> {
        self.stage.run("user", &format!("{}\n{command}", self.commands.exports))
    }

    /// Applies an object with the CLI.
    fn apply(&self, file: &str, object: &Value) {
        fs::write(self.stage.file("user", file), object.to_string()).unwrap();
        self.tidegate(&format!("tidegate apply -f {file}")).unwrap();
    }

    /// Creates a Service with one endpoint, waits until the node has programmed it, and returns its virtual
    /// address and port.
    fn serve(&self, name: &str) -> SocketAddr {
        let service = json!({"kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
        let endpoints = json!({"kind": "EndpointSet", "metadata": {"name": name},
            "spec": {"service": name, "endpoints": [{"address": "10.0.0.21"}]}});
        self.apply(&format!("{name}.json"), &json!([service, endpoints]));
        self.tidegate(&format!("tidegate wait service {name} --quiet")).unwrap();
        let service = self.tidegate(&format!("tidegate get service {name} -o json")).unwrap();
        let service: Value = serde_json::from_str(&service).unwrap();
        client::socket_address(&format!("{}:80", service["spec"]["clusterIP"].as_str().unwrap())).unwrap()
    }

    fn agent(&self) -> Http {
        Http::new(self.stage.place("node-1"), AGENT.parse().unwrap())
    }

    /// Returns the name of the control server from which the agent receives the state of the cluster.
    fn state_from(&self) -> anyhow::Result<&'static str> {
        let state = self.agent().get_json("/v1/state")?;
        let servers = state["control"].as_array().context("the agent says nothing of control")?;
        let url = servers.iter().find(|server| server["stream"] == "state").context("there is no stream")?;
        let machine = CONTROL.iter().find(|(_, host)| url["url"] == format!("https://10.0.0.{host}:7440"));
        Ok(machine.with_context(|| format!("{url} is no server of ours"))?.0)
    }

    /// Asserts that the server's metrics include the number and the durations of its requests to etcd.
    fn expect_figures_of_etcd(&self) {
        let bearer = "-H \"Authorization: Bearer $(cat bootstrap-token)\"";
        let ask = format!("curl -sS --cacert ca.pem {bearer} https://10.0.0.1:7440/metrics");
        let metrics = self.stage.run("user", &ask).unwrap();
        for name in ["store_calls", "store_call_time_seconds", "store_commits", "store_commit_time_seconds"] {
            let line = metrics.lines().find(|line| line.starts_with(&format!("tidegate_{name}_total ")));
            assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{name}: {line:?}");
        }
    }

    /// Revokes the certificate of the node, whose agent says so, and gives it a new join token: the agent joins again
    /// without a restart.
    fn revoke_and_join_again(&self) {
        let (server, host) =
            CONTROL.into_iter().find(|(name, _)| *name == self.state_from().unwrap()).unwrap();
        let bearer = "-H \"Authorization: Bearer $(cat bootstrap-token)\"";
        let certificate = format!("https://10.0.0.{host}:7440/v1/agents/node-1/certificate");
        self.stage
            .run("user", &format!("curl -fsS --cacert ca.pem {bearer} -X DELETE {certificate}"))
            .unwrap();
        let warnings =
            || -> anyhow::Result<String> { Ok(self.agent().get_json("/v1/state")?["warnings"].to_string()) };
        wait::until(&format!("the agent to say that {server} revoked its certificate"), || {
            let text = warnings()?;
            ensure!(text.contains("was revoked") && text.contains("join token"), "{text}");
            Ok(())
        })
        .unwrap();
        self.tidegate("tidegate node join-token node-1 > join-token").unwrap();
        fs::copy(self.stage.file("user", "join-token"), self.stage.file("node-1", "join-token")).unwrap();
        wait::until("the agent to join again", || {
            let text = warnings()?;
            ensure!(!text.contains("was revoked"), "{text}");
            self.state_from()
        })
        .unwrap();
    }

    /// Returns the number of kernel transactions of the agent.
    fn kernel_writes(&self) -> u64 {
        let state = self.agent().get_json("/v1/state").unwrap();
        number(&state, "/counters/kernelTransactions").unwrap()
    }

    /// Makes a kernel change on the node that is unrelated to Tidegate, with `mark` in its name. Returns all
    /// kernel events that `nft monitor` has reported up to this change.
    fn told(&mut self, mark: &str) -> String {
        let node = self.stage.place("node-1").clone();
        let monitor = self.stage.program("node-1", "monitor");
        wait::until("the monitor to tell a change", || {
            // The monitor may not be listening yet, so the change is repeated.
            node.run("nft", &["add", "table", "ip", mark])?;
            node.run("nft", &["delete", "table", "ip", mark])?;
            let told = monitor.log();
            ensure!(told.contains(&format!("add table ip {mark}")), "it told: {told}");
            Ok(told)
        })
        .unwrap()
    }
}

/// F002: in a cluster made by the five commands of the README, CLI and agent continue with another control
/// server when the machine of the current one fails. An open connection survives, the failure causes no
/// kernel write on the node, and a later change reaches the node.
#[test]
fn f002_the_five_commands_of_the_readme_lead_to_a_cluster_that_survives_any_of_its_servers() {
    let mut cluster = Cluster::start("");
    cluster.start_agent();
    let to = cluster.serve("web");
    let node = cluster.stage.place("node-1").clone();
    let mut connection = Connection::open(&node, to).unwrap();
    assert_eq!(connection.reply.backend, "web-1");
    let status = cluster.tidegate("tidegate status").unwrap();
    assert_eq!(
        CONTROL.iter().filter(|(name, _)| status.contains(&format!("replica {name}"))).count(),
        3,
        "{status}"
    );
    assert_eq!(status.matches("leads").count(), 1, "{status}");

    cluster.expect_figures_of_etcd();

    cluster.stage.start("node-1", "monitor", "stdbuf -oL nft monitor");
    cluster.told("before");
    let (gone, writes) = (cluster.state_from().unwrap(), cluster.kernel_writes());
    for program in ["server", "etcd"] {
        cluster.stage.program(gone, program).kill();
    }
    let next = wait::until("the agent to take its state from another server", || {
        let next = cluster.state_from()?;
        ensure!(next != gone, "it is {gone} still");
        Ok(next)
    })
    .unwrap();
    connection.exchange("after the server has gone").unwrap();
    assert_eq!(client::tcp(&node, to).unwrap().backend, "web-1");
    let status =
        wait::until("the command to find the others", || cluster.tidegate("tidegate status -o json"));
    assert_eq!(serde_json::from_str::<Value>(&status.unwrap()).unwrap()["nodes"]["converged"], 1);
    let told = cluster.told("after");
    let meanwhile = told.split("add table ip before").nth(1).unwrap();
    assert!(!meanwhile.contains("tidegate"), "the kernel was written because of a fail-over: {meanwhile}");
    assert_eq!(cluster.kernel_writes(), writes);

    let late = cluster.serve("late");
    assert_eq!(client::tcp(&node, late).unwrap().backend, "web-1");
    connection.exchange("after a further change").unwrap();
    assert!(cluster.told("late").split("add table ip after").nth(1).unwrap().contains("tidegate"));
    cluster.revoke_and_join_again();
    println!("the state came from {gone}, which was killed with its etcd, then from {next}");
}

/// F007: control servers publish themselves as endpoints of a Service, so that the API responds at a virtual
/// address on the node. A failed server is no longer an endpoint.
#[test]
fn f007_control_servers_publish_themselves_and_one_that_dies_is_left_out() {
    let mut cluster = Cluster::start("TIDEGATE_PUBLISH_AS=tidegate/control");
    cluster.start_agent();
    let ready = |cluster: &Cluster| -> anyhow::Result<(String, Value)> {
        let service = cluster.tidegate("tidegate get service control -n tidegate -o json")?;
        let service: Value = serde_json::from_str(&service)?;
        let address = service["spec"]["clusterIP"].as_str().context("it has no address")?.to_owned();
        Ok((address, service["status"]["endpoints"]["ready"].clone()))
    };
    let expect = |cluster: &Cluster, wanted: u64| {
        wait::until("so many control servers to be endpoints", || {
            let (address, found) = ready(cluster)?;
            ensure!(found == wanted, "{found} are, not {wanted}");
            Ok(address)
        })
        .unwrap()
    };
    let address = expect(&cluster, 3);
    // A server certificate contains only its own address, so clients of the virtual one name a server.
    let ask = format!("curl -ksS --max-time 5 --fail https://{address}/healthz");
    wait::until("the API at the virtual address", || cluster.stage.run("node-1", &ask)).unwrap();

    let gone = CONTROL.into_iter().find(|(name, _)| *name != cluster.state_from().unwrap()).unwrap().0;
    cluster.stage.program(gone, "server").kill();
    expect(&cluster, 2);
    for _ in 0..8 {
        cluster.stage.run("node-1", &ask).unwrap();
    }
}
