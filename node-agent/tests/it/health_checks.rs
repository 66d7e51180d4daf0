//! Tests of health checks with real endpoints in a namespace (healthy, failing in many ways, or flapping),
//! and with addresses that must never be checked.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

mod greedy;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{health_check::HealthCheck, resource::ServiceKey, service::Protocol},
    primitives::{name::Name, quantity::Weight},
    program::Target,
    wire::report::{CheckReport, CheckState},
};
use node_agent::{
    dataplane::Refusals,
    health::{self, CHECKS_IN_FLIGHT_PER_SERVICE_MAX, Running, plan::Changes},
    tally::Tally,
};
use serde_json::{Value, json};

use crate::{
    answering::{Answering, Authority, hang, page},
    support::{
        Namespace,
        programs::{key, port},
    },
};

/// Maximum time to wait for an expected change.
const PATIENCE: Duration = Duration::from_secs(30);

/// Node that probes endpoints. All of 10.9.0.0/16 is local, packets to 10.8.0.0/16 are dropped, and there is
/// no other route.
struct Node {
    namespace: Namespace,
    running: Running,
    tally: Tally,
}

impl Node {
    fn new(test: &str) -> Self {
        let namespace = Namespace::new(test);
        for address in ["10.9.0.1/16", "169.254.169.254/32"] {
            namespace.ip(&["addr", "add", address, "dev", "lo"]);
        }
        for address in ["fd09::1/128", "fd00:ec2::254/128"] {
            namespace.ip(&["addr", "add", address, "dev", "lo", "nodad"]);
        }
        // Without ARP, frames have the sender's own MAC address as destination, so the other end drops them.
        namespace.ip(&["link", "add", "void", "type", "veth", "peer", "name", "void-end"]);
        namespace.ip(&["link", "set", "void-end", "up"]);
        namespace.ip(&["link", "set", "void", "arp", "off", "up"]);
        namespace.ip(&["route", "add", "10.8.0.0/16", "dev", "void"]);
        let tally = Tally::default();
        let running = namespace.run(|| health::start(name(), tally.health.clone()).unwrap());
        let checkers = Some(BTreeSet::from([name()]));
        running.checking.follow(Changes { checkers, ..Changes::default() });
        Self { namespace, running, tally }
    }

    /// Configures the health check `check` and the endpoints of a Service. `None` removes the health check.
    fn set(&self, service: &str, check: Option<&Value>, endpoints: &[&str]) {
        let mut compiled = CompiledService::new(service_key(service));
        compiled.health_check = check.map(health_check).map(Box::new);
        compiled.ports = endpoints.iter().map(|endpoint| compiled_port(endpoint.parse().unwrap())).collect();
        let services = BTreeMap::from([(service_key(service), Some(Arc::new(compiled)))]);
        self.running.checking.follow(Changes { services, checkers: None });
    }

    fn reports(&self, service: &str) -> Vec<CheckReport> {
        let checked = self.running.shown.borrow();
        checked
            .services
            .get(&service_key(service))
            .map(|reports| reports.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Waits until the health reports of a Service satisfy `condition`, and returns them.
    fn until(&self, service: &str, condition: impl Fn(&[CheckReport]) -> bool) -> Vec<CheckReport> {
        let end = Instant::now() + PATIENCE;
        loop {
            let reports = self.reports(service);
            if condition(&reports) {
                return reports;
            }
            assert!(Instant::now() < end, "{service} stays {reports:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until all endpoints of a Service are in a state, and returns the message of the first.
    fn until_state(&self, service: &str, state: CheckState) -> String {
        let reports = self.until(service, |reports| {
            !reports.is_empty() && reports.iter().all(|report| report.state == state)
        });
        reports[0].message.clone()
    }

    fn results(&self, result: &'static str) -> u64 {
        self.tally.health.checks.get_or_create(&[("result", result)]).get()
    }
}

fn name() -> Name {
    Name::parse("n1").unwrap()
}

/// Returns the key of a Service that is given as `namespace/name`, or as a name in namespace `default`.
fn service_key(text: &str) -> ServiceKey {
    if text.contains('/') { ServiceKey::try_from(text.to_owned()).unwrap() } else { key(text) }
}

/// Builds a health check with the fields in `said`. All other fields have defaults with short intervals, with
/// which a single result changes the state.
fn health_check(said: &Value) -> HealthCheck {
    let mut check = json!({"intervalMs": 100, "timeoutMs": 20_000, "rise": 1, "fall": 1});
    for (field, value) in said.as_object().unwrap() {
        check[field] = value.clone();
    }
    serde_json::from_value(check).unwrap()
}

fn compiled_port(endpoint: SocketAddr) -> CompiledPort {
    let endpoint = CompiledEndpoint {
        address: endpoint.ip(),
        port: port(endpoint.port()),
        node: Some(name()),
        zone: None,
        weight: Weight(1),
        ready: true,
        serving: true,
        terminating: false,
        maintenance: None,
        node_lost: false,
        checked_by_source: false,
    };
    let protocol = Protocol::Tcp;
    CompiledPort {
        name: None,
        protocol,
        port: port(80),
        end_port: None,
        node_port: None,
        endpoints: vec![endpoint],
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Endpoints that respond correctly to each kind of probe are healthy, in both address families.
#[test]
fn endpoints_that_answer_as_they_should_are_healthy() {
    let node = Node::new("hc-good");
    let authority = Authority::new();
    let of_name = authority.server("web.example", 2999);
    let of_address = authority.server("10.9.0.1", 2999);
    let at = |port: u16| format!("10.9.0.1:{port}");
    let ok = |_| page("200 OK", "", "all is well");
    let http = Answering::http(&node.namespace, &at(8001), ok);
    let v6 = Answering::http(&node.namespace, "[fd09::1]:8001", ok);
    let _https = Answering::https(&node.namespace, &at(8002), &of_name, ok(1));
    let _by_address = Answering::https(&node.namespace, &at(8003), &of_address, ok(1));
    let serving: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    let grpc = Answering::grpc(&node.namespace, &at(8004), None, serving, "0");
    let _grpc_tls = Answering::grpc(&node.namespace, &at(8005), Some(of_name), serving, "0");
    let udp = Answering::udp(&node.namespace, &at(8006), Some("pong!"));
    let tcp = Answering::tcp(&node.namespace, &at(8007), |_, stream| drop(stream));
    let (ca, tls) = (authority.pem(), json!({"serverName": "web.example", "ca": authority.pem()}));
    let path = "/healthz?deep=1";
    let body = json!({"path": path, "host": "web.example", "expectBody": "is well"});
    for (service, endpoint, check, words) in [
        ("http", at(8001), json!({"type": "Http", "http": body}), "answered 200 OK"),
        (
            "http6",
            "[fd09::1]:8001".to_owned(),
            json!({"type": "Http", "http": {"method": "HEAD"}}),
            "answered 200 OK",
        ),
        ("https", at(8002), json!({"type": "Https", "tls": tls}), "answered 200 OK"),
        ("by-host", at(8002), json!({"type": "Https", "http": body, "tls": {"ca": ca}}), "answered 200 OK"),
        ("by-address", at(8003), json!({"type": "Https", "tls": {"ca": ca}}), "answered 200 OK"),
        ("any", at(8002), json!({"type": "Https", "tls": {"insecureSkipVerify": true}}), "answered 200 OK"),
        ("grpc", at(8004), json!({"type": "Grpc", "grpc": {"service": "db"}}), "answered SERVING"),
        (
            "grpc-tls",
            at(8005),
            json!({"type": "Grpc", "grpc": {"tls": true}, "tls": tls}),
            "answered SERVING",
        ),
        (
            "udp",
            at(8006),
            json!({"type": "Udp", "udp": {"send": "ping", "expect": "pong"}}),
            "answered 5 bytes",
        ),
        ("tcp", at(8007), json!({"type": "Tcp"}), "accepted the connection"),
        // A port of the check, different from that of the endpoint.
        ("other-port", at(9999), json!({"type": "Tcp", "port": 8007}), "accepted the connection"),
    ] {
        node.set(service, Some(&check), &[&endpoint]);
        assert_eq!(node.until_state(service, CheckState::Healthy), words, "{service}");
    }
    let request = &http.requests()[0];
    assert!(request.starts_with("get /healthz?deep=1 http/1.1\r\n"), "{request}");
    assert!(request.contains("host: web.example\r\n"), "{request}");
    let request = &v6.requests()[0];
    assert!(request.starts_with("head / http/1.1\r\nhost: [fd09::1]:8001\r\n"), "{request}");
    let called = "http://10.9.0.1:8004/grpc.health.v1.Health/Check [0, 0, 0, 0, 4, 10, 2, 100, 98]";
    assert_eq!(grpc.requests()[0], called);
    assert_eq!(udp.requests()[0], "ping");
    until("both checks of one server", || tcp.hits() >= 2);
    assert!(node.results("good") >= 11);
    let ports: Vec<_> = node.reports("other-port").iter().map(|report| report.port.get()).collect();
    assert_eq!(ports, [8007]);
}

/// Starts servers on ports 8001 to 8017 of 10.9.0.1. Each has a different fault.
fn broken_servers(namespace: &Namespace, authority: &Authority) -> Vec<Answering> {
    let at = |port: u16| format!("10.9.0.1:{port}");
    let tls = |port, name, year| {
        let config = authority.server(name, year);
        Answering::https(namespace, &at(port), &config, page("200 OK", "", ""))
    };
    let http = |port, answer: String| Answering::http(namespace, &at(port), move |_| answer.clone());
    let grpc = |port, message, status| Answering::grpc(namespace, &at(port), None, message, status);
    let endless = "x".repeat(200_000);
    let headers = format!("X-Long: {}\r\n", "y".repeat(300_000));
    vec![
        http(8001, page("500 Whatever It Calls Itself", "", "")),
        http(8002, page("200 OK", "", "all is bad")),
        http(8003, "SSH-2.0-OpenSSH_9.9\r\n".to_owned()),
        http(8004, page("302 Found", "Location: http://10.9.0.1:8001/\r\n", "")),
        http(8005, format!("HTTP/1.1 200 OK\r\n\r\n{endless}is well")),
        http(8006, page("200 OK", &headers, "")),
        Answering::tcp(namespace, &at(8007), |_, stream| hang(stream)),
        Answering::tcp(namespace, &at(8008), |_, stream| drop(stream)),
        tls(8009, "other.example", 2999),
        tls(8010, "web.example", 2021),
        grpc(8011, &[0, 0, 0, 0, 2, 8, 2], "0"),
        grpc(8012, &[], "12"),
        grpc(8013, &[0, 0, 0, 0, 9, 8, 1], "0"),
        Answering::udp(namespace, &at(8014), Some("nonsense")),
        Answering::udp(namespace, &at(8015), None),
        Answering::tcp(namespace, &at(8017), |_, mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            hang(stream);
        }),
        // One byte after another: each arrives in time, but not the whole response.
        Answering::tcp(namespace, &at(8016), |_, mut stream| {
            let slowly = |byte: &u8| {
                thread::sleep(Duration::from_millis(50));
                stream.write_all(&[*byte]).is_ok()
            };
            let _ = page("200 OK", "", "").as_bytes().iter().all(slowly);
        }),
    ]
}

/// Each fault of a server makes its endpoint unhealthy, with a message that describes the fault.
#[test]
fn each_way_to_be_broken_is_unhealthy_and_said_in_words() {
    let node = Node::new("hc-bad");
    let authority = Authority::new();
    let at = |port: u16| format!("10.9.0.1:{port}");
    let _servers = broken_servers(&node.namespace, &authority);
    let trusted = json!({"serverName": "web.example", "ca": authority.pem()});
    let strangers = json!({"serverName": "web.example", "ca": Authority::new().pem()});
    let body = json!({"expectBody": "is well"});
    let udp = json!({"type": "Udp", "timeoutMs": 300, "udp": {"send": "ping", "expect": "pong"}});
    let silent = "no answer within 300 ms";
    for (service, endpoint, check, words) in [
        ("refused", at(8000), json!({"type": "Tcp"}), "connection refused"),
        ("vanished", "10.8.0.1:80".to_owned(), json!({"type": "Tcp", "timeoutMs": 300}), silent),
        ("no-route", "10.7.0.1:80".to_owned(), json!({"type": "Tcp"}), "there is no route to the endpoint"),
        ("status", at(8001), json!({"type": "Http"}), "answered 500 Internal Server Error"),
        (
            "text",
            at(8002),
            json!({"type": "Http", "http": body}),
            "answered 200 OK without the expected text",
        ),
        ("no-http", at(8003), json!({"type": "Http"}), "answered something else than HTTP"),
        (
            "redirect",
            at(8004),
            json!({"type": "Http", "http": {"expectStatus": [200]}}),
            "answered 302 Found",
        ),
        (
            "long-body",
            at(8005),
            json!({"type": "Http", "http": body}),
            "answered 200 OK without the expected text",
        ),
        ("long-headers", at(8006), json!({"type": "Http"}), "answered something else than HTTP"),
        ("hangs", at(8007), json!({"type": "Http", "timeoutMs": 300}), silent),
        ("hangs-tls", at(8007), json!({"type": "Https", "timeoutMs": 300}), silent),
        ("hangs-grpc", at(8007), json!({"type": "Grpc", "timeoutMs": 300}), silent),
        (
            "name",
            at(8009),
            json!({"type": "Https", "tls": trusted}),
            "the certificate is not valid for web.example",
        ),
        ("expired", at(8010), json!({"type": "Https", "tls": trusted}), "the certificate has expired"),
        (
            "stranger",
            at(8009),
            json!({"type": "Https", "tls": strangers}),
            "the certificate is not signed by an authority that is trusted",
        ),
        ("not-serving", at(8011), json!({"type": "Grpc"}), "answered NOT_SERVING"),
        (
            "no-method",
            at(8012),
            json!({"type": "Grpc"}),
            "does not speak the health protocol (UNIMPLEMENTED)",
        ),
        ("cut", at(8013), json!({"type": "Grpc"}), "answered no health message: it ends too early"),
        ("udp-text", at(8014), udp.clone(), "answered 8 bytes without the expected text"),
        ("udp-silent", at(8015), udp.clone(), silent),
        ("udp-refused", at(8000), udp, "connection refused"),
        ("slow", at(8016), json!({"type": "Http", "timeoutMs": 300}), silent),
    ] {
        node.set(service, Some(&check), &[&endpoint]);
        assert_eq!(node.until_state(service, CheckState::Unhealthy), words, "{service}");
    }
    // The error of a connection closed without data depends on timing.
    node.set("closed", Some(&json!({"type": "Http"})), &[&at(8008)]);
    let words = node.until_state("closed", CheckState::Unhealthy);
    assert!(words.starts_with("the connection was "), "{words}");
    node.set("no-tls", Some(&json!({"type": "Https"})), &[&at(8017)]);
    let words = node.until_state("no-tls", CheckState::Unhealthy);
    assert!(words.starts_with("the TLS handshake failed: "), "{words}");
    assert_eq!(node.results("good"), 0);
    for result in ["refused", "unreachable", "silent", "wrong_answer", "tls"] {
        assert!(node.results(result) > 0, "{result}");
    }
}

/// An endpoint becomes healthy only after `rise` consecutive successes, and unhealthy only after `fall`
/// consecutive failures. Shorter series of results do not change its state.
#[test]
fn an_endpoint_that_flaps_changes_only_after_enough_in_a_row() {
    let node = Node::new("hc-flaps");
    // Healthy after 2, unhealthy after the 10th, healthy again after the 14th.
    let script = "ggbbgbbbgbbbgbgg";
    let (falls_at, rises_at) = (script.find("bbb").unwrap() + 3, script.rfind("gg").unwrap() + 2);
    let server = Answering::http(&node.namespace, "10.9.0.1:8001", move |number| {
        match script.as_bytes().get(number - 1) {
            Some(b'b') => page("503 Service Unavailable", "", ""),
            _ => page("200 OK", "", ""),
        }
    });
    let mut shown = node.running.shown.clone();
    let check = json!({"type": "Http", "rise": 2, "fall": 3});
    node.set("web", Some(&check), &["10.9.0.1:8001"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let states = runtime.block_on(async {
        let mut states = Vec::new();
        while states.len() < 4 {
            tokio::time::timeout(PATIENCE, shown.changed()).await.expect("the next state").unwrap();
            let hits = server.hits();
            let checked = shown.borrow_and_update();
            let Some(reports) = checked.services.get(&key("web")) else { continue };
            let state = reports.values().next().unwrap().state;
            if states.last().is_none_or(|(last, _)| *last != state) {
                states.push((state, hits));
            }
        }
        states
    });
    let (order, hits): (Vec<_>, Vec<_>) = states.into_iter().unzip();
    use CheckState::{Healthy, Pending, Unhealthy};
    assert_eq!(order, [Pending, Healthy, Unhealthy, Healthy]);
    assert!(hits[1] >= 2 && hits[2] >= falls_at && hits[3] >= rises_at, "{hits:?}");
    println!("states after {hits:?} answers of {script}");
}

/// An endpoint that starts slowly is pending, not unhealthy: failures do not count before the first success.
#[test]
fn an_endpoint_that_starts_slowly_is_pending_and_not_unhealthy() {
    let node = Node::new("hc-start");
    let server = Answering::http(&node.namespace, "10.9.0.1:8001", |number| match number {
        5 | 6 => page("200 OK", "", ""),
        _ => page("503 Service Unavailable", "", ""),
    });
    let mut check = json!({"type": "Http", "rise": 2, "fall": 2, "startDelayMs": 3_600_000});
    node.set("web", Some(&check), &["10.9.0.1:8001"]);
    let words = "answered 503 Service Unavailable; does not count during the start delay";
    node.until("web", |reports| reports.iter().any(|report| report.message == words));
    assert_eq!(node.until_state("web", CheckState::Healthy), "answered 200 OK");
    assert!(server.hits() >= 6);
    assert_eq!(node.until_state("web", CheckState::Unhealthy), "answered 503 Service Unavailable");
    // A changed threshold keeps the state.
    check["fall"] = json!(9);
    node.set("web", Some(&check), &["10.9.0.1:8001"]);
    let hits = server.hits();
    until("further checks", || server.hits() > hits + 2);
    assert_eq!(node.until_state("web", CheckState::Unhealthy), "answered 503 Service Unavailable");
}

/// Redirects, such as to cloud metadata or the node itself, are not followed, and a host header does not
/// change the destination: the servers named in the redirect or in the header are never contacted.
#[test]
fn redirects_are_answers_and_never_followed_and_a_host_header_leads_nowhere() {
    let node = Node::new("hc-redirect");
    let secret = |_| page("200 OK", "", "secret");
    let targets: Vec<_> = ["169.254.169.254:80", "127.0.0.1:80", "10.9.0.2:80", "[::1]:80"]
        .iter()
        .map(|address| Answering::http(&node.namespace, address, secret))
        .collect();
    let locations =
        ["http://169.254.169.254/latest", "http://127.0.0.1/", "http://10.9.0.2/", "http://[::1]/"];
    for (index, location) in locations.into_iter().enumerate() {
        let endpoint = format!("10.9.0.1:{}", 8001 + index);
        let codes =
            ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"];
        let server = Answering::http(&node.namespace, &endpoint, move |number| {
            page(
                codes[number % codes.len()],
                &format!("Location: {location}\r\nRefresh: 0; url={location}\r\n"),
                "",
            )
        });
        // By default redirects count as success.
        let http = json!({"host": "169.254.169.254", "path": "//127.0.0.1/"});
        node.set("web", Some(&json!({"type": "Http", "http": http})), &[&endpoint]);
        node.until_state("web", CheckState::Healthy);
        until("an answer of each kind", || server.requests().len() >= codes.len());
        let request = server.requests()[0].clone();
        assert!(request.starts_with("get //127.0.0.1/ http/1.1\r\nhost: 169.254.169.254\r\n"), "{request}");
        // The expected body must be in the response of the endpoint, not in that of the redirect target.
        let http = json!({"expectBody": "secret"});
        node.set("web", Some(&json!({"type": "Http", "http": http})), &[&endpoint]);
        let words = node.until_state("web", CheckState::Unhealthy);
        assert!(words.ends_with(" without the expected text"), "{words}");
    }
    assert_eq!(targets.iter().map(Answering::hits).sum::<usize>(), 0);
}

/// Endpoints at forbidden addresses are never contacted. They stay pending, with the reason as message. The
/// test runs servers at those addresses that this machine can have.
#[test]
fn forbidden_addresses_are_blocked_at_connect_time_and_stay_pending_with_the_reason() {
    let node = Node::new("hc-ssrf");
    let had = ["127.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fd00:ec2::254]:80"];
    let traps: Vec<_> = had
        .iter()
        .map(|address| Answering::tcp(&node.namespace, address, |_, stream| drop(stream)))
        .chain([Answering::udp(&node.namespace, "127.0.0.1:80", Some("pong"))])
        .collect();
    let good = Answering::tcp(&node.namespace, "10.9.0.1:80", |_, stream| drop(stream));
    // Other notations of the same, and multicast and broadcast addresses.
    let others = ["0.0.0.0:80", "[::ffff:127.0.0.1]:80", "[::127.0.0.1]:80", "[::]:80", "224.0.0.1:80"];
    let far = ["255.255.255.255:80", "[fe80::1]:80", "[ff02::1]:80", "[64:ff9b::169.254.169.254]:80"];
    let all: Vec<_> = had.into_iter().chain(others).chain(far).collect();
    let types = [
        json!({"type": "Tcp"}),
        json!({"type": "Http"}),
        json!({"type": "Https", "tls": {"insecureSkipVerify": true}}),
        json!({"type": "Grpc"}),
        json!({"type": "Udp", "udp": {"send": "ping"}}),
    ];
    for check in &types {
        node.set("bad", Some(check), &all);
        let reports = node.until("bad", |reports| reports.len() == all.len());
        for report in reports {
            assert_eq!(report.state, CheckState::Pending, "{report:?}");
            assert!(report.message.starts_with("is not checked: the address is "), "{report:?}");
        }
    }
    // Meanwhile other endpoints are still checked.
    node.set("good", Some(&types[0]), &["10.9.0.1:80"]);
    node.until_state("good", CheckState::Healthy);
    until("further checks", || good.hits() >= 3);
    assert_eq!(traps.iter().map(Answering::hits).sum::<usize>(), 0);
    assert!(node.reports("bad").iter().all(|report| report.state == CheckState::Pending));
}

/// A change or removal of a health check takes effect at once, even while a check is in progress.
#[test]
fn a_check_that_is_changed_or_taken_away_ends_at_once() {
    let node = Node::new("hc-change");
    let hanging = Answering::tcp(&node.namespace, "10.9.0.1:8001", |_, stream| hang(stream));
    let web = Answering::http(&node.namespace, "10.9.0.1:8002", |_| page("200 OK", "", ""));
    let both = ["10.9.0.1:8001", "10.9.0.1:8002"];
    let check = json!({"type": "Http", "intervalMs": 3_600_000, "timeoutMs": 3_600_000});
    node.set("web", Some(&check), &both);
    // The first check may be delayed by a tenth of the interval, which is not waited for.
    node.set("web", Some(&json!({"type": "Http", "timeoutMs": 3_600_000})), &both);
    until("the first checks", || hanging.hits() >= 1);
    node.until("web", |reports| {
        reports.iter().map(|report| report.state).collect::<Vec<_>>()
            == [CheckState::Pending, CheckState::Healthy]
    });
    node.set("web", Some(&json!({"type": "Tcp"})), &both);
    node.until_state("web", CheckState::Healthy);
    until("another question", || hanging.hits() >= 2);

    node.set("web", Some(&json!({"type": "Tcp"})), &both[..1]);
    node.until("web", |reports| reports.len() == 1);
    // A request sent before the removal may still be on its way to the server.
    let further = |count| {
        let before = hanging.hits();
        until("further checks", || hanging.hits() >= before + count);
    };
    further(3);
    let settled = web.hits();
    further(10);
    assert!(web.hits() <= settled + 2, "{} after {settled}", web.hits());

    // An invalid CA is not a failure of the endpoint.
    node.set("web", Some(&json!({"type": "Https", "tls": {"ca": "nonsense"}})), &both);
    let words = node.until_state("web", CheckState::Pending);
    assert_eq!(words, "is not checked: the certificate authority holds no certificate");
    node.set("web", None, &both);
    node.until("web", <[_]>::is_empty);
    assert!(node.running.shown.borrow().services.is_empty());
}

/// Even if more endpoints of one Service hang than checks may run at the same time, the endpoints of other
/// Services are checked.
#[test]
fn a_service_whose_endpoints_all_hang_does_not_keep_others_from_being_checked() {
    let node = Node::new("hc-many");
    let good = Answering::tcp(&node.namespace, "10.9.0.1:80", |_, stream| drop(stream));
    let count = CHECKS_IN_FLIGHT_PER_SERVICE_MAX + 50;
    let hanging: Vec<_> = (0..count).map(|n| format!("10.8.{}.{}:80", n / 250, 1 + n % 250)).collect();
    let hanging: Vec<_> = hanging.iter().map(String::as_str).collect();
    node.set("hanging", Some(&json!({"type": "Tcp", "timeoutMs": 3_600_000})), &hanging);
    until("some wait", || node.tally.health.waiting.get() == 50);
    node.set("good", Some(&json!({"type": "Tcp"})), &["10.9.0.1:80"]);
    node.until_state("good", CheckState::Healthy);
    until("further checks", || good.hits() >= 3);
    assert!(node.reports("hanging").iter().all(|report| report.state == CheckState::Pending));
    node.set("hanging", None, &[]);
    until("nothing waits", || node.tally.health.waiting.get() == 0);
}

/// F148: with passive checks, a healthy endpoint that refuses a number of consecutive client connections
/// becomes unhealthy at once. The active checks can make it healthy again. Services without passive checks
/// are not affected.
#[test]
fn f148_connections_that_clients_see_refused_count_at_once() {
    let node = Node::new("hc-passive");
    let _server = Answering::tcp(&node.namespace, "10.9.0.1:8001", |_, stream| drop(stream));
    let at = ["10.9.0.1:8001"];
    let check = json!({"type": "Tcp", "intervalMs": 5000, "timeoutMs": 5000, "fall": 3});
    let mut wanting = check.clone();
    wanting["passive"] = json!(true);
    for (service, check) in [("wants", &wanting), ("ignores", &check)] {
        node.set(service, Some(check), &at);
        assert_eq!(node.until_state(service, CheckState::Healthy), "accepted the connection");
    }
    let refuse = |in_a_row: u64| {
        let row = |service: &str| Refusals {
            service: key(service),
            target: Target { address: "10.9.0.1".parse().unwrap(), port: Some(port(8001)) },
            in_a_row,
        };
        node.running.checking.refuse(if in_a_row == 0 { vec![] } else { vec![row("wants"), row("ignores")] });
    };
    let end = Instant::now() + PATIENCE;
    let fallen = loop {
        // An unread sample is replaced by a later one.
        for in_a_row in [0, 3] {
            refuse(in_a_row);
            thread::sleep(Duration::from_millis(20));
        }
        let report = node.reports("wants").remove(0);
        if report.state == CheckState::Unhealthy {
            break report;
        }
        assert!(Instant::now() < end, "{report:?}");
    };
    assert_eq!(fallen.message, "refused 3 connections of clients in a row");
    assert_eq!(node.reports("ignores")[0].state, CheckState::Healthy);
    assert_eq!(node.until_state("wants", CheckState::Healthy), "accepted the connection");
}
