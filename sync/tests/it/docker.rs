//! Tests of the source `docker` with a real Docker engine, control server and agent in a separate network
//! namespace.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::{Value, json};

use crate::support::{Api, Sync, docker::Engine, eventually, in_namespace};

/// Agent process of the Node that the test's network namespace represents.
struct Agent(Child, #[allow(dead_code, reason = "it goes with the agent")] tempfile::TempDir);

impl Agent {
    fn start(api: &Api) -> Self {
        let state = tempfile::tempdir().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_tidegate-sync")).with_file_name("tidegate-agent");
        assert!(binary.exists(), "tidegate-agent is not built: cargo build -p node-agent");
        let child = Command::new(binary)
            .args(["--api", &api.url, "--node", "n1", "--listen", "127.0.0.1:7441", "--state-dir"])
            .arg(state.path())
            .stdout(Stdio::null())
            .stderr(File::create(state.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        Self(child, state)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn workload(api: &Api, name: &str) -> Value {
    api.get(&format!("/v1/namespaces/default/workloads/n1.{name}"))["spec"].clone()
}

fn is_phase(phase: &'static str, is_ready: bool) -> impl Fn(&Value) -> bool {
    move |spec| spec["phase"] == phase && spec["ready"] == is_ready
}

/// Workloads and the backends of the Service's address follow containers that start, stop, are killed, change
/// their health, or join networks or other containers, also after a restart of the engine.
#[test]
fn f027_containers_of_a_real_engine_become_endpoints_and_the_service_s_address_follows_them() {
    in_namespace("dock", || {
        let mut engine = Engine::start();
        let api = Api::memory();
        let _agent = Agent::start(&api);
        let arguments =
            ["docker", "--socket", &engine.socket(), "--node", "n1", "--node-address", "192.0.2.1"];
        let sync = Sync::start(&api.url, &arguments);

        engine.run("one", &["--no-healthcheck", "--label", "tidegate.port=8080:80"]);
        let address = || {
            api.get("/v1/namespaces/default/services/web")["spec"]["clusterIP"].as_str().map(str::to_owned)
        };
        let address = eventually("the Service is made", address, Option::is_some).unwrap();
        let service = format!("{address}:8080");
        let ask = || engine.ask(&service);
        eventually("the container answers for the Service", ask, |name| name.as_deref() == Some("one"));

        engine.run("two", &["--no-healthcheck"]);
        eventually("the second answers as well", ask, |name| name.as_deref() == Some("two"));
        stopped_containers_take_no_connections_before_they_end(&engine, &api);
        eventually("the first answers", ask, |name| name.as_deref() == Some("one"));

        engine.docker(&["kill", "one"]);
        eventually("it has failed", || workload(&api, "one"), is_phase("Failed", false));
        eventually("nobody answers", ask, Option::is_none);
        engine.docker(&["restart", "--time", "0", "one"]);
        eventually("it answers again", ask, |name| name.as_deref() == Some("one"));

        health_decides_about_readiness(&engine, &api);
        networks_decide_about_addresses(&engine, &api, &sync);
        let before = workload(&api, "one");
        restarts_of_the_engine_take_nothing_away(&mut engine, &api, &sync);
        engine.docker(&["start", "one"]);
        eventually("it runs again", || workload(&api, "one")["phase"].clone(), |phase| phase == "Running");
        assert_eq!(workload(&api, "one")["node"], before["node"]);
        eventually("it answers again", || engine.ask(&service), |name| name.as_deref() == Some("one"));

        // An engine without any containers requires confirmation; but ended containers get no connections.
        engine.docker(&["rm", "--force", "one", "two"]);
        eventually("nobody answers", || engine.ask(&service), Option::is_none);
        eventually("it is held", || sync.trouble(), |text| text.contains("wait for confirmation"));
        assert_eq!(workload(&api, "one")["addresses"], json!([]));
        sync.confirm();
        eventually("what is removed goes", || api.names("workloads"), Vec::is_empty);
    });
}

/// A container that received a stop signal gets no connections, even while its process still runs and
/// responds.
fn stopped_containers_take_no_connections_before_they_end(engine: &Engine, api: &Api) {
    thread::scope(|scope| {
        let stop = scope.spawn(|| engine.docker(&["stop", "--time", "4", "two"]));
        eventually("it terminates", || workload(api, "two"), is_phase("Terminating", false));
        assert!(!stop.is_finished(), "it is not ended yet");
        stop.join().unwrap();
    });
    eventually("the process has ended", || workload(api, "two"), is_phase("Failed", false));
}

fn health_decides_about_readiness(engine: &Engine, api: &Api) {
    engine.run("checked", &[]);
    let seen = || workload(api, "checked");
    eventually("it becomes healthy", seen, is_phase("Running", true));
    engine.docker(&["exec", "checked", "/program", "sick"]);
    eventually("it becomes ill", seen, is_phase("Running", false));
    engine.docker(&["exec", "checked", "/program", "well"]);
    eventually("it becomes well", seen, is_phase("Running", true));
    engine.docker(&["pause", "checked"]);
    eventually("it is paused", seen, is_phase("Running", false));
    engine.docker(&["unpause", "checked"]);
    eventually("it goes on", seen, is_phase("Running", true));
    engine.docker(&["rm", "--force", "checked"]);
}

fn networks_decide_about_addresses(engine: &Engine, api: &Api, sync: &Sync) {
    engine.docker(&["network", "create", "--subnet", "172.31.7.0/24", "back"]);
    engine.run("both", &["--no-healthcheck", "--label", "tidegate.network=back"]);
    eventually(
        "it is reported",
        || sync.trouble(),
        |text| text.contains("both: it is not in network back, only in: bridge"),
    );
    engine.docker(&["network", "connect", "back", "both"]);
    let seen = || workload(api, "both")["addresses"][0].clone();
    eventually("it has its address there", seen, |address| address == "172.31.7.2");
    engine.run(
        "joined",
        &["--no-healthcheck", "--network", "container:both", "--label", "tidegate.network=back"],
    );
    eventually(
        "it has the other's",
        || workload(api, "joined")["addresses"][0].clone(),
        |address| address == "172.31.7.2",
    );
    engine.run("machine", &["--no-healthcheck", "--network", "host"]);
    eventually(
        "it has the machine's",
        || workload(api, "machine")["addresses"][0].clone(),
        |address| address == "192.0.2.1",
    );
    engine.docker(&["rm", "--force", "joined", "machine"]);
    engine.docker(&["network", "disconnect", "back", "both"]);
    eventually("it is reported", || sync.trouble(), |text| text.contains("both: it is not in network back"));
    engine.docker(&["rm", "--force", "both"]);
}

/// All objects stay while the engine is unreachable. After its restart no error about the engine is reported
/// anymore.
fn restarts_of_the_engine_take_nothing_away(engine: &mut Engine, api: &Api, sync: &Sync) {
    eventually("what was removed has gone", || api.names("workloads").len(), |count| *count == 2);
    engine.stop();
    eventually("it is noticed", || sync.trouble(), |text| text.contains("engine:"));
    assert_eq!(api.names("workloads").len(), 2);
    engine.restart();
    eventually("the engine is followed again", || sync.trouble(), |text| !text.contains("engine:"));
}

/// If containers join the network of another container, each of their ports becomes one endpoint at the
/// address of that container. If that container is removed, a problem is reported for the joined ones.
#[test]
fn f024_containers_that_share_a_network_are_one_endpoint_for_each_port_at_the_address_of_its_owner() {
    in_namespace("pod", || {
        let engine = Engine::start();
        let api = Api::memory();
        let _agent = Agent::start(&api);
        let sync = Sync::start(&api.url, &["docker", "--socket", &engine.socket(), "--node", "n1"]);
        let plain = ["run", "--detach", "--no-healthcheck"];
        engine.docker(
            &[&plain[..], &["--name", "pause", "--env", "PORT=79", "--env", "NAME=pause", "backend:1"]]
                .concat(),
        );
        let join = |name: &str, more: &[&str]| {
            let first = ["--no-healthcheck", "--network", "container:pause"];
            engine.run(name, &[&first, more].concat());
        };
        join("page", &["--label", "tidegate.port=8080:80"]);
        join("beside", &["--label", "tidegate.port=8080:80", "--env", "PORT=82"]);
        let side =
            ["--label", "tidegate.service=side", "--label", "tidegate.port=8081:81", "--env", "PORT=81"];
        join("side", &side);
        sync.wait_until_equal();

        let format = "{{.NetworkSettings.Networks.bridge.IPAddress}}";
        let address = engine.docker(&["inspect", "--format", format, "pause"]);
        for (service, port, answer) in [("web", 80, "page"), ("side", 81, "side")] {
            let path = format!("/v1/namespaces/default/services/{service}");
            let look = || {
                api.get(&format!("/v1/namespaces/default/endpoints/{service}"))["ports"][0]["endpoints"]
                    .clone()
            };
            let is_one = |seen: &Value| seen.as_array().is_some_and(|all| all.len() == 1);
            let endpoints = eventually("there is an endpoint", look, is_one);
            assert_eq!((&endpoints[0]["address"], &endpoints[0]["port"]), (&json!(address), &json!(port)));
            let spec = api.get(&path)["spec"].clone();
            let (ip, port) = (spec["clusterIP"].as_str().unwrap(), &spec["ports"][0]["port"]);
            let ask = || engine.ask(&format!("{ip}:{port}"));
            eventually("it answers", ask, |name| name.as_deref() == Some(answer));
        }
        engine.docker(&["rm", "--force", "pause"]);
        eventually(
            "it is said",
            || sync.trouble(),
            |text| text.contains("page: it uses the network of container"),
        );
        assert_eq!(
            engine.docker(&["ps", "--quiet"]).lines().count(),
            3,
            "the others live, and have no owner"
        );
    });
}

/// Each network is listed with its bridge, subnet and containers. Equal subnets and equal addresses on two
/// machines are reported, and the container with the ambiguous address is left out.
#[test]
fn f026_networks_are_listed_with_their_containers_and_equal_subnets_of_two_machines_are_told() {
    in_namespace("nets", || {
        let (engine, other) = (Engine::start(), Engine::start_apart());
        let api = Api::memory();
        let first = Sync::start(&api.url, &["docker", "--socket", &engine.socket(), "--node", "n1"]);
        engine.run("one", &["--no-healthcheck"]);
        engine.docker(&["network", "create", "--subnet", "172.31.7.0/24", "back"]);
        engine.docker(&["network", "connect", "--ip", "172.31.7.9", "back", "one"]);
        engine.run("two", &["--no-healthcheck", "--network", "back", "--ip", "172.31.7.8"]);
        let network = |sync: &Sync, name: &str| {
            let all = sync.networks();
            let mut all = all.as_array().into_iter().flatten();
            all.find(|network| network["name"] == name).cloned().unwrap_or_default()
        };
        let both = json!([
            {"name": "one", "addresses": ["172.31.7.9"]}, {"name": "two", "addresses": ["172.31.7.8"]},
        ]);
        let back = eventually("both are seen", || network(&first, "back"), |back| back["containers"] == both);
        assert_eq!(back["subnets"], json!(["172.31.7.0/24"]));
        let subnet =
            engine.docker(&["network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", "bridge"]);
        let bridge = network(&first, "bridge");
        assert_eq!((&bridge["link"], &bridge["subnets"]), (&json!("docker0"), &json!([subnet])));
        for seen in [&back, &bridge] {
            let link = seen["link"].as_str().unwrap();
            let output = Command::new("ip").args(["-4", "-br", "address", "show", link]).output().unwrap();
            let prefix = seen["subnets"][0].as_str().unwrap().rsplit_once('.').unwrap().0;
            assert!(String::from_utf8_lossy(&output.stdout).contains(prefix), "{link}: {output:?}");
        }

        // Labelled for its own network, because it is in two.
        engine.docker(&["rm", "--force", "one"]);
        engine.run("three", &["--no-healthcheck"]);
        let spec = || workload(&api, "three")["addresses"][0].clone();
        let address = eventually("it has an address", spec, Value::is_string);
        other.run("three", &["--no-healthcheck"]);
        let format = "{{.NetworkSettings.Networks.bridge.IPAddress}}";
        let there = other.docker(&["inspect", "--format", format, "three"]);
        assert_eq!(
            address,
            there.as_str(),
            "two engines give the same address unless they are told otherwise"
        );
        let second = Sync::start(&api.url, &["docker", "--socket", &other.socket(), "--node", "n2"]);
        let said =
            eventually("it is told", || second.trouble(), |text| text.contains("too: addresses may collide"));
        let equal = format!(
            "network bridge of Node n2 has the subnet {subnet}, which containers on Node n1 have too"
        );
        assert!(said.contains(&equal), "{said}");
        assert!(
            said.contains(&format!(
                "its address {there} in network bridge is also used by a container on Node n1"
            )),
            "{said}"
        );
        assert_eq!(network(&second, "bridge")["sameSubnetOn"], json!(["n1"]));
        assert!(
            api.names("workloads").iter().all(|name| name.starts_with("n1.")),
            "{:?}",
            api.names("workloads")
        );
    });
}

/// A container started with the variables of a namespace has those of all Services that existed then, and none of a later
/// Service. The adapter keeps a file with the variables for the next container.
#[test]
fn f163_a_container_starts_with_the_variables_of_the_services() {
    in_namespace("env", || {
        let engine = Engine::start();
        let api = Api::memory();
        let service = |name: &str| {
            api.apply(&json!({
                "apiVersion": "tidegate/v1", "kind": "Service", "metadata": { "name": name },
                "spec": { "ports": [{ "name": "http", "port": 80 }] },
            }));
        };
        let variables = || {
            let list = api.get("/v1/namespaces/default/env?format=docker");
            list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        service("web");
        service("1-db");
        let expected = variables();
        assert_eq!(expected.len(), 16, "{expected:?}");
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("env");
        let _sync = Sync::start(
            &api.url,
            &["docker", "--socket", &engine.socket(), "--node", "n1", "--env-dir", files.to_str().unwrap()],
        );
        let file = files.join("default.env");
        let lines = || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        eventually("the file of the namespace", lines, |found| *found == expected);
        engine.run("client", &["--no-healthcheck", "--env-file", file.to_str().unwrap()]);
        service("later");
        let pid = engine.docker(&["inspect", "--format", "{{.State.Pid}}", "client"]);
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment: Vec<_> = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        for variable in &expected {
            assert!(environment.iter().any(|found| found == variable), "{variable}: {environment:?}");
        }
        let later = |found: &&String| found.starts_with("LATER_");
        assert_eq!(variables().iter().filter(later).count(), 8);
        eventually("the variables of the later Service in the file", lines, |found| *found == variables());
        assert!(!environment.iter().any(|found| found.starts_with("LATER_")), "{environment:?}");
    });
}
