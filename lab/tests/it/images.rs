//! Tests of the agent's container image on a real Docker engine, with the settings in `packaging/kubernetes`
//! and as a privileged container. The control server has TLS and authentication.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers, and says what it could not have"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use lab::{
    host::wait,
    network::topology::{self, Topology},
    processes::{
        binaries,
        engine::Engine,
        process::{Plan, Process},
    },
};
use serde_json::Value;

const NODE: &str = "node1";
/// Address that the agent announces, in the network of the nodes.
const ADDRESS: &str = "172.17.8.220";
/// Capabilities that engines as old as Docker 20.10 do not support.
const YOUNG: [&str; 3] = ["perfmon", "bpf", "checkpoint_restore"];
const OBJECTS: &str = "
apiVersion: tidegate/v1
kind: AddressPool
metadata: {name: lan}
spec: {addresses: [172.17.8.220]}
---
apiVersion: tidegate/v1
kind: Advertisement
metadata: {name: lan}
spec: {addressPools: [lan]}
---
apiVersion: tidegate/v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: tidegate/v1
kind: EndpointSet
metadata: {name: web}
spec: {service: web, ports: [{port: 80}], endpoints: [{address: 10.1.1.21}]}
";

/// F015: the container image of the agent joins the cluster, programs Services and announces addresses, both
/// with the DaemonSet's settings and with full privileges, so that a client on the link gets the backend's
/// page. When the container is stopped, the kernel state stays; `cleanup` then removes all of it.
#[test]
fn f015_the_image_of_the_agent_programs_and_announces_as_the_daemon_set_runs_it_and_privileged() {
    let stage = Stage::new();
    let pod = Pod::read();
    let flags = pod.security();
    stage.runs_stops_and_cleans(&pod, &flags, |status| {
        assert_eq!(field(status, "CapEff"), field(status, "CapBnd"), "{status}");
        let capabilities = u64::from_str_radix(field(status, "CapEff"), 16).unwrap();
        // NET_BIND_SERVICE, NET_ADMIN and NET_RAW by number, see capabilities(7).
        assert_eq!(capabilities, 1 << 10 | 1 << 12 | 1 << 13, "{status}");
        assert_eq!(field(status, "NoNewPrivs"), "1", "{status}");
    });
    let flags = stage.privileged(&pod);
    stage.runs_stops_and_cleans(&pod, &flags, |status| {
        let capabilities = u64::from_str_radix(field(status, "CapEff"), 16).unwrap();
        // SYS_ADMIN, as an example.
        assert_ne!(capabilities & 1 << 21, 0, "{status}");
        assert_eq!(field(status, "Seccomp"), "0", "{status}");
    });
}

/// Loads the archive of the agent's image that a release contains. It has the settings of the image that the engine builds
/// from the same Dockerfile.
fn load_image(engine: &Engine, directory: &Path) {
    let programs = binaries::find("tidegate-agent").unwrap();
    let make = |settings: &[(&str, &str)]| {
        let mut make = Command::new(root().join("packaging/container/images.sh"));
        make.arg(programs.parent().unwrap()).arg("tidegate-agent").envs(settings.iter().copied());
        let made = engine.output(make).unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let image = make(&[("DOCKER_BUILDKIT", "0")]);
    let settings = || {
        let text = engine.docker(&["image", "inspect", "--format={{json .Config}}", &image]).unwrap();
        let all: Value = serde_json::from_str(&text).unwrap();
        let names =
            ["Cmd", "Entrypoint", "Env", "ExposedPorts", "Healthcheck", "Labels", "User", "WorkingDir"];
        names.map(|name| (name, all[name].clone()))
    };
    let built = settings();
    engine.docker(&["image", "rm", "--force", &image, "tidegate-agent"]).unwrap();
    let archives = directory.to_str().unwrap();
    let archive = make(&[("ARCHIVES", archives), ("SOURCE_DATE_EPOCH", "1764000000")]);
    engine.docker(&["load", "--input", &archive]).unwrap();
    assert_eq!(settings(), built);
    fs::remove_file(archive).unwrap();
}

/// Control server, node with a Docker engine, backend behind the node, and client on the node's link.
struct Stage {
    // Field order: the engine is dropped before its namespace, and the server before its files.
    engine: Engine,
    _server: Process,
    topology: Topology,
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("tidegate-image-").tempdir().unwrap();
        let mut topology = Topology::new(1).unwrap();
        topology.add_workload("backend", NODE, 21).unwrap();
        topology.serve_pages("backend", 80).unwrap();
        let engine = Engine::start_without_network(topology.place(NODE).unwrap()).unwrap();
        load_image(&engine, directory.path());
        let place = |name: &str| directory.path().join(name).display().to_string();
        let server = Process::start(Plan {
            label: "tidegate-api".to_owned(),
            namespace: topology.control.clone(),
            program: binaries::find("tidegate-api").unwrap(),
            arguments: [
                format!("--listen={}", topology::CONTROL),
                format!("--store=sqlite:{}", place("control.sqlite")),
                format!("--bootstrap-token-file={}", place("token")),
            ]
            .into(),
            environment: Vec::new(),
            log: place("control.log").into(),
        })
        .unwrap();
        let stage = Self { engine, _server: server, topology, directory };
        wait::until("the authority's certificate", || {
            let url = format!("https://{}/v1/ca", topology::CONTROL);
            stage.topology.control.run("curl", &["-skfo", &stage.file("ca.crt"), &url])
        })
        .unwrap();
        fs::write(stage.file("objects.yaml"), OBJECTS).unwrap();
        stage.tidegate(&["apply", "-f", &stage.file("objects.yaml")]).unwrap();
        stage
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Runs the CLI `tidegate` with a token of an administrator, and returns its output.
    fn tidegate(&self, arguments: &[&str]) -> Result<String> {
        let program = binaries::find("tidegate")?;
        let connection = [
            format!("--api=https://{}", topology::CONTROL),
            format!("--token-file={}", self.file("token")),
            format!("--ca-file={}", self.file("ca.crt")),
        ];
        let all: Vec<&str> = connection.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        self.topology.control.run(program.to_str().context("a path that is no text")?, &all)
    }

    /// Runs the image with the engine flags `security` on a node without agent state, stops the container,
    /// and runs the command `cleanup` of the agent. `judge` checks the running agent.
    fn runs_stops_and_cleans(&self, pod: &Pod, security: &[String], judge: impl Fn(&str)) {
        let before = self.rules();
        let host = tempfile::tempdir_in(self.directory.path()).unwrap();
        let token = self.tidegate(&["node", "join-token", NODE]).unwrap();
        let secrets = host.path().join("secrets");
        fs::create_dir(&secrets).unwrap();
        fs::write(secrets.join("join.token"), token).unwrap();
        fs::copy(self.file("ca.crt"), secrets.join("ca.crt")).unwrap();
        let flags = [security, &pod.surroundings(host.path())].concat();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();

        self.engine
            .docker(&[&["run", "--detach", "--name", "agent"], &flags[..], &[&pod.image]].concat())
            .unwrap();
        let reached = wait::until("a client on the wire to get the page", || {
            let url = format!("http://{ADDRESS}/");
            let page = self.topology.client.run("curl", &["-sS", "--max-time", "5", &url])?;
            ensure!(page.trim() == "backend", "{page}");
            Ok(())
        });
        reached.with_context(|| self.log()).unwrap();
        let link = self.topology.place(NODE).unwrap().mac("eth0").unwrap();
        let learnt = self.topology.client.run("ip", &["neigh", "show", ADDRESS]).unwrap();
        assert!(learnt.contains(&link), "the machine has {link}, the client learnt {learnt}");
        self.tidegate(&["wait", "svc/web", "--for=announced"]).unwrap();
        let pid = self.engine.docker(&["inspect", "--format", "{{.State.Pid}}", "agent"]).unwrap();
        judge(&fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap());

        // Stopped like a pod; the kernel keeps its state.
        self.engine.docker(&["stop", "--time", &pod.grace_secs, "agent"]).unwrap();
        let code = self.engine.docker(&["inspect", "--format", "{{.State.ExitCode}}", "agent"]).unwrap();
        assert_eq!(code.trim(), "0", "{}", self.log());
        self.engine.docker(&["rm", "agent"]).unwrap();
        assert!(self.rules().contains(ADDRESS), "the rules of a stopped agent stay");
        self.engine.docker(&[&["run", "--rm"], &flags[..], &[&pod.image, "cleanup"]].concat()).unwrap();
        assert_eq!(self.rules(), before, "cleanup leaves what was there before");
    }

    fn rules(&self) -> String {
        self.topology.place(NODE).unwrap().run("nft", &["list", "ruleset"]).unwrap()
    }

    fn log(&self) -> String {
        self.engine.docker(&["inspect", "--format", "{{json .State}}", "agent"]).unwrap_or_default()
            + &self
                .engine
                .output({
                    let mut logs = Command::new("docker");
                    logs.args(["logs", "agent"]);
                    logs
                })
                .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
                .unwrap_or_default()
    }

    /// Returns `--privileged`, or, if the machine lacks a capability and the engine therefore rejects the
    /// flag, the equivalent: every available capability, no seccomp filter, no masked paths.
    fn privileged(&self, pod: &Pod) -> Vec<String> {
        let whole = "--privileged".to_owned();
        let trial = ["run", "--rm", "--network=none", &whole, &pod.image, "--version"];
        let Err(error) = self.engine.docker(&trial) else { return vec![whole] };
        eprintln!("--privileged is refused here, every capability of this machine is given instead: {error}");
        let listing = Command::new("setpriv").arg("--dump").output().unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        let all = listing.lines().find_map(|line| line.strip_prefix("Capability bounding set: ")).unwrap();
        let given = all
            .split(',')
            .filter(|name| !YOUNG.contains(name))
            .map(|name| format!("--cap-add={}", name.to_uppercase()));
        let open =
            ["seccomp", "apparmor", "systempaths"].map(|what| format!("--security-opt={what}=unconfined"));
        given.chain(open).collect()
    }
}

/// Container of the DaemonSet in `packaging/kubernetes`, as JSON.
struct Pod {
    container: Value,
    volumes: Vec<Value>,
    image: String,
    grace_secs: String,
}

impl Pod {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("packaging/kubernetes/agent/daemonset.yaml")).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let spec = &object["spec"]["template"]["spec"];
        assert_eq!(spec["hostNetwork"], true);
        let container = spec["containers"][0].clone();
        let image = format!("{}:{}", container["image"].as_str().unwrap(), env!("CARGO_PKG_VERSION"));
        let grace_secs = spec["terminationGracePeriodSeconds"].to_string();
        Self { container, volumes: spec["volumes"].as_array().unwrap().clone(), image, grace_secs }
    }

    /// Converts the `securityContext` of the container to engine flags. The engine's default seccomp filter
    /// stays enabled, so the test is stricter than a pod, which has no filter.
    fn security(&self) -> Vec<String> {
        let mut flags = Vec::new();
        for (name, value) in self.container["securityContext"].as_object().unwrap() {
            match (name.as_str(), value) {
                ("allowPrivilegeEscalation", Value::Bool(false)) => {
                    flags.push("--security-opt=no-new-privileges".to_owned());
                }
                ("readOnlyRootFilesystem", Value::Bool(true)) => flags.push("--read-only".to_owned()),
                ("capabilities", Value::Object(changes)) => {
                    for (change, names) in changes {
                        let names = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                        flags.extend(names.map(|name| format!("--cap-{change}={name}")));
                    }
                }
                (name, value) => panic!("securityContext.{name}: {value} has no flag here"),
            }
        }
        flags
    }

    /// Returns the engine flags for network, environment variables and volumes of the container. The
    /// directory `host` is mounted instead of the host's file system.
    fn surroundings(&self, host: &Path) -> Vec<String> {
        let api = format!("--env=TIDEGATE_API=https://{}", topology::CONTROL);
        let mut flags = vec!["--network=host".to_owned(), api, "--env=TIDEGATE_LOG=info".to_owned()];
        for variable in self.container["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            // The cluster substitutes the name of the node.
            let value = variable["value"].as_str().unwrap_or(NODE).replace("$(KUBE_NODE)", NODE);
            flags.push(format!("--env={name}={value}"));
        }
        for mount in self.container["volumeMounts"].as_array().unwrap() {
            let volume = self.volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let there = mount["mountPath"].as_str().unwrap();
            let here = match volume["hostPath"]["type"].as_str() {
                None => host.join("secrets"),
                Some(kind) => {
                    let here =
                        host.join(volume["hostPath"]["path"].as_str().unwrap().trim_start_matches('/'));
                    fs::create_dir_all(here.parent().unwrap()).unwrap();
                    match kind {
                        "DirectoryOrCreate" => fs::create_dir_all(&here).unwrap(),
                        "FileOrCreate" => fs::write(&here, "").unwrap(),
                        other => panic!("a volume of type {other} has no flag here"),
                    }
                    here
                }
            };
            let mode = if mount["readOnly"] == true { ":ro" } else { "" };
            flags.push(format!("--volume={}:{there}{mode}", here.display()));
        }
        flags
    }
}

/// Returns the value of the field `name` in the text of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in\n{status}")).trim()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
