//! Forwarding of `tidegate-dns`, with dnsmasq as the upstream server.

use std::time::{Duration, Instant};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    processes::process::{Plan, Process},
};
use serde_json::json;

use crate::discovery::{Dns, objects, start};

/// Option with the upstream server of the tests.
pub(crate) const UPSTREAM: &str = "--upstream=127.0.0.1:5301";

/// Upstream server of a test with the directory of its log.
pub(crate) struct Upstream {
    pub(crate) process: Process,
    /// Removed when the test ends.
    _directory: tempfile::TempDir,
}

/// Starts dnsmasq beside `tidegate-dns`. It knows `db.example.com`.
pub(crate) fn start_upstream(dns: &Dns, more: Vec<String>) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = [
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--port=5301",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--user=root",
        "--host-record=db.example.com,192.0.2.7",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.extend(more);
    let process = Process::start(Plan {
        label: "dnsmasq".to_owned(),
        namespace: dns.namespace.clone(),
        program: "/usr/sbin/dnsmasq".into(),
        arguments,
        environment: Vec::new(),
        log: directory.path().join("log"),
    })
    .unwrap();
    Upstream { process, _directory: directory }
}

/// Returns the value of a metric without labels.
pub(crate) fn metric(dns: &Dns, name: &str) -> u64 {
    let text = dns.status.get("/metrics").unwrap().text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing: {text}")).parse().unwrap()
}

/// Responses of an upstream server are cached for their time, with the names below a name that does not exist. If the
/// server stops, hangs or is killed, expired responses are served, and other questions fail.
#[test]
fn f164_forwarded_names_are_answered_while_the_upstream_server_is_down() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM]);
    dns.wait_ready();
    let authority = ["--auth-server=ns.example.com,lo", "--auth-zone=example.com"].map(str::to_owned);
    let hosts = ["a", "b", "c"].map(|name| format!("--host-record={name}.example.com,192.0.2.8"));
    let mut upstream =
        start_upstream(&dns, [&authority[..], &hosts, &["--auth-ttl=600".to_owned()]].concat());
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.7")).unwrap();
    assert!(dns.one("missing.example.com", "A").starts_with("  NXDOMAIN"));
    assert!(dns.one("db.example.com", "AAAA").starts_with("  NOERROR\n  authority example.com "));
    let asked = metric(&dns, "tidegate_dns_upstream_questions_total");
    upstream.process.kill();
    // From the cache: the same types, names below the missing one, and another spelling.
    assert!(dns.one("DB.Example.com", "A").contains(" A 192.0.2.7"));
    assert!(dns.one("db.example.com", "AAAA").starts_with("  NOERROR\n  authority example.com "));
    for (name, record_type) in [("missing.example.com", "TXT"), ("x.y.missing.example.com", "A")] {
        assert!(dns.one(name, record_type).starts_with("  NXDOMAIN\n  authority example.com "), "{name}");
    }
    assert_eq!(metric(&dns, "tidegate_dns_upstream_questions_total"), asked);
    assert_eq!(dns.one("a.example.com", "A"), "  SERVFAIL");

    *upstream.process.arguments_mut().last_mut().unwrap() = "--auth-ttl=1".to_owned();
    upstream.process.start_again().unwrap();
    for name in ["a", "b", "c"] {
        let name = format!("{name}.example.com");
        wait::until_true("the upstream server", || dns.one(&name, "A").contains(" 1 A 192.0.2.8")).unwrap();
    }
    upstream.process.pause().unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    // No response in 1.8 s.
    let start = Instant::now();
    let stale = |name: &str| {
        format!("  NOERROR\n  answer {name} 30 A 192.0.2.8\n  authority example.com 30 NS ns.example.com")
    };
    assert_eq!(dns.one("a.example.com", "A"), stale("a.example.com"));
    let waited = start.elapsed();
    assert!((Duration::from_millis(1700)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
    // The next client does not wait, if the server failed shortly before.
    wait::until_true("the failure", || metric(&dns, "tidegate_dns_upstream_failures_total") >= 2).unwrap();
    let start = Instant::now();
    assert_eq!(dns.one("a.example.com", "A"), stale("a.example.com"));
    assert!(start.elapsed() < Duration::from_millis(1700), "{:?}", start.elapsed());
    upstream.process.kill();
    assert_eq!(dns.one("b.example.com", "A"), stale("b.example.com"));
    let text = dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "c.example.com"]).unwrap();
    assert!(text.contains("EDE: 3 (Stale Answer)"), "{text}");
    assert_eq!(dns.one("new.example.com", "A"), "  SERVFAIL");
    // Other questions are asked as soon as the server is back.
    upstream.process.start_again().unwrap();
    wait::until_true("the upstream server", || dns.one("new.example.com", "A").starts_with("  NXDOMAIN"))
        .unwrap();
}

/// Questions outside of the zone go to an upstream server, also at the end of an alias. Without an answer of the
/// upstream server, they fail.
#[test]
fn f164_other_names_are_forwarded() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM, "--cache-entries=0", "--cache-negative-entries=0"]);
    dns.wait_ready();
    let alias = "alias.shop.svc.cluster.local";
    assert_eq!(dns.one(alias, "A"), "  SERVFAIL");
    let long: Vec<String> =
        (0..100).map(|host| format!("--host-record=many.example.com,192.0.3.{host}")).collect();
    let upstream = ["--local=/example.com/".to_owned(), "--local-ttl=60".to_owned()];
    let _upstream = start_upstream(&dns, [&upstream[..], &long].concat());
    let expected = "  NOERROR\n  answer db.example.com 60 A 192.0.2.7";
    wait::until_true("the upstream server", || dns.one("db.example.com", "A") == expected).unwrap();
    let aliased = "  NOERROR\n  answer alias.shop.svc.cluster.local 5 CNAME db.example.com\n  answer db.example.com 60 A 192.0.2.7";
    assert_eq!(dns.one(alias, "A"), aliased);
    assert_eq!(dns.one("missing.example.com", "A"), "  NXDOMAIN");
    let lost = json!({ "kind": "Service", "metadata": { "name": "lost", "namespace": "shop" }, "spec": { "type": "ExternalName", "externalName": "missing.example.com" } });
    cluster.apply_objects(&[lost]).unwrap();
    let missing = "  NXDOMAIN\n  answer lost.shop.svc.cluster.local 5 CNAME missing.example.com";
    wait::until_true("the code of the last name", || dns.one("lost.shop.svc.cluster.local", "A") == missing)
        .unwrap();
    // More than a datagram: truncated over UDP, which `dig` repeats over TCP.
    let many = dns.one("many.example.com", "A");
    assert_eq!(many.lines().filter(|line| line.contains(" A 192.0.3.")).count(), 100, "{many}");
    let text =
        dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "+ignore", "many.example.com"]).unwrap();
    assert!(text.contains(" tc "), "{text}");
}
