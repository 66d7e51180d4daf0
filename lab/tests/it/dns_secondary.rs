//! Knot DNS as a secondary name server of a DnsZone: zone transfers and notifications of `tidegate-dns`.

use std::fs;

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    processes::process::{Plan, Process},
};
use serde_json::{Value, json};

use crate::{
    discovery::{Dns, dig_at, start},
    forwarding::metric,
};

/// Port of the secondary name server.
const PORT: &str = "5302";

/// Secondary name server of a test with its directory.
struct Secondary {
    _process: Process,
    /// Removed when the test ends.
    _directory: tempfile::TempDir,
}

/// Starts Knot DNS beside `tidegate-dns` as a secondary name server of `example.org`.
fn start_secondary(dns: &Dns) -> Secondary {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let configuration = format!(
        "server:\n  listen: 127.0.0.1@{PORT}\n  rundir: {path}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
         log:\n  - target: stderr\n    any: info\n\
         database:\n  storage: {path}\n\
         remote:\n  - id: primary\n    address: 127.0.0.1@5300\n\
         acl:\n  - id: notify\n    address: 127.0.0.1\n    action: notify\n\
         zone:\n  - domain: example.org\n    storage: {path}\n    master: primary\n    acl: notify\n"
    );
    let file = directory.path().join("knot.conf");
    fs::write(&file, configuration).unwrap();
    let process = Process::start(Plan {
        label: "knotd".to_owned(),
        namespace: dns.namespace.clone(),
        program: "/usr/sbin/knotd".into(),
        arguments: vec!["-c".to_owned(), file.display().to_string()],
        environment: Vec::new(),
        log: directory.path().join("log"),
    })
    .unwrap();
    // Without a response, as before the server listens, `dig` fails.
    let ask = ["@127.0.0.1", "-p", PORT, "+tries=1", "+time=2", "example.org", "SOA"];
    wait::until_true("Knot DNS", || dns.namespace.run("dig", &ask).is_ok()).unwrap();
    Secondary { _process: process, _directory: directory }
}

/// Returns a DnsZone with an address, texts that need several messages, and an alias.
fn zone(address: &str) -> Value {
    let long = (0..40).map(|number| {
        let values: Vec<_> = (0..4).map(|value| format!("{value}{}", "x".repeat(1000))).collect();
        json!({ "name": format!("t{number}.example.org"), "type": "TXT", "values": values })
    });
    let records = [
        json!({ "name": "www.example.org", "type": "A", "values": [address] }),
        json!({ "name": "alias.example.org", "type": "CNAME", "values": ["www.example.org"] }),
        json!({ "name": "example.org", "type": "MX", "values": ["10 www.example.org"] }),
    ];
    json!({ "kind": "DnsZone", "metadata": { "name": "example" }, "spec": {
        "zone": "example.org", "records": records.into_iter().chain(long).collect::<Vec<_>>(),
        "transfer": { "allow": ["127.0.0.1/32"], "notify": [format!("127.0.0.1:{PORT}")] },
    } })
}

/// F146: Knot DNS transfers a zone and follows its changes by notifications within seconds, long before the refresh time.
/// Other clients may not transfer the zone.
#[test]
fn f146_knot_follows_a_zone_as_a_secondary_name_server() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&[zone("192.0.2.1")]).unwrap();
    let mut dns = start(&cluster, &[]);
    dns.wait_ready();
    let _secondary = start_secondary(&dns);
    let ask =
        |name: &str, kind: &str| dig_at(&dns.namespace, PORT, &["+tcp", "+norec"], &[(name, kind)]).remove(0);
    let is_same = |name: &str, kind: &str| ask(name, kind) == dns.dig(&["+tcp"], &[(name, kind)]).remove(0);
    wait::until_true("the transfer", || ask("www.example.org", "A").contains("192.0.2.1")).unwrap();
    for (name, kind) in [
        ("alias.example.org", "A"),
        ("t39.example.org", "TXT"),
        ("ns.example.org", "AAAA"),
        ("missing.example.org", "A"),
        ("www.example.org", "TXT"),
        ("example.org", "SOA"),
    ] {
        assert!(is_same(name, kind), "{name} {kind}: {}", ask(name, kind));
    }
    cluster.apply_objects(&[zone("192.0.2.2")]).unwrap();
    wait::until_true("the change", || ask("www.example.org", "A").contains("192.0.2.2")).unwrap();
    assert!(!ask("www.example.org", "A").contains("192.0.2.1"));
    assert_eq!(metric(&dns, "tidegate_dns_notify_failures_total"), 0);

    let transfer = |source: &str, kind: &str| {
        // The exit code of a failed transfer depends on the version.
        let command = format!("dig @127.0.0.1 -p 5300 -b {source} example.org {kind} || true");
        dns.namespace.run("sh", &["-c", &command]).unwrap()
    };
    let whole = transfer("127.0.0.1", "AXFR");
    assert_eq!(whole.matches("SOA").count(), 2, "{whole}");
    assert!(whole.contains("XFR size: 168 records"), "{whole}");
    let refused = transfer("127.0.0.2", "AXFR");
    assert!(refused.contains("Transfer failed") && !refused.contains("192.0.2.2"), "{refused}");
}
