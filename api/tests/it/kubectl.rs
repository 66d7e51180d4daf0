//! Tests with the real `kubectl` against the real server process with `--kubernetes-view`.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit for a command, or for one line of its output, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Process that is killed at the end of the test, even on failure.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Server process with a working directory for itself and its clients.
struct Server {
    _process: Process,
    url: String,
    dir: TempDir,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-api"));
        let common = [
            "--listen",
            "127.0.0.1:0",
            "--store",
            "memory:",
            "--service-cidr",
            "10.0.0.0/24",
            "--kubernetes-view",
        ];
        command.env_clear().current_dir(dir.path()).args(common).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("tidegate-api listening on ").unwrap().to_owned();
        Self { _process: Process(child), url, dir }
    }

    fn kubectl(&self, flags: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.dir.path());
        command
            .env("KUBECONFIG", "/dev/null")
            .env("EDITOR", "sed -i s/8000/8001/")
            .current_dir(self.dir.path());
        command.arg("--server").arg(format!("{}/k8s", self.url)).args(flags).args(args);
        command
    }

    /// Runs a `kubectl` command, asserts success and returns the output.
    fn run(&self, args: &str) -> String {
        let args: Vec<_> = args.split_whitespace().collect();
        let Output { status, stdout, stderr } = self.kubectl(&[], &args).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "kubectl {args:?}: {stderr}");
        String::from_utf8(stdout).unwrap()
    }

    /// Runs a `kubectl` command that must fail, and returns the error output. The exit status is not checked,
    /// because some failing commands exit with status zero.
    fn refused(&self, args: &str) -> String {
        let args: Vec<_> = args.split_whitespace().collect();
        String::from_utf8(self.kubectl(&[], &args).output().unwrap().stderr).unwrap()
    }

    /// Runs a `kubectl` command that prints a table, and returns the words of each line.
    fn table(&self, args: &str) -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        self.run(args).lines().map(words).collect()
    }

    /// Sends a request to the Tidegate API and returns the body of the successful response.
    fn call(&self, method: &str, path: &str, body: &Value, flags: &[&str]) -> Value {
        let mut command = Command::new("curl");
        command.current_dir(self.dir.path());
        command.args(["-sS", "--fail-with-body", "-X", method, "-H", "Content-Type: application/json"]);
        command.args(flags).args(["-d", &body.to_string()]).arg(format!("{}{path}", self.url));
        let Output { status, stdout, stderr } = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{method} {path}: {said}");
        serde_json::from_slice(&stdout).unwrap_or(Value::Null)
    }

    fn create(&self, path: &str, name: &str, label: &str, spec: &Value) {
        let body = json!({ "metadata": { "name": name, "labels": { "app": label } }, "spec": spec });
        self.call("POST", path, &body, &[]);
    }

    fn workload(&self, name: &str, address: &str) {
        let spec = json!({ "addresses": [address], "node": "core-v2-01" });
        self.create("/v1/namespaces/default/workloads", name, "nginx", &spec);
    }

    fn delete(&self, path: &str) {
        self.call("DELETE", &format!("{path}?confirm=true"), &Value::Null, &[]);
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Creates the objects that the reference documentation shows.
    fn seed(&self) {
        let node = json!({ "addresses": ["172.17.8.101"], "workloadCIDRs": ["10.1.13.0/24"] });
        self.create("/v1/nodes", "core-v2-01", "node", &node);
        for (name, address) in [("6bovu", "10.1.13.3"), ("iowux", "10.1.13.2"), ("o7m6u", "10.1.13.4")] {
            self.workload(&format!("nginx-controller-{name}"), address);
        }
        let service = json!({
            "type": "NodePort", "clusterIP": "10.0.0.252", "selector": { "app": "nginx" },
            "ports": [{ "port": 8000, "targetPort": 80, "nodePort": 30802 }],
        });
        self.create("/v1/namespaces/default/services", "nginx-service", "nginx", &service);
    }
}

/// Running `kubectl` process whose output lines are read as they arrive.
struct Following {
    _process: Process,
    lines: Receiver<String>,
}

impl Following {
    fn of(server: &Server, args: &str) -> Self {
        let args: Vec<_> = args.split_whitespace().collect();
        let mut child = server.kubectl(&[], &args).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // The thread ends with the command.
        thread::spawn(move || stdout.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { _process: Process(child), lines }
    }

    /// Waits for an output line that contains all of the words.
    fn until(&self, words: &[&str]) -> String {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with {words:?}, only {seen:#?}"));
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
            seen.push(line);
        }
    }
}

/// F005, F022: `kubectl get pods`, `get svc` and `get ep` print the documented columns (those of a current
/// `kubectl`, which has one more for Services); `describe` and `-o yaml` print the documented fields.
#[test]
fn f005_kubectl_shows_the_objects_of_the_documents_in_their_columns() {
    let server = Server::start(&[]);
    server.seed();
    let pods = server.table("get pods");
    assert_eq!(pods[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(pods[1][..4], ["nginx-controller-6bovu", "1/1", "Running", "0"]);
    assert_eq!(pods.len(), 4);
    let services = server.table("get svc");
    assert_eq!(services[0], ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]);
    assert_eq!(services[1][..5], ["nginx-service", "NodePort", "10.0.0.252", "<none>", "8000:30802/TCP"]);
    let endpoints = server.table("get ep");
    assert_eq!(endpoints[0], ["NAME", "ENDPOINTS", "AGE"]);
    assert_eq!(endpoints[1][..2], ["nginx-service", "10.1.13.2:80,10.1.13.3:80,10.1.13.4:80"]);

    let described = server.run("describe pod nginx-controller-6bovu");
    let field = |name: &str| {
        let line = described.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is missing: {described}")).trim().to_owned()
    };
    assert_eq!(field("Node:"), "core-v2-01/172.17.8.101");
    assert_eq!((field("Namespace:"), field("Labels:")), ("default".to_owned(), "app=nginx".to_owned()));
    assert_eq!((field("Status:"), field("IP:")), ("Running".to_owned(), "10.1.13.3".to_owned()));

    let yaml = server.run("get svc nginx-service -o yaml");
    for line in [
        "apiVersion: v1",
        "kind: Service",
        "  name: nginx-service",
        "  selfLink: /api/v1/namespaces/default/services/nginx-service",
        "  clusterIP: 10.0.0.252",
        "  - nodePort: 30802",
        "    port: 8000",
        "    targetPort: 80",
        "    app: nginx",
        "  sessionAffinity: None",
        "  type: NodePort",
        "  loadBalancer: {}",
    ] {
        assert!(yaml.lines().any(|found| found == line), "`{line}` is missing: {yaml}");
    }
}

/// `kubectl` can list and describe objects of every kind, and print them in every output format.
#[test]
fn kubectl_gets_and_describes_every_kind_in_every_form() {
    let server = Server::start(&[]);
    server.seed();
    for (kind, name, words) in [
        ("nodes", "core-v2-01", ["NotReady", "172.17.8.101"]),
        ("services", "nginx-service", ["NodePort", "app=nginx"]),
        ("endpoints", "nginx-service", ["10.1.13.2:80", "10.1.13.4:80"]),
        ("pods", "nginx-controller-iowux", ["10.1.13.2", "core-v2-01"]),
        ("namespaces", "default", ["Active", "default"]),
        ("endpointslices", "nginx-service-ipv4", ["IPv4", "10.1.13.3"]),
    ] {
        let wide = server.run(&format!("get {kind} -A -o wide"));
        assert!(words.iter().all(|word| wide.contains(word)), "{kind}: {wide}");
        assert!(server.run(&format!("get {kind} {name}")).contains(name));
        assert!(server.run(&format!("get {kind} -o name")).contains(&format!("/{name}")), "{kind}");
        let json: Value = serde_json::from_str(&server.run(&format!("get {kind} {name} -o json"))).unwrap();
        assert_eq!(json["metadata"]["name"], name);
        let described = server.run(&format!("describe {kind} {name}"));
        assert!(described.starts_with("Name:") && described.contains(name), "{kind}: {described}");
    }
    let chosen =
        server.table("get pods -l app=nginx --field-selector spec.nodeName=core-v2-01 --chunk-size 1");
    assert_eq!(chosen.len(), 4);
    let all = server.run("get all");
    assert!(all.contains("pod/nginx-controller-o7m6u") && all.contains("service/nginx-service"), "{all}");
    assert!(server.run("describe svc nginx-service").contains("10.1.13.2:80,10.1.13.3:80"));
    assert!(server.run("version").contains("tidegate"));
    assert!(server.refused("get pod none").contains("Error from server (NotFound): pods \"none\" not found"));
    assert!(server.refused("logs nginx-controller-6bovu").contains("does not run Workloads"));
}

/// F005: `kubectl create -f` and every other write are rejected with the Tidegate command to use, and change
/// nothing.
#[test]
fn f005_kubectl_is_refused_every_write_with_the_command_to_use() {
    let server = Server::start(&[]);
    server.seed();
    let before = server.run("get all,nodes,ep -o yaml");
    let yaml = server.run("get svc nginx-service -o yaml");
    server.write("old.yaml", &yaml.replace("port: 8000", "port: 8001"));
    let controller = "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: nginx-controller}\nspec: {replicas: 3}\n";
    server.write("rc_nginx.yaml", controller);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: new}\nspec: {ports: [{port: 80}]}\n";
    server.write("service_nginx.yaml", service);
    for (args, words) in [
        (
            "create -f service_nginx.yaml",
            "write a Service with `apiVersion: tidegate/v1`, and run `tidegate apply -f FILE`",
        ),
        ("create -f rc_nginx.yaml", "Tidegate does not run Workloads"),
        ("apply -f service_nginx.yaml", "`tidegate apply -f FILE`"),
        ("apply -f old.yaml", "`tidegate apply -f FILE`"),
        ("replace -f old.yaml", "`tidegate apply -f FILE`"),
        ("edit svc nginx-service", "`tidegate apply -f FILE`"),
        ("delete svc nginx-service", "`tidegate delete service nginx-service -n default`"),
        ("delete pods --all", "`tidegate delete workload nginx-controller-o7m6u -n default`"),
        ("delete namespace default", "a namespace is gone when no object is in it"),
        ("delete endpoints nginx-service", "endpoints follow from Workloads and EndpointSets"),
        ("label pod nginx-controller-6bovu a=b", "write a Workload"),
        ("cordon core-v2-01", "`tidegate drain node core-v2-01`"),
        ("create namespace shop", "a namespace exists as soon as an object is in it"),
    ] {
        let said = server.refused(args);
        assert!(said.contains(words), "kubectl {args}: {said}");
    }
    assert_eq!(server.run("get all,nodes,ep -o yaml"), before);
}

/// `kubectl get -w` of each kind prints its changes.
#[test]
fn kubectl_follows_every_kind() {
    let server = Server::start(&[]);
    server.seed();
    let follow = |kind: &str, first: &[&str]| {
        let following = Following::of(&server, &format!("get {kind} -w"));
        following.until(first);
        following
    };
    let pods = follow("pods", &["nginx-controller-o7m6u"]);
    let endpoints = follow("endpoints", &["nginx-service"]);
    let slices = follow("endpointslices", &["nginx-service-ipv4"]);
    let services = follow("services", &["nginx-service"]);
    let nodes = follow("nodes", &["core-v2-01"]);
    let namespaces = follow("namespaces", &["default"]);

    server.workload("fourth", "10.1.13.1");
    pods.until(&["fourth", "1/1", "Running"]);
    endpoints.until(&["nginx-service", "10.1.13.1:80", "+ 1 more..."]);
    slices.until(&["nginx-service-ipv4", "10.1.13.1"]);
    server.delete("/v1/namespaces/default/workloads/fourth");
    endpoints.until(&["nginx-service", "10.1.13.2:80,10.1.13.3:80,10.1.13.4:80"]);
    server.create("/v1/nodes", "second", "node", &json!({}));
    nodes.until(&["second", "NotReady"]);
    let service = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    server.create("/v1/namespaces/default/services", "web", "web", &service);
    services.until(&["web", "<pending>"]);
    server.create(
        "/v1/addresspools",
        "lan",
        "lan",
        &json!({ "addresses": ["198.51.100.7/32"], "avoidBuggyIPs": false }),
    );
    services.until(&["web", "198.51.100.7"]);
    server.create("/v1/namespaces/shop/workloads", "one", "shop", &json!({}));
    namespaces.until(&["shop", "Active"]);
}

/// With authentication and a token limited to one namespace, `kubectl --token` reads only objects of that
/// namespace.
#[test]
fn kubectl_shows_its_token_and_reads_what_that_allows() {
    let server = Server::start(&["--tls", "on", "--auth", "required"]);
    let ca = Command::new("curl").args(["-sSk", &format!("{}/v1/ca", server.url)]).output().unwrap();
    server.write("ca.pem", &String::from_utf8(ca.stdout).unwrap());
    let first = fs::read_to_string(server.dir.path().join("bootstrap-token")).unwrap();
    let header = format!("Authorization: Bearer {}", first.trim());
    let flags = ["--cacert", "ca.pem", "-H", &header];
    for namespace in ["team-a", "team-b"] {
        let body = json!({ "metadata": { "name": format!("of-{namespace}") }, "spec": {} });
        server.call("POST", &format!("/v1/namespaces/{namespace}/workloads"), &body, &flags);
    }
    let binding = json!({ "role": "viewer", "namespaces": ["team-a"] });
    let made = server.call("POST", "/v1/tokens", &json!({ "name": "a", "bindings": [binding] }), &flags);
    let token = made["token"].as_str().unwrap();
    let run = |token: &str, args: &[&str]| {
        let flags = ["--certificate-authority", "ca.pem", "--token", token];
        let Output { stdout, stderr, .. } = server.kubectl(&flags, args).output().unwrap();
        String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr)
    };
    let everywhere = run(token, &["get", "pods", "-A"]);
    assert!(everywhere.contains("of-team-a") && !everywhere.contains("of-team-b"), "{everywhere}");
    let other = run(token, &["get", "pods", "-n", "team-b"]);
    assert!(other.contains("Error from server (Forbidden)") && other.contains("token a may not"), "{other}");
    let nodes = run(token, &["get", "nodes"]);
    assert!(nodes.contains("Forbidden"), "{nodes}");
    let wrong = run("wrong", &["get", "pods", "-n", "team-a"]);
    assert!(wrong.contains("You must be logged in to the server"), "{wrong}");
}

/// F145: `kubectl get ingress` and `describe ingress` list address, hosts, paths and backends with endpoints; Gateways and
/// HTTPRoutes have the columns of the Gateway API.
#[test]
fn f145_kubectl_shows_ingresses_with_hosts_paths_and_backends() {
    let server = Server::start(&[]);
    server.seed();
    server.create("/v1/addresspools", "lan", "edge", &json!({ "addresses": ["192.0.2.7/32"] }));
    let edge = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    server.create("/v1/namespaces/default/services", "edge", "edge", &edge);
    let listeners = json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]);
    server.create("/v1/namespaces/default/gateways", "edge", "edge", &json!({ "listeners": listeners }));
    let api = json!({ "path": { "type": "Exact", "value": "/api" } });
    let rules = json!([
        { "matches": [api], "backendRefs": [{ "name": "nginx-service", "port": 8000 }] },
        { "backendRefs": [{ "name": "absent", "port": 80 }] },
    ]);
    let route =
        json!({ "parentRefs": [{ "name": "edge" }], "hostnames": ["www.example.org"], "rules": rules });
    server.create("/v1/namespaces/default/httproutes", "www", "edge", &route);

    let ingresses = server.table("get ingress");
    assert_eq!(ingresses[0], ["NAME", "CLASS", "HOSTS", "ADDRESS", "PORTS", "AGE"]);
    assert_eq!(ingresses[1][..5], ["www", "tidegate", "www.example.org", "192.0.2.7", "80"]);
    let described = server.run("describe ingress www");
    let words: Vec<Vec<&str>> = described.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["Address:", "192.0.2.7"]), "{described}");
    let endpoints = "(10.1.13.2:80,10.1.13.3:80,10.1.13.4:80)";
    assert!(words.contains(&vec!["/api", "nginx-service:8000", endpoints]), "{described}");
    assert!(words.iter().any(|line| line.starts_with(&["/", "absent:80"])), "{described}");

    let gateways = server.table("get gateways.gateway.networking.k8s.io");
    assert_eq!(gateways[0], ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "AGE"]);
    assert_eq!(gateways[1][..4], ["edge", "tidegate", "192.0.2.7", "True"]);
    let routes = server.table("get httproutes -A");
    assert_eq!(routes[0], ["NAMESPACE", "NAME", "HOSTNAMES", "AGE"]);
    assert_eq!(routes[1][..3], ["default", "www", "www.example.org"]);
    let described = server.run("describe httproute www");
    assert!(described.contains("BackendNotFound"), "{described}");
    let refused = server.refused("delete ingress www");
    assert!(refused.contains("tidegate delete httproute www -n default"), "{refused}");
}
