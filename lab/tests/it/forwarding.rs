//! Forwarding of `tidegate-dns`, with dnsmasq as the upstream server.

use std::time::{Duration, Instant};

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde_json::json;

use crate::{
    discovery::{Dns, objects, question, start},
    dns_limits::DelayedServer,
};

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
    start_upstream_at(dns, 5301, more)
}

fn start_upstream_at(dns: &Dns, port: u16, more: Vec<String>) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let port = format!("--port={port}");
    let mut arguments = [
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        &port,
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

/// Returns the explanation of a complete name by the DNS server.
pub(crate) fn explained(dns: &Dns, name: &str, more: &str) -> serde_json::Value {
    dns.status.get(&format!("/explain?name={name}.{more}")).unwrap().json()
}

/// Returns the state of the upstream server of a name and of its cached response, with the response code.
fn cached(dns: &Dns, name: &str) -> [String; 3] {
    let explanation = explained(dns, name, "");
    let forwarded = &explanation["handling"][0]["forwarded"];
    let words =
        [&forwarded["servers"][0]["state"], &forwarded["cache"]["state"], &forwarded["cache"]["code"]];
    words.map(|word| word.as_str().unwrap_or_default().to_owned())
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
    // The explanation has the cached response, also of the name above, and uses none.
    assert_eq!(cached(&dns, "db.example.com"), ["ok", "fresh", "NOERROR"]);
    assert_eq!(cached(&dns, "x.missing.example.com"), ["ok", "fresh", "NXDOMAIN"]);
    assert_eq!(cached(&dns, "a.example.com"), ["ok", "missing", ""]);
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
    // The upstream server was asked before it started, and after it was killed.
    let failed = metric(&dns, "tidegate_dns_upstream_failures_total");
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
    wait::until_true("the failure", || metric(&dns, "tidegate_dns_upstream_failures_total") > failed)
        .unwrap();
    let start = Instant::now();
    assert_eq!(dns.one("a.example.com", "A"), stale("a.example.com"));
    assert!(start.elapsed() < Duration::from_millis(1700), "{:?}", start.elapsed());
    assert_eq!(cached(&dns, "a.example.com"), ["failing", "stale", "NOERROR"]);
    let tidegate = binaries::find("tidegate").unwrap();
    let arguments = ["explain", "dns", "a.example.com.", "--server", "127.0.0.1:7443"];
    let text = dns.namespace.run(tidegate.to_str().unwrap(), &arguments).unwrap();
    assert!(text.contains("cached response: NOERROR, expired") && text.contains("IN A 192.0.2.8"), "{text}");
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
    let mut dns =
        start(&cluster, &[UPSTREAM, "--autopath", "--cache-entries=0", "--cache-negative-entries=0"]);
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
    // More than a datagram: truncated over UDP, which `dig` repeats over TCP; so is the target of an alias.
    let all = json!({ "kind": "Service", "metadata": { "name": "all", "namespace": "shop" }, "spec": { "type": "ExternalName", "externalName": "many.example.com" } });
    cluster.apply_objects(&[all]).unwrap();
    let alias = "all.shop.svc.cluster.local";
    wait::until_true("the alias", || dns.one(alias, "A").starts_with("  NOERROR")).unwrap();
    for name in ["many.example.com", alias] {
        let many = dns.one(name, "A");
        assert_eq!(many.lines().filter(|line| line.contains(" A 192.0.3.")).count(), 100, "{many}");
        let text = dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "+ignore", name]).unwrap();
        assert!(text.contains(" tc "), "{text}");
    }
    search_path(&cluster, &dns);
}

/// The first question of a search path gets the answer of the upstream server behind an alias, for a client whose address
/// belongs to a Workload of the namespace.
fn search_path(cluster: &Cluster, dns: &Dns) {
    let workload = json!({ "kind": "Workload", "metadata": { "name": "client", "namespace": "shop" }, "spec": { "addresses": ["10.9.9.9"] } });
    cluster.apply_objects(&[workload]).unwrap();
    dns.namespace.run("ip", &["address", "add", "10.9.9.9/32", "dev", "lo"]).unwrap();
    let name = "db.example.com.shop.svc.cluster.local";
    let expected =
        format!("  NOERROR\n  answer db.example.com 60 A 192.0.2.7\n  answer {name} 5 CNAME db.example.com");
    let ask = |source: &str| dns.dig(&["-b", source], &[(name, "A")]).remove(0);
    wait::until_true("the answer to the Workload", || ask("10.9.9.9") == expected).unwrap();
    assert!(ask("127.0.0.1").starts_with("  NXDOMAIN\n"), "{}", ask("127.0.0.1"));
}

/// Number of different names that are asked with each policy.
const POLICY_NAMES: usize = 40;

/// A name is asked of the servers of the longest zone that contains it, and of no others; the absence of a name above the zone does
/// not matter. Servers of one zone are asked in the order of the policy. A response that is asked often is renewed.
#[test]
fn f164_zones_have_their_own_upstream_servers() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let zones = "--upstream=127.0.0.1:5301,inner.missing.example.com=127.0.0.1:5302";
    let mut dns = start(&cluster, &["--upstream-policy=sequential", zones]);
    dns.wait_ready();
    let many = |last: u8| format!("--address=/many.example.net/192.0.2.{last}");
    let authority =
        ["--auth-server=ns.example.com,lo", "--auth-zone=example.com", "--auth-ttl=5"].map(str::to_owned);
    let mut outer = start_upstream(&dns, authority.to_vec());
    let inner_record = "--host-record=db.inner.missing.example.com,192.0.2.70".to_owned();
    let mut inner = start_upstream_at(&dns, 5302, vec![inner_record, many(2)]);
    let name = "db.inner.missing.example.com";
    let expected = format!("  NOERROR\n  answer {name} 0 A 192.0.2.70");
    wait::until_true("the server of the zone", || dns.one(name, "A") == expected).unwrap();
    wait::until_true("the other server", || dns.one("missing.example.com", "A").starts_with("  NXDOMAIN"))
        .unwrap();
    let asked = metric(&dns, "tidegate_dns_upstream_questions_total");
    assert!(dns.one("other.missing.example.com", "A").starts_with("  NXDOMAIN"), "known from the cache");
    assert_eq!(metric(&dns, "tidegate_dns_upstream_questions_total"), asked);
    assert_eq!(dns.one(name, "A"), expected);
    renewal(&dns);
    inner.process.kill();
    assert_eq!(dns.one(name, "A"), "  SERVFAIL", "the other server is not asked");
    inner.process.start_again().unwrap();
    wait::until_true("the server of the zone", || dns.one(name, "A") == expected).unwrap();
    // With an authority, dnsmasq refuses other names.
    outer.process.kill();
    let _outer = start_upstream(&dns, vec![many(1)]);
    wait::until_true("the other server", || dns.one("n.many.example.net", "A").ends_with(" A 192.0.2.1"))
        .unwrap();

    let slow = DelayedServer::start(&dns, 5303, Duration::from_millis(300));
    let firsts = firsts(&mut dns, "random", "127.0.0.1:5301,127.0.0.1:5302");
    assert!(firsts[1] >= 5 && firsts[2] >= 5, "{firsts:?}");
    let firsts = self::firsts(&mut dns, "fastest", "127.0.0.1:5303,127.0.0.1:5301");
    assert!(firsts[1] >= POLICY_NAMES * 3 / 4 && firsts[9] >= 1, "{firsts:?}");
    let firsts = self::firsts(&mut dns, "sequential", "127.0.0.1:5301,127.0.0.1:5302");
    assert_eq!(firsts[1], POLICY_NAMES, "{firsts:?}");
    drop(slow);
}

/// Asks until a response with records is renewed in the last tenth of its time to live, 5 s.
fn renewal(dns: &Dns) {
    let renewals = || metric(dns, "tidegate_dns_cache_renewals_total");
    assert_eq!(renewals(), 0);
    let mut least = u64::MAX;
    wait::until_true("a renewal", || {
        let answer = dns.one("db.example.com", "A");
        let ttl = answer.split_whitespace().nth(3).and_then(|ttl| ttl.parse().ok());
        least = least.min(ttl.unwrap_or_else(|| panic!("{answer}")));
        renewals() >= 1
    })
    .unwrap();
    assert!(least <= 1, "renewed {least} s before the end");
}

/// Starts the server with a policy and servers, and returns the numbers of names that they answer, by the last byte of
/// the address in the answer.
fn firsts(dns: &mut Dns, policy: &str, servers: &str) -> [usize; 10] {
    dns.process.terminate().unwrap();
    let arguments = dns.process.arguments_mut();
    arguments.truncate(arguments.len() - 2);
    arguments.extend([format!("--upstream-policy={policy}"), format!("--upstream={servers}")]);
    dns.process.start_again().unwrap();
    dns.wait_ready();
    let names: Vec<_> = (0..POLICY_NAMES).map(|number| format!("n{number}.many.example.net")).collect();
    let questions: Vec<_> = names.iter().map(|name| (&name[..], "A")).collect();
    let mut firsts = [0; 10];
    for answer in dns.dig(&[], &questions) {
        let last = answer.rsplit('.').next().and_then(|last| last.parse::<usize>().ok());
        firsts[last.unwrap_or_else(|| panic!("{answer}"))] += 1;
    }
    firsts
}

/// With a socket for all addresses, responses come from the address that was asked, in both IP families, at once and after a question to an
/// upstream server.
#[test]
fn f164_answers_come_from_the_address_that_was_asked() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let mut dns = start(&cluster, &[UPSTREAM, "--listen=0.0.0.0:5310,[::]:5310"]);
    dns.wait_ready();
    let _upstream = start_upstream(&dns, Vec::new());
    wait::until_true("the upstream server", || dns.one("db.example.com", "A").contains("192.0.2.7")).unwrap();
    let addresses = ["192.0.2.101", "192.0.2.102", "2001:db8::101", "2001:db8::102"];
    for address in addresses {
        // Otherwise the kernel makes an IPv6 address usable a moment later, also without a detection of duplicates.
        let flag: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        dns.namespace.run("ip", &[&["address", "add", address, "dev", "lo"][..], flag].concat()).unwrap();
        // The kernel adds the route of an IPv6 address later than the address. Without it, packets leave the namespace.
        let is_local =
            || dns.namespace.run("ip", &["route", "get", address]).is_ok_and(|text| text.contains("local"));
        wait::until_true("the route of the address", is_local).unwrap();
    }
    for address in addresses {
        // For a client at the first address of the family, the kernel chooses this address.
        let client = if address.contains(':') { addresses[2] } else { addresses[0] };
        let socket = dns.namespace.inside(|| std::net::UdpSocket::bind((client, 0)).unwrap());
        socket.connect((address, 5310)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for name in ["web.shop.svc.cluster.local", "db.example.com", "other.example.com"] {
            for id in 0..10 {
                socket.send(&question(id, name)).unwrap();
            }
            for _ in 0..10 {
                let received = socket.recv(&mut [0; 512]);
                assert!(received.is_ok(), "{name} at {address}: {received:?}");
            }
        }
    }
}
