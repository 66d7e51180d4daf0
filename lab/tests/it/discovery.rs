//! Discovery by DNS: `tidegate-dns` beside a control server, asked by `dig`.

use std::{
    net::{IpAddr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use lab::{
    cluster::{
        control::Http,
        deployment::{Cluster, Options},
    },
    fixtures::scene::BACKEND_PORT,
    host::{netns::Namespace, wait},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::{Value, json};

use crate::forwarding::metric;

/// Objects, questions and answers of the table that the pure function is tested with.
const OBJECTS: &str = include_str!("../../../model/tests/dns/objects.json");
const ANSWERS: &str = include_str!("../../../model/tests/dns/answers.txt");
/// Address of the server, inside the namespace of a node.
pub(crate) const SERVER: &str = "127.0.0.1:5300";
/// Port at which the server answers over TLS.
const TLS_PORT: &str = "5853";
/// Number of questions in one run of `dig`.
const BATCH: usize = 40;

/// Server of a test with its state directory.
pub(crate) struct Dns {
    pub(crate) process: Process,
    pub(crate) namespace: Namespace,
    pub(crate) status: Http,
    /// Removed when the test ends.
    _directory: tempfile::TempDir,
}

/// Starts `tidegate-dns` in the namespace of the first node.
pub(crate) fn start(cluster: &Cluster, more: &[&str]) -> Dns {
    let directory = tempfile::tempdir().unwrap();
    let namespace = cluster.place("node1").unwrap().clone();
    let mut arguments = vec![
        format!("--api={}", cluster.api.url()),
        format!("--listen={SERVER}"),
        "--status-listen=127.0.0.1:7443".to_owned(),
        format!("--state-dir={}", directory.path().display()),
        "--server-address=10.96.0.53,fd00:96::53".to_owned(),
        "--reverse=10.96.0.0/16,fd00:96::/112".to_owned(),
    ];
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    let process = Process::start(Plan {
        label: "tidegate-dns".to_owned(),
        namespace: namespace.clone(),
        program: binaries::find("tidegate-dns").unwrap(),
        arguments,
        environment: Vec::new(),
        log: directory.path().join("log"),
    })
    .unwrap();
    let status = Http::new(&namespace, "127.0.0.1:7443".parse().unwrap());
    Dns { process, namespace, status, _directory: directory }
}

impl Dns {
    /// Returns the state directory of the server.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self._directory.path()
    }

    pub(crate) fn wait_ready(&mut self) {
        let status = &self.status;
        self.process.wait_ready(|| status.get("/readyz")?.success()).unwrap();
    }

    /// Asks several questions, each a name and a type, and returns the answers in the order of the questions.
    pub(crate) fn dig(&self, options: &[&str], questions: &[(&str, &str)]) -> Vec<String> {
        dig_at(&self.namespace, "5300", options, questions)
    }

    pub(crate) fn one(&self, name: &str, record_type: &str) -> String {
        self.dig(&[], &[(name, record_type)]).remove(0)
    }
}

/// Asks questions of the server at a port of 127.0.0.1, as [`Dns::dig`].
pub(crate) fn dig_at(
    namespace: &Namespace,
    port: &str,
    options: &[&str],
    questions: &[(&str, &str)],
) -> Vec<String> {
    let mut answers = Vec::new();
    for batch in questions.chunks(BATCH) {
        let mut arguments = vec!["@127.0.0.1", "-p", port, "+tries=1", "+time=10", "+noidnin"];
        let sections = ["+noall", "+comments", "+answer", "+authority", "+additional"];
        arguments.extend(sections.into_iter().chain(options.iter().copied()));
        arguments.extend(batch.iter().flat_map(|(name, record_type)| [*name, *record_type]));
        let output = namespace.run("dig", &arguments).unwrap();
        let blocks: Vec<_> = output.split(";; ->>HEADER<<-").skip(1).map(show).collect();
        assert_eq!(blocks.len(), batch.len(), "{output}");
        answers.extend(blocks);
    }
    answers
}

/// Converts the output of `dig` for one question to the form of the table: the result code, then the sorted records.
fn show(block: &str) -> String {
    let status = block.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
    let mut section = "";
    let mut lines = Vec::new();
    for line in block.lines() {
        section = match line {
            ";; ANSWER SECTION:" => "answer",
            ";; AUTHORITY SECTION:" => "authority",
            ";; ADDITIONAL SECTION:" => "additional",
            _ => section,
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [owner, ttl, "IN", kind, ref data @ ..] = words[..] {
            let data = match kind {
                // Without the serial number and the times of secondary servers.
                "SOA" => [data[0], data[1], data[6]].join(" "),
                "HINFO" => data[0].to_owned(),
                _ => data.join(" "),
            };
            let bare = |text: &str| text.replace(". ", " ").trim_end_matches('.').to_ascii_lowercase();
            lines.push(format!("  {section} {} {ttl} {kind} {}", bare(owner), bare(&data)));
        }
    }
    lines.sort();
    [vec![format!("  {status}")], lines].concat().join("\n")
}

/// Returns the questions of the table with their expected answers. A question outside of the zone is refused, because
/// the server has no upstream server.
fn table() -> Vec<(&'static str, &'static str, String)> {
    let mut table: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for line in ANSWERS.lines() {
        match line.strip_prefix("  ") {
            None => {
                let (name, record_type) = line.split_once(' ').unwrap();
                table.push((name, record_type, Vec::new()));
            }
            Some("FOREIGN") => table.last_mut().unwrap().2.push("  REFUSED".to_owned()),
            Some(text) if text.starts_with("chase ") => {}
            Some(text) => table.last_mut().unwrap().2.push(format!(
                "  {}",
                if text.contains(' ') {
                    text.replace(" HINFO \"RFC8482\"", " HINFO \"rfc8482\"")
                } else {
                    text.to_owned()
                }
            )),
        }
    }
    let sorted = table.into_iter().map(|(name, record_type, mut lines)| {
        lines[1..].sort();
        (name, record_type, lines.join("\n"))
    });
    sorted.collect()
}

pub(crate) fn objects() -> Vec<Value> {
    serde_json::from_str(OBJECTS).unwrap()
}

/// Writes a certificate with its key into a directory, and returns the arguments with which the server answers over TLS.
fn tls_arguments(directory: &std::path::Path) -> [String; 3] {
    let made = rcgen::generate_simple_self_signed(vec!["dns.example.org".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    [
        format!("--tls-listen=127.0.0.1:{TLS_PORT}"),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-key-file={}", key.display()),
    ]
}

/// Changes of objects during a test.
#[derive(Debug, Default)]
struct ObjectChanges {
    /// Number of changes that the DNS server has answered with.
    answered: AtomicUsize,
    stop: AtomicBool,
}

/// Stops a thread when it is dropped, also after a failed assertion.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ObjectChanges {
    /// Writes the Services of the table with other labels, and creates, changes and deletes a headless Service, until it is
    /// stopped. Waits for the answer to each change.
    fn run(&self, cluster: &Cluster, dns: &Dns) {
        let name = "spare.default.svc.cluster.local";
        let services: Vec<_> = objects().into_iter().filter(|object| object["kind"] == "Service").collect();
        while !self.stop.load(Ordering::Relaxed) {
            let round = self.answered.load(Ordering::Relaxed);
            let labels = services.iter().cloned().map(|mut object| {
                object["metadata"]["labels"] = json!({ "round": round.to_string() });
                object
            });
            cluster.apply_objects(&labels.collect::<Vec<_>>()).unwrap();
            let expected = if round % 3 == 2 {
                cluster.delete("namespaces/default/endpointsets/spare").unwrap();
                cluster.delete("namespaces/default/services/spare").unwrap();
                "  NXDOMAIN\n  authority cluster.local 1 SOA ".to_owned()
            } else {
                let address = format!("10.1.99.{}", round % 200);
                let service = json!({ "kind": "Service", "metadata": { "name": "spare" }, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } });
                let endpoints = json!({ "kind": "EndpointSet", "metadata": { "name": "spare" }, "spec": { "service": "spare", "endpoints": [{ "address": address }] } });
                cluster.apply_objects(&[service, endpoints]).unwrap();
                format!("  NOERROR\n  answer {name} 1 A {address}")
            };
            wait::until_true("the change", || dns.one(name, "A").starts_with(&expected)).unwrap();
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The server gives the answers of the table over UDP, TCP and TLS, over IPv4 and IPv6, with and without EDNS, while the Services of the
/// table and others change.
#[test]
fn f164_dig_gets_the_answers_of_the_table() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let files = tempfile::tempdir().unwrap();
    let tls = tls_arguments(files.path());
    let [listen, certificate, key] = tls.each_ref().map(String::as_str);
    let mut dns = start(&cluster, &[listen, certificate, key, "--listen=[::1]:5300"]);
    dns.wait_ready();
    let table = table();
    assert!(table.len() >= 180, "{}", table.len());
    let questions: Vec<_> = table.iter().map(|(name, record_type, _)| (*name, *record_type)).collect();
    let trusted = format!("+tls-ca={}", files.path().join("certificate.pem").display());
    let encrypted = ["+tls", &trusted, "+tls-hostname=dns.example.org", "-p", TLS_PORT];
    let passes =
        [&["+tcp"][..], &["+bufsize=1232"], &["+tcp", "+noedns"], &["@::1", "+bufsize=1232"], &encrypted];
    let changes = ObjectChanges::default();
    thread::scope(|scope| {
        let writer = scope.spawn(|| changes.run(&cluster, &dns));
        let _stop = StopGuard(&changes.stop);
        for options in passes {
            let before = (changes.answered.load(Ordering::Relaxed), metric(&dns, "tidegate_dns_revision"));
            // At least two changes of the other Service are within the questions of each pass.
            while changes.answered.load(Ordering::Relaxed) < before.0 + 2 && !writer.is_finished() {
                for ((name, record_type, expected), found) in table.iter().zip(dns.dig(options, &questions)) {
                    assert_eq!(found, *expected, "{name} {record_type} {options:?}");
                }
            }
            assert!(metric(&dns, "tidegate_dns_revision") > before.1);
        }
    });
    // A changed certificate is used without a restart.
    tls_arguments(files.path());
    let arguments =
        ["@127.0.0.1", "-p", TLS_PORT, "+tls", &trusted, "+tls-hostname=dns.example.org", "+short"];
    let arguments = [&arguments[..], &["web.shop.svc.cluster.local"]].concat();
    wait::until_true("the new certificate", || {
        dns.namespace.run("dig", &arguments).is_ok_and(|text| text.trim() == "10.96.0.10")
    })
    .unwrap();
    // The spelling of the question is repeated (0x20), and a message without EDNS has none in its answer.
    let name = "WeB.sHoP.svc.Cluster.Local";
    let text = dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "+noedns", name]).unwrap();
    assert!(text.contains(&format!("{name}. 5")) || text.contains(&format!("{name}.\t5")), "{text}");
    assert!(!text.contains("OPT PSEUDOSECTION"), "{text}");
}

/// Encodes a question for the IPv4 address of a name.
pub(crate) fn question(id: u16, name: &str) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// A client that started before a Service existed, and keeps its socket, gets the address of the Service as soon as the
/// Service exists, and gets none after the Service is deleted.
#[test]
fn f165_a_client_that_never_restarts_finds_a_later_service() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[]);
    dns.wait_ready();
    let socket = dns.namespace.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    socket.connect(SERVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut id = 0;
    let mut ask = || {
        id += 1;
        socket.send(&question(id, "later.shop.svc.cluster.local")).unwrap();
        let mut answer = [0; 512];
        let size = socket.recv(&mut answer).unwrap();
        let address = answer[..size].last_chunk::<4>().copied().filter(|_| answer[7] == 1);
        (answer[3] & 0xf, address.map(IpAddr::from))
    };
    assert_eq!(ask(), (3, None));
    let service = json!({ "kind": "Service", "metadata": { "name": "later", "namespace": "shop" }, "spec": { "clusterIP": "10.96.7.7", "ports": [{ "port": 80 }] } });
    cluster.apply_objects(&[service]).unwrap();
    let address = "10.96.7.7".parse().unwrap();
    wait::until_true("the address of the new Service", || ask() == (0, Some(address))).unwrap();
    cluster
        .api
        .send_json("DELETE", "/v1/namespaces/shop/services/later", &Value::Null)
        .unwrap()
        .success()
        .unwrap();
    wait::until_true("the end of the Service", || ask() == (3, None)).unwrap();
}

/// Before the first state, questions fail with SERVFAIL. Without control, answers go on, also after a
/// restart, from the state on disk.
#[test]
fn f164_answers_go_on_without_control_and_after_a_restart() {
    let mut cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    cluster.server.kill();
    let mut dns = start(&cluster, &[]);
    let name = "web.shop.svc.cluster.local";
    let status = &dns.status;
    dns.process.wait_ready(|| status.get("/healthz")?.success()).unwrap();
    assert_eq!(dns.one(name, "A"), "  SERVFAIL");
    // Any name may be that of a DnsZone.
    assert_eq!(dns.one("example.com", "A"), "  SERVFAIL");
    assert!(dns.status.get("/readyz").unwrap().success().is_err());
    cluster.start_control_again().unwrap();
    let expected = "  NOERROR\n  answer web.shop.svc.cluster.local 5 A 10.96.0.10";
    wait::until_true("the first state", || dns.one(name, "A") == expected).unwrap();
    let file = dns._directory.path().join("zone.jsonl");
    wait::until_true("the state on disk", || file.exists()).unwrap();
    cluster.server.kill();
    assert_eq!(dns.one(name, "A"), expected);
    dns.process.terminate().unwrap();
    dns.process.start_again().unwrap();
    dns.wait_ready();
    assert_eq!(dns.one(name, "A"), expected);
}

/// The address of a headless endpoint leaves the answers while the server has decided that the endpoint is unhealthy, and
/// returns with its recovery.
#[test]
fn f164_an_unhealthy_endpoint_leaves_the_answers_and_returns() {
    let mut cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[]);
    dns.wait_ready();
    for (name, host) in [("db-1", 11), ("db-2", 12)] {
        cluster.add_backend(name, "node1", host, "db").unwrap();
    }
    let service = json!({ "kind": "Service", "metadata": { "name": "db" }, "spec": {
        "clusterIP": "None", "selector": { "app": "db" }, "ports": [{ "name": "sql", "port": 5432, "targetPort": BACKEND_PORT }],
        "healthCheck": { "type": "Tcp", "intervalMs": 500, "timeoutMs": 500, "fall": 2, "rise": 2 },
    } });
    cluster.apply_objects(&[service]).unwrap();
    let (name, port) = ("db.default.svc.cluster.local", "_sql._tcp.db.default.svc.cluster.local");
    // Number of addresses, of hosts, and result code of the name of the endpoint that fails.
    let counts = || {
        let answers = dns.dig(&[], &[(name, "A"), (port, "SRV"), (&format!("db-2.{name}"), "A")]);
        let count = |index: usize| answers[index].matches("  answer ").count();
        (count(0), count(1), answers[2].contains("NOERROR"))
    };
    wait::until_true("both endpoints", || counts() == (2, 2, true)).unwrap();
    cluster.topology.stop_serving("db-2");
    wait::until_true("the end of the unhealthy endpoint", || counts() == (1, 1, false)).unwrap();
    cluster.topology.serve("db-2", BACKEND_PORT).unwrap();
    wait::until_true("its return", || counts() == (2, 2, true)).unwrap();
}
