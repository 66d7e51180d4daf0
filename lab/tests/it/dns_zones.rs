//! Zones of DnsZones, answered by `tidegate-dns`: static records, and the host names of Services, which have addresses
//! only while they are announced and have an endpoint in service; likewise the hosts of Ingresses.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::scene::BACKEND_PORT,
    host::{shell, wait},
    processes::binaries,
};
use serde_json::{Value, json};

use crate::discovery::{self, Dns};

/// Name of the Service of the test.
const NAME: &str = "www.example.org";
/// Load balancer addresses of the Service.
const ADDRESSES: [&str; 2] = ["172.17.8.220", "fd00:8::220"];
/// Host name of the Ingress of the test.
const HOST: &str = "shop.example.org";
/// Load balancer addresses of the Service in front of the gateways.
const EDGE: [&str; 2] = ["172.17.8.225", "fd00:8::225"];
/// Names that the wildcard host of another Ingress matches.
const APPS: [&str; 2] = ["any.apps.example.org", "a.b.apps.example.org"];
/// Ingresses of Kubernetes, as `kubectl get` prints them.
const INGRESS: &str = r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: shop, namespace: default }
spec:
  ingressClassName: edge
  rules:
    - host: shop.example.org
      http:
        paths:
          - { path: /, pathType: Prefix, backend: { service: { name: web, port: { number: 80 } } } }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: apps, namespace: default }
spec:
  ingressClassName: edge
  rules:
    - host: "*.apps.example.org"
      http:
        paths:
          - { path: /, pathType: Prefix, backend: { service: { name: web, port: { number: 80 } } } }
"#;
/// Service of Kubernetes with a host name in an annotation.
const ANNOTATED: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: note
  namespace: default
  annotations:
    external-dns.alpha.kubernetes.io/hostname: note.example.org
    metallb.io/loadBalancerIPs: 172.17.8.226,fd00:8::226
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  ports: [{ port: 80, targetPort: PORT }]
"#;
/// Time after the start of the control server for which the answers are watched.
const RESTART_WATCHED: Duration = Duration::from_secs(6);
/// Answer to a question for a name without records.
const NO_DATA: &str = "  NOERROR\n  authority example.org 5 SOA ns.example.org hostmaster.example.org 5";

fn objects() -> Vec<Value> {
    let record =
        |name: &str, kind: &str, values: Value| json!({ "name": name, "type": kind, "values": values });
    let records = [
        record("example.org", "MX", json!(["10 mail.example.org"])),
        record("mail.example.org", "A", json!(["192.0.2.25", "192.0.2.26"])),
        record("mail.example.org", "AAAA", json!(["2001:db8::25"])),
        record("alias.example.org", "CNAME", json!(["www.example.org"])),
        record("_sip._tcp.example.org", "SRV", json!(["10 60 5060 mail.example.org"])),
        record("long.example.org", "TXT", json!(["x".repeat(600)])),
    ];
    vec![
        json!({ "kind": "DnsZone", "metadata": { "name": "example" },
                "spec": { "zone": "example.org", "ttl": 60, "allowedNamespaces": ["default"], "records": records,
                          "transfer": { "allow": ["127.0.0.1/32"] } } }),
        json!({ "kind": "AddressPool", "metadata": { "name": "lan" }, "spec": { "addresses": ["172.17.8.220-172.17.8.229", "fd00:8::220-fd00:8::229"] } }),
        advertisement(),
    ]
}

fn advertisement() -> Value {
    json!({ "kind": "Advertisement", "metadata": { "name": "lan" }, "spec": {} })
}

fn service(namespace: &str, name: &str, hostname: &str, addresses: &[&str]) -> Value {
    json!({
        "kind": "Service", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "hostnames": [hostname],
            "loadBalancer": { "addresses": addresses }, "selector": { "app": "web" },
            "healthCheck": { "type": "Tcp", "intervalMs": 500, "timeoutMs": 500, "fall": 2, "rise": 2 },
            "ports": [{ "port": 80, "targetPort": BACKEND_PORT }],
        },
    })
}

/// Waits until both address records of the names are those of the Service and of the gateways, or all are absent.
#[track_caller]
fn wait_answer(dns: &Dns, what: &str, is_present: bool) {
    wait_addresses(dns, what, NAME, &ADDRESSES, is_present);
    wait_addresses(dns, what, HOST, &EDGE, is_present);
}

#[track_caller]
fn wait_addresses(dns: &Dns, what: &str, name: &str, addresses: &[&str; 2], is_present: bool) {
    for (kind, address) in [("A", addresses[0]), ("AAAA", addresses[1])] {
        let expected = format!("  NOERROR\n  answer {name} 60 {kind} {address}");
        let expected = if is_present { expected } else { NO_DATA.to_owned() };
        wait::until_true(&format!("{what}: {name} {kind}"), || dns.one(name, kind) == expected).unwrap();
    }
}

/// F146: the host of an Ingress, which `tidegate import` translates to a Gateway and an HttpRoute, has the load balancer
/// addresses of the Service with the namespace and name of the Gateway. The explanation names the route.
fn host_of_an_ingress(cluster: &Cluster, dns: &Dns) {
    import(cluster, dns, INGRESS);
    wait::until_true("the host without a Service", || dns.one(HOST, "A") == NO_DATA).unwrap();
    let mut edge = service("default", "edge", NAME, &EDGE);
    edge["spec"].as_object_mut().unwrap().remove("hostnames");
    cluster.apply_objects(&[edge]).unwrap();
    wait_addresses(dns, "host of an Ingress", HOST, &EDGE, true);
    for name in APPS {
        wait_addresses(dns, "wildcard host of an Ingress", name, &EDGE, true);
    }
    assert_eq!(dns.one("apps.example.org", "A"), NO_DATA, "the name above the wildcard name exists");
    let whole = dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "example.org", "AXFR"]).unwrap();
    let mut lines = whole.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert!(lines.any(|line| line == ["*.apps.example.org.", "60", "IN", "A", EDGE[0]]), "{whole}");
    let condition = |key: &str| {
        let route = cluster.object(key).unwrap();
        let all = route["status"]["conditions"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["type"] == "Resolvable").unwrap_or_default()
    };
    let resolvable = condition("namespaces/default/httproutes/shop");
    assert_eq!(resolvable["reason"], "NamesAnswered", "{resolvable}");
    let explanation = cluster.api.get_json(&format!("/v1/dns/explain?name={HOST}.")).unwrap();
    let record = &explanation["attempts"][0]["records"][0];
    let reason = "host name of HttpRoute `default/shop`; Gateway `default/edge` is published by Service `default/edge`";
    assert_eq!((record["data"].as_str(), record["reason"].as_str()), (Some(EDGE[0]), Some(reason)));
}

/// Applies objects of Kubernetes as `tidegate import` translates them.
fn import(cluster: &Cluster, dns: &Dns, text: &str) {
    let file = dns.directory().join("import.yaml");
    fs::write(&file, text).unwrap();
    let tidegate = binaries::find("tidegate").unwrap();
    let file = file.display().to_string();
    let objects = shell::run(tidegate.to_str().unwrap(), &["import", "--from", "kubernetes", &file]).unwrap();
    cluster.apply(&objects).unwrap();
}

/// F146: a host name of two Gateways has the addresses of one of their Services, in proportion to their weights.
fn weights_of_gateways(cluster: &Cluster, dns: &Dns) {
    let (name, addresses) =
        ("split.example.org", [["172.17.8.227", "fd00:8::227"], ["172.17.8.228", "fd00:8::228"]]);
    let gateway = |name: &str| {
        json!({ "kind": "Gateway", "metadata": { "name": name, "namespace": "default" },
                "spec": { "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }] } })
    };
    let route = json!({ "kind": "HttpRoute", "metadata": { "name": "split", "namespace": "default" }, "spec": {
        "parentRefs": [{ "name": "one" }, { "name": "two" }], "hostnames": [name],
        "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }],
    } });
    cluster.apply_objects(&[gateway("one"), gateway("two"), route]).unwrap();
    // Returns the different answers to many questions.
    let answers = || (0..40).map(|_| dns.one(name, "A")).collect::<BTreeSet<_>>();
    let expected = |of: &[usize]| {
        let answer = |which: &usize| format!("  NOERROR\n  answer {name} 60 A {}", addresses[*which][0]);
        of.iter().map(answer).collect::<BTreeSet<_>>()
    };
    for (weights, of) in [([1, 0], &[0][..]), ([0, 5], &[1]), ([1, 1], &[0, 1])] {
        let services = [("one", 0), ("two", 1)].map(|(service_name, which)| {
            let mut service = service("default", service_name, NAME, &addresses[which]);
            service["spec"].as_object_mut().unwrap().remove("hostnames");
            service["spec"]["loadBalancer"]["dnsWeight"] = json!(weights[which]);
            service
        });
        cluster.apply_objects(&services).unwrap();
        wait::until_true(&format!("answers with weights {weights:?}"), || answers() == expected(of)).unwrap();
    }
    for key in ["services/one", "services/two", "httproutes/split", "gateways/one", "gateways/two"] {
        cluster.delete(&format!("namespaces/default/{key}")).unwrap();
    }
}

/// F146: the annotation of ExternalDNS at a Service of Kubernetes is its host name.
fn host_of_an_annotation(cluster: &Cluster, dns: &Dns) {
    import(cluster, dns, &ANNOTATED.replace("PORT", &BACKEND_PORT.to_string()));
    let backend = cluster.object("namespaces/default/workloads/web-1").unwrap();
    let addresses = backend["spec"]["addresses"].as_array().unwrap();
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "address": address })).collect();
    let set = json!({ "kind": "EndpointSet", "metadata": { "name": "note" }, "spec": { "service": "note", "endpoints": endpoints } });
    cluster.apply_objects(&[set]).unwrap();
    let addresses = ["172.17.8.226", "fd00:8::226"];
    wait_addresses(dns, "host name of an annotation", "note.example.org", &addresses, true);
}

fn resolvable(cluster: &Cluster, key: &str) -> (String, String) {
    let service = cluster.service(key).unwrap();
    let all = service["status"]["conditions"].as_array().unwrap();
    let one = all.iter().find(|one| one["type"] == "Resolvable").unwrap();
    (one["reason"].as_str().unwrap().to_owned(), one["message"].as_str().unwrap_or_default().to_owned())
}

/// Returns the serial number of the zone.
fn serial(dns: &Dns) -> u32 {
    let arguments = ["@127.0.0.1", "-p", "5300", "+short", "example.org", "SOA"];
    let text = dns.namespace.run("dig", &arguments).unwrap();
    text.split_whitespace().nth(2).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// F146: static records are answered as written, over UDP and TCP.
fn static_records(dns: &Dns) {
    let cases = [
        ("example.org", "MX", "  NOERROR\n  answer example.org 60 MX 10 mail.example.org"),
        (
            "example.org",
            "NS",
            "  NOERROR\n  additional ns.example.org 60 A 10.96.0.53\n  additional ns.example.org 60 AAAA fd00:96::53\n  answer example.org 60 NS ns.example.org",
        ),
        (
            "example.org",
            "SOA",
            "  NOERROR\n  answer example.org 5 SOA ns.example.org hostmaster.example.org 5",
        ),
        (
            "mail.example.org",
            "A",
            "  NOERROR\n  answer mail.example.org 60 A 192.0.2.25\n  answer mail.example.org 60 A 192.0.2.26",
        ),
        ("mail.example.org", "AAAA", "  NOERROR\n  answer mail.example.org 60 AAAA 2001:db8::25"),
        ("mail.example.org", "TXT", NO_DATA),
        (
            "_sip._tcp.example.org",
            "SRV",
            "  NOERROR\n  answer _sip._tcp.example.org 60 SRV 10 60 5060 mail.example.org",
        ),
        ("_tcp.example.org", "A", NO_DATA),
        (
            "missing.example.org",
            "A",
            "  NXDOMAIN\n  authority example.org 5 SOA ns.example.org hostmaster.example.org 5",
        ),
        ("www.example.net", "A", "  REFUSED"),
    ];
    let questions: Vec<_> = cases.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    for options in [&["+bufsize=1232"][..], &["+tcp"]] {
        for ((name, kind, expected), found) in cases.iter().zip(dns.dig(options, &questions)) {
            assert_eq!(found, *expected, "{name} {kind} {options:?}");
        }
    }
    // A long text is divided into strings of 255 bytes.
    let text = dns.one("long.example.org", "TXT");
    assert_eq!(text.matches(&"x".repeat(90)).count(), 5, "{text}");
    assert_eq!(text.matches('"').count(), 6, "{text}");
}

/// F146: the host name of a Service, and the host of an Ingress, are answered with load balancer addresses while they are
/// announced and an endpoint is in service; otherwise without an address. Control away, the answers stay.
#[test]
fn f146_host_names_of_services_and_ingresses_follow_announcement_and_health() {
    let mut cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    cluster.apply_objects(&objects()).unwrap();
    let mut dns = discovery::start(&cluster, &[]);
    dns.wait_ready();
    wait::until_true("the zone", || dns.one("mail.example.org", "AAAA").contains("2001:db8::25")).unwrap();
    static_records(&dns);
    let missing = dns.one(NAME, "A");
    assert!(missing.starts_with("  NXDOMAIN"), "{missing}");

    cluster.add_backend("web-1", "node2", 11, "web").unwrap();
    cluster.apply_objects(&[service("default", "web", NAME, &ADDRESSES)]).unwrap();
    wait_addresses(&dns, "new Service", NAME, &ADDRESSES, true);
    host_of_an_ingress(&cluster, &dns);
    host_of_an_annotation(&cluster, &dns);
    weights_of_gateways(&cluster, &dns);
    assert_eq!(resolvable(&cluster, "default/web").0, "NamesAnswered");
    let alias = "  NOERROR\n  answer alias.example.org 60 CNAME www.example.org\n  answer www.example.org 60 A 172.17.8.220";
    assert_eq!(dns.one("alias.example.org", "A"), alias);

    // A Service of another namespace, and a later one, do not get the name.
    for (namespace, name) in [("other", "thief"), ("default", "younger")] {
        let number = if namespace == "other" { 1 } else { 2 };
        let addresses = [format!("172.17.8.22{number}"), format!("fd00:8::22{number}")];
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        cluster.apply_objects(&[service(namespace, name, NAME, &addresses)]).unwrap();
    }
    assert_eq!(resolvable(&cluster, "other/thief").0, "NamespaceNotAllowed");
    let (reason, message) = resolvable(&cluster, "default/younger");
    assert_eq!(reason, "NameTaken");
    assert!(message.contains("default/web"), "{message}");
    wait_answer(&dns, "competing Services", true);

    // The only endpoint fails and returns. Secondary name servers see each change by the serial number.
    let before = serial(&dns);
    cluster.topology.stop_serving("web-1");
    wait_answer(&dns, "failed endpoint", false);
    assert!(serial(&dns) > before);
    let (reason, message) = resolvable(&cluster, "default/web");
    assert_eq!(reason, "NoAddressInService", "{message}");
    assert!(message.contains("no endpoint of the IP family"), "{message}");
    cluster.topology.serve("web-1", BACKEND_PORT).unwrap();
    wait_answer(&dns, "recovered endpoint", true);

    // The announcement ends and returns.
    let before = serial(&dns);
    cluster.delete("advertisements/lan").unwrap();
    wait_answer(&dns, "end of the announcement", false);
    assert!(serial(&dns) > before);
    let (reason, message) = resolvable(&cluster, "default/web");
    assert_eq!(reason, "NoAddressInService", "{message}");
    assert!(message.contains("172.17.8.220 is not announced"), "{message}");
    cluster.apply_objects(&[advertisement()]).unwrap();
    wait_answer(&dns, "new announcement", true);

    // A control server that has just started, to which the nodes have not reported, changes no answer.
    cluster.restart_control().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < RESTART_WATCHED {
        assert_eq!(dns.one(NAME, "A"), format!("  NOERROR\n  answer {NAME} 60 A {}", ADDRESSES[0]));
    }

    // Without control servers the answers stay, also after a restart.
    let file = dns.directory().join("zone.jsonl");
    wait::until_true("the announced address on disk", || {
        fs::read_to_string(&file)
            .is_ok_and(|text| text.lines().next().is_some_and(|head| head.contains(EDGE[0])))
    })
    .unwrap();
    cluster.server.kill();
    dns.process.terminate().unwrap();
    dns.process.start_again().unwrap();
    dns.wait_ready();
    wait_answer(&dns, "restart without control", true);
}
