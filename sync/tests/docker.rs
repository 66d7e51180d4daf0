//! The source `docker` with a real engine, a real control server and a real agent, in a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

mod support;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use serde_json::Value;
use support::{Api, Sync, eventually, in_namespace};

/// The whole content of the image. It says who it is on port 80; as `check` it is the health check, which `sick` and `well`
/// decide about; as `ask` it is the client. Being the first process of its container, it does not end on SIGTERM.
const PROGRAM: &str = r#"
use std::{env, fs, io::{Read, Write}, net::{TcpListener, TcpStream}, process::exit, time::Duration};
fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("ask") => {
            let address = arguments[2].parse().unwrap();
            let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(2)) else { exit(1) };
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).is_err() { exit(1) }
            print!("{answer}");
        }
        Some("check") => exit(i32::from(fs::metadata("/sick").is_ok())),
        Some("sick") => drop(fs::write("/sick", "").unwrap()),
        Some("well") => fs::remove_file("/sick").unwrap(),
        _ => {
            for stream in TcpListener::bind("[::]:80").unwrap().incoming() {
                let Ok(mut stream) = stream else { continue };
                let _ = write!(stream, "{}", env::var("NAME").unwrap());
            }
        }
    }
}
"#;

const IMAGE_FILE: &str = "FROM scratch\nCOPY program /program\nEXPOSE 80\n\
    HEALTHCHECK --interval=300ms --timeout=5s --retries=1 CMD [\"/program\", \"check\"]\nENTRYPOINT [\"/program\"]\n";

/// An engine; it and its containers go when this is dropped.
struct Engine {
    daemon: Child,
    directory: tempfile::TempDir,
    cgroup: String,
}

impl Engine {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = format!("tg-sync-{}", std::process::id());
        let daemon = Self::spawn(directory.path(), &cgroup);
        let engine = Self { daemon, directory, cgroup };
        engine.wait();
        let context = engine.path("context");
        fs::create_dir(&context).unwrap();
        fs::write(context.join("program.rs"), PROGRAM).unwrap();
        fs::write(context.join("Dockerfile"), IMAGE_FILE).unwrap();
        let compiled = Command::new("rustc")
            .args(["--edition=2024", "-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-o"])
            .args([context.join("program"), context.join("program.rs")])
            .status();
        assert!(compiled.unwrap().success());
        engine.docker(&["build", "--quiet", "--tag", "backend:1", context.to_str().unwrap()]);
        engine
    }

    fn spawn(directory: &Path, cgroup: &str) -> Child {
        let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
        fs::write(directory.join("daemon.json"), "{}").unwrap();
        let place = |name: &str| directory.join(name).display().to_string();
        Command::new("dockerd")
            .args(["--config-file", &place("daemon.json"), "--host", &format!("unix://{}", place("socket"))])
            .args(["--data-root", &place("data"), "--exec-root", &place("exec"), "--pidfile", &place("pid")])
            .args([
                "--storage-driver=vfs",
                "--userland-proxy=false",
                "--exec-opt=native.cgroupdriver=cgroupfs",
            ])
            .arg(format!("--cgroup-parent=/{cgroup}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("dockerd (Debian package docker.io)")
    }

    fn wait(&self) {
        let is_there = || self.try_docker(&["version"]).status.success();
        eventually("the engine answers", is_there, |is_there| *is_there);
    }

    fn restart(&mut self) {
        self.stop();
        self.daemon = Self::spawn(self.directory.path(), &self.cgroup);
        self.wait();
    }

    fn stop(&mut self) {
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.daemon.wait();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.path("socket").display())
    }

    fn try_docker(&self, arguments: &[&str]) -> Output {
        Command::new("docker")
            .env("DOCKER_BUILDKIT", "0")
            .args(["--host", &self.socket()])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn docker(&self, arguments: &[&str]) -> String {
        let output = self.try_docker(arguments);
        assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a backend of the Service `web`.
    fn run(&self, name: &str, more: &[&str]) {
        let name_variable = format!("NAME={name}");
        let common =
            ["run", "--detach", "--name", name, "--env", &name_variable, "--label", "tidegate.service=web"];
        self.docker(&[&common, more, &["backend:1"]].concat());
    }

    /// Who answers at an address.
    fn ask(&self, address: &str) -> Option<String> {
        let output = Command::new(self.path("context/program")).args(["ask", address]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let containers =
            String::from_utf8(self.try_docker(&["ps", "--all", "--quiet"]).stdout).unwrap_or_default();
        let containers: Vec<_> = containers.split_whitespace().collect();
        if !containers.is_empty() {
            self.try_docker(&[&["rm", "--force"], &containers[..]].concat());
        }
        self.stop();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(&self.cgroup));
        }
        let _ = fs::remove_dir(Path::new("/sys/fs/cgroup").join(&self.cgroup));
    }
}

/// An agent of the node that the namespace is.
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

/// In: containers that start, are stopped, killed, started again, become ill and well, are joined to networks and to each
/// other; an engine that restarts.
/// Out: Workloads follow, and what clients of the Service's address are answered by follows them.
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

        // An engine without any container is not believed unasked; but what has ended takes no connections.
        engine.docker(&["rm", "--force", "one", "two"]);
        eventually("nobody answers", || engine.ask(&service), Option::is_none);
        eventually(
            "it is held",
            || sync.trouble(),
            |text| text.contains("wait for somebody to confirm them"),
        );
        assert_eq!(workload(&api, "one")["addresses"], serde_json::json!([]));
        sync.confirm();
        eventually("what is removed goes", || api.names("workloads"), Vec::is_empty);
    });
}

/// The stop is told while the process still runs, and answers.
fn stopped_containers_take_no_connections_before_they_end(engine: &Engine, api: &Api) {
    thread::scope(|scope| {
        let stop = scope.spawn(|| engine.docker(&["stop", "--time", "4", "two"]));
        eventually("it terminates", || workload(api, "two"), is_phase("Terminating", false));
        assert!(!stop.is_finished(), "it is not ended yet");
        stop.join().unwrap();
    });
    eventually("it has ended", || workload(api, "two"), is_phase("Failed", false));
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

/// While the engine is away everything stays; then its containers have really ended.
fn restarts_of_the_engine_take_nothing_away(engine: &mut Engine, api: &Api, sync: &Sync) {
    eventually("what was removed has gone", || api.names("workloads").len(), |count| *count == 2);
    engine.stop();
    eventually("it is noticed", || sync.trouble(), |text| text.contains("engine:"));
    assert_eq!(api.names("workloads").len(), 2);
    engine.restart();
    eventually("the engine is followed again", || sync.trouble(), |text| !text.contains("engine:"));
}
