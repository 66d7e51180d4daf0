//! Containers of a real Docker engine, whose names `tidegate-dns` resolves. It receives the state with a token of the role
//! `dns-server`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use lab::{
    host::{netns::Namespace, wait},
    processes::{
        binaries,
        engine::Engine,
        process::{Plan, Process},
    },
};
use serde_json::Value;

/// URL of the control server.
const API: &str = "https://127.0.0.1:7440";
/// Objects of the test. The key proves that the token permits to read it.
const OBJECTS: &str = "kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
kind: DnsZone
metadata: {name: example}
spec:
  zone: example.org
  keys:
    - {name: secondary.example.org, operations: [Transfer], secret: c2VjcmV0IG9mIHRoZSBsYWIgb2YgdGlkZWdhdGUgMTI=}
";
const KEY: &str = "hmac-sha256:secondary.example.org:c2VjcmV0IG9mIHRoZSBsYWIgb2YgdGlkZWdhdGUgMTI=";
/// Image with the resolver of glibc.
const IMAGE: &str = "resolver";

/// Control server with authentication, in a namespace with a Docker engine.
struct DockerStage {
    namespace: Namespace,
    engine: Engine,
    directory: tempfile::TempDir,
    _server: Process,
}

impl DockerStage {
    fn new() -> Self {
        let namespace = Namespace::new("dnsdocker").unwrap();
        let engine = Engine::start(&namespace).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name).display().to_string();
        let arguments = [
            "--listen=127.0.0.1:7440".to_owned(),
            "--tls=on".to_owned(),
            format!("--store=sqlite:{}", place("control.sqlite")),
            format!("--bootstrap-token-file={}", place("admin.token")),
        ];
        let server = start(&namespace, directory.path(), "tidegate-api", &arguments);
        wait::until("the certificate of the authority", || {
            namespace.run("curl", &["-skfo", &place("ca.crt"), &format!("{API}/v1/ca")])
        })
        .unwrap();
        let stage = Self { namespace, engine, directory, _server: server };
        fs::write(stage.file("objects.yaml"), OBJECTS).unwrap();
        stage.tidegate(&["apply", "-f", &stage.path("objects.yaml")]).unwrap();
        stage
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Runs the CLI `tidegate` with a token of an administrator.
    fn tidegate(&self, arguments: &[&str]) -> Result<String> {
        let program = binaries::find("tidegate")?;
        let connection = [
            format!("--api={API}"),
            format!("--token-file={}", self.path("admin.token")),
            format!("--ca-file={}", self.path("ca.crt")),
        ];
        let all: Vec<&str> = connection.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        self.namespace.run(program.to_str().context("a path that is no text")?, &all)
    }

    /// Creates an image with `getent` and its libraries.
    fn create_image(&self) {
        let root = self.path("root");
        let script = format!(
            "set -e; for file in /usr/bin/getent $(ldd /usr/bin/getent | grep -o '/[^ ]*'); do \
             mkdir -p {root}$(dirname $file); cp -L $file {root}$file; done; \
             mkdir -p {root}/etc; tar -C {root} -c . | docker import - {IMAGE}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let output = self.engine.output(shell).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the image of the DNS server without privileges, as the manifest for Kubernetes does, and asks it over UDP and TCP.
    fn answers_from_the_image(&self) {
        let program = binaries::find("tidegate-dns").unwrap();
        let mut make = Command::new(root().join("packaging/container/images.sh"));
        make.arg(program.parent().unwrap()).arg("tidegate-dns").env("DOCKER_BUILDKIT", "0");
        let made = self.engine.output(make).unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.namespace.sysctl("net/ipv4/ip_unprivileged_port_start", "53").unwrap();
        let mounts = ["dns.token", "ca.crt"]
            .map(|name| format!("--volume={}:/run/tidegate/{name}:ro", self.path(name)));
        let flags = [
            "run",
            "--detach",
            "--name=dns",
            "--network=host",
            "--cap-drop=ALL",
            "--read-only",
            "--security-opt=no-new-privileges",
            "--tmpfs=/var/lib/tidegate-dns:uid=65532,mode=700",
        ];
        let image = String::from_utf8(made.stdout).unwrap();
        let arguments = [
            image.trim().to_owned(),
            format!("--api={API}"),
            "--token-file=/run/tidegate/dns.token".to_owned(),
            "--ca-file=/run/tidegate/ca.crt".to_owned(),
            "--listen=127.0.0.9".to_owned(),
            "--status-listen=127.0.0.9:7443".to_owned(),
            "--state-dir=/var/lib/tidegate-dns".to_owned(),
            "--name=image".to_owned(),
        ];
        let all: Vec<&str> =
            flags.into_iter().chain(mounts.iter().chain(&arguments).map(String::as_str)).collect();
        self.engine.docker(&all).unwrap();
        for transport in ["+notcp", "+tcp"] {
            let ask =
                ["+short", "+tries=1", "+time=2", transport, "@127.0.0.9", "web.shop.svc.cluster.local"];
            wait::until("an answer of the image", || {
                let text = self.namespace.run("dig", &ask)?;
                ensure!(text == "10.96.0.10\n", "{text}; {}", self.engine.docker(&["logs", "dns"])?);
                Ok(())
            })
            .unwrap();
        }
        let pid = self.engine.docker(&["inspect", "--format={{.State.Pid}}", "dns"]).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!((field("Uid:").as_str(), field("CapEff:").as_str()), ("65532", "0000000000000000"));
    }

    /// Returns the address of a name in a new container with more flags of `docker run`.
    fn resolve(&self, flags: &[&str], name: &str) -> Result<String> {
        let run = [&["run", "--rm"], flags, &[IMAGE, "/usr/bin/getent", "ahostsv4", name]].concat();
        let text = self.engine.docker(&run)?;
        Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn start(namespace: &Namespace, directory: &Path, name: &str, arguments: &[String]) -> Process {
    Process::start(Plan {
        label: name.to_owned(),
        namespace: namespace.clone(),
        program: binaries::find(name).unwrap(),
        arguments: arguments.to_vec(),
        environment: Vec::new(),
        log: directory.join(format!("{name}.log")),
    })
    .unwrap()
}

/// F164, F165: containers with `--dns` and `--dns-search` resolve the name of a Service, on the default network and behind the
/// resolver of Docker on another one, as those of compose files are; also one that was created after the server started.
#[test]
fn f164_f165_containers_resolve_services_by_the_setting_of_docker() {
    let stage = DockerStage::new();
    stage.create_image();
    let token = stage.tidegate(&["token", "create", "dns", "--role", "dns-server"]).unwrap();
    fs::write(stage.file("dns.token"), token).unwrap();
    let bridge = stage.namespace.run("ip", &["-4", "-o", "address", "show", "docker0"]).unwrap();
    let address = bridge.split_whitespace().nth(3).and_then(|network| network.split('/').next()).unwrap();
    let arguments = [
        format!("--api={API}"),
        format!("--token-file={}", stage.path("dns.token")),
        format!("--ca-file={}", stage.path("ca.crt")),
        format!("--listen={address}"),
    ];
    let _dns = start(&stage.namespace, stage.directory.path(), "tidegate-dns", &arguments);
    let at = format!("@{address}");
    let ask = ["+short", "+tries=1", "+time=2", &at, "web.shop.svc.cluster.local"];
    let answered = || stage.namespace.run("dig", &ask).is_ok_and(|text| text == "10.96.0.10\n");
    wait::until_true("the state with the token of the DNS server", answered).unwrap();
    let transfer = ["-y", KEY, "+short", &at, "example.org", "AXFR"];
    let transferred =
        || stage.namespace.run("dig", &transfer).is_ok_and(|text| text.contains("ns.example.org"));
    wait::until_true("the key", transferred).unwrap();

    let client = ["--dns", address, "--dns-search", "shop.svc.cluster.local", "--dns-opt", "ndots:5"];
    stage.engine.docker(&["network", "create", "names"]).unwrap();
    let other = [&client[..], &["--network", "names"]].concat();
    for flags in [&client[..], &other] {
        assert_eq!(stage.resolve(flags, "web").unwrap(), "10.96.0.10", "{flags:?}");
    }
    let later = "kind: Service\nmetadata: {name: later, namespace: shop}\nspec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}\n";
    fs::write(stage.file("later.yaml"), later).unwrap();
    stage.tidegate(&["apply", "-f", &stage.path("later.yaml")]).unwrap();
    wait::until_true("the later Service", || {
        stage.resolve(&other, "later").is_ok_and(|found| found == "10.96.0.11")
    })
    .unwrap();
    assert!(stage.resolve(&client, "missing").is_err());
    stage.answers_from_the_image();
    let top = stage.tidegate(&["dns", "top", "-o", "json"]).unwrap();
    let top: Value = serde_json::from_str(&top).unwrap();
    let name = |name: &str| {
        let names = top["names"].as_array().unwrap();
        names.iter().find(|found| found["name"] == name).unwrap_or_else(|| panic!("{name}: {top}")).clone()
    };
    assert!(name("web.shop.svc.cluster.local")["questions"].as_u64().unwrap() >= 3, "{top}");
    assert!(name("missing.shop.svc.cluster.local")["missing"].as_u64().unwrap() >= 1, "{top}");
}
