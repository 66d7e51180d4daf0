//! Knot DNS and BIND as secondary name servers of a DnsZone: zone transfers and notifications of `tidegate-dns`, with and
//! without signatures.

use std::fs;

use lab::{
    cluster::deployment::{Cluster, Options},
    host::wait,
    processes::process::{Plan, Process},
};
use serde_json::{Value, json};

use crate::{
    discovery::{Dns, dig_at, start},
    dns_external,
    dns_update::{UPDATE_KEY, updates_fail_without_control, updates_with_a_key_are_writes},
    forwarding::metric,
};

/// Port of Knot DNS.
const KNOT_PORT: &str = "5302";
/// Port of BIND.
const BIND_PORT: &str = "5303";
/// Key of BIND, for `dig` and in the form of a DnsZone.
const KEY: &str = "hmac-sha256:secondary.example.org:c2VjcmV0IG9mIHRoZSBsYWIgb2YgdGlkZWdhdGUgMTI=";

/// Secondary name server of a test with its directory.
struct Secondary {
    process: Process,
    /// Removed when the test ends.
    _directory: tempfile::TempDir,
}

/// Starts a secondary name server of `example.org` beside `tidegate-dns`, with a configuration file in its directory, in
/// which `PATH` is the directory and `PORT` the port.
fn start_secondary(dns: &Dns, program: &str, port: &str, configuration: &str) -> Secondary {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let file = directory.path().join("configuration");
    fs::write(&file, configuration.replace("PATH", &path).replace("PORT", port)).unwrap();
    let mut arguments = vec!["-c".to_owned(), file.display().to_string()];
    if program == "named" {
        arguments.extend(["-g", "-n", "1"].map(str::to_owned));
    }
    let process = Process::start(Plan {
        label: program.to_owned(),
        namespace: dns.namespace.clone(),
        program: format!("/usr/sbin/{program}").into(),
        arguments,
        environment: Vec::new(),
        log: directory.path().join("log"),
    })
    .unwrap();
    // Without a response, as before the server listens, `dig` fails.
    let ask = ["@127.0.0.1", "-p", port, "+tries=1", "+time=2", "example.org", "SOA"];
    wait::until_true(program, || dns.namespace.run("dig", &ask).is_ok()).unwrap();
    Secondary { process, _directory: directory }
}

/// Configuration of Knot DNS, which transfers the zone without a key from an allowed address, and accepts notifications with
/// a key only.
const KNOT: &str = "server:
  listen: 127.0.0.1@PORT
  rundir: PATH
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
log:
  - target: stderr
    any: info
database:
  storage: PATH
key:
  - id: secondary.example.org
    algorithm: hmac-sha256
    secret: SECRET
remote:
  - id: primary
    address: 127.0.0.1@5300
acl:
  - id: notify
    address: 127.0.0.1
    key: secondary.example.org
    action: notify
zone:
  - domain: example.org
    storage: PATH
    master: primary
    acl: notify
";

/// Returns the configuration of BIND, which transfers the zone with a key from an address that is not allowed without one.
fn bind_configuration(secret: &str) -> String {
    format!(
        "options {{
  directory \"PATH\"; pid-file \"PATH/pid\"; session-keyfile \"PATH/session\"; lock-file none;
  listen-on port PORT {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
  recursion no; minimal-responses yes; dnssec-validation no; notify no; transfer-source 127.0.0.3;
}};
controls {{}};
key \"secondary.example.org\" {{ algorithm hmac-sha256; secret \"{secret}\"; }};
zone \"example.org\" {{
  type secondary; file \"PATH/zone\"; allow-notify {{ 127.0.0.1; }};
  primaries port 5300 {{ 127.0.0.1 key secondary.example.org; }};
}};
"
    )
}

pub(crate) fn secret() -> &'static str {
    KEY.rsplit_once(':').unwrap().1
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
        "transfer": { "allow": ["127.0.0.1/32"],
                      "notify": [format!("127.0.0.1:{KNOT_PORT}"), format!("127.0.0.1:{BIND_PORT}")],
                      "notifyKey": "secondary.example.org" },
        "allowedNamespaces": ["shop"],
        "keys": [
            { "name": "secondary.example.org", "operations": ["Transfer"], "secret": secret() },
            { "name": UPDATE_KEY.0, "operations": ["Update"], "secret": UPDATE_KEY.1 },
        ],
    } })
}

/// F146: Knot DNS and BIND transfer a zone and follow its changes by signed notifications within seconds, long before the
/// refresh time, with transfers of the changes only: Knot DNS from an allowed address, BIND with a key (TSIG). Other clients
/// may not transfer the zone.
#[test]
fn f146_knot_and_bind_follow_a_zone_as_secondary_name_servers() {
    let mut cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&[zone("192.0.2.1")]).unwrap();
    let mut dns = start(&cluster, &[dns_external::ARGUMENT]);
    dns.wait_ready();
    let knot = start_secondary(&dns, "knotd", KNOT_PORT, &KNOT.replace("SECRET", secret()));
    let bind = start_secondary(&dns, "named", BIND_PORT, &bind_configuration(secret()));
    let ask = |port: &str, name: &str, kind: &str| {
        dig_at(&dns.namespace, port, &["+tcp", "+norec"], &[(name, kind)]).remove(0)
    };
    for port in [KNOT_PORT, BIND_PORT] {
        let has = |address: &str| ask(port, "www.example.org", "A").contains(address);
        wait::until_true("the transfer", || has("192.0.2.1")).unwrap();
        for (name, kind) in [
            ("alias.example.org", "A"),
            ("t39.example.org", "TXT"),
            ("ns.example.org", "AAAA"),
            ("missing.example.org", "A"),
            ("www.example.org", "TXT"),
            ("example.org", "SOA"),
        ] {
            let answer = ask(port, name, kind);
            assert_eq!(answer, dns.dig(&["+tcp"], &[(name, kind)]).remove(0), "{port} {name} {kind}");
        }
    }
    cluster.apply_objects(&[zone("192.0.2.2")]).unwrap();
    for port in [KNOT_PORT, BIND_PORT] {
        let has = |address: &str| ask(port, "www.example.org", "A").contains(address);
        wait::until_true("the change", || has("192.0.2.2")).unwrap();
        assert!(!has("192.0.2.1"));
    }
    assert_eq!(metric(&dns, "tidegate_dns_notify_failures_total"), 0);
    let knot_log = knot.process.log();
    assert!(knot_log.contains("IXFR, incoming") && !knot_log.contains("AXFR-style"), "{knot_log}");
    let bind_log = bind.process.log();
    assert!(
        bind_log.contains("received notify for zone 'example.org': TSIG 'secondary.example.org'"),
        "{bind_log}"
    );
    // The start of authority four times, and the old and the new address.
    assert!(bind_log.contains("Transfer completed: 1 messages, 6 records"), "{bind_log}");
    only_permitted_clients_transfer_the_zone(&dns);
    changes_are_transferred_to_clients_with_the_zone(&cluster, &dns);
    let service = json!({ "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "type": "LoadBalancer", "hostnames": ["shop.example.org"], "ports": [{ "port": 80 }] } });
    cluster.apply_objects(&[service]).unwrap();
    wait::until_true("the Service", || dns.one("shop.example.org", "A").contains("NOERROR")).unwrap();
    updates_with_a_key_are_writes(&cluster, &dns);
    for port in [KNOT_PORT, BIND_PORT] {
        let has_update = || ask(port, "new.example.org", "AAAA").contains("2001:db8::7");
        wait::until_true("the update", has_update).unwrap();
    }
    dns_external::external_dns_changes_are_writes(&cluster, &dns);
    updates_fail_without_control(&mut cluster, &dns);
    // The keys are on disk too.
    dns.process.terminate().unwrap();
    dns.process.start_again().unwrap();
    dns.wait_ready();
    signed_questions_have_signed_answers(&dns);
}

fn only_permitted_clients_transfer_the_zone(dns: &Dns) {
    let transfer = |source: &str, kind: &str, key: Option<&str>| {
        // The exit code of a failed transfer depends on the version.
        let key = key.map(|key| format!("-y {key}")).unwrap_or_default();
        let command = format!("dig @127.0.0.1 -p 5300 -b {source} {key} example.org {kind} || true");
        dns.namespace.run("sh", &["-c", &command]).unwrap()
    };
    for (source, key) in [("127.0.0.1", None), ("127.0.0.2", Some(KEY))] {
        let whole = transfer(source, "AXFR", key);
        assert_eq!(whole.matches("SOA").count(), 2, "{whole}");
        assert!(whole.contains("XFR size: 168 records"), "{whole}");
        // `dig` reports signatures that it cannot verify.
        assert!(!whole.contains("verify"), "{whole}");
        assert_eq!(whole.contains("hmac-sha256"), key.is_some(), "{whole}");
    }
    let other_secret = "hmac-sha256:secondary.example.org:YW5vdGhlciBzZWNyZXQgdGhhdCBpcyB3cm9uZzEyMzQ=";
    let other_operation = format!("hmac-sha256:{}:{}", UPDATE_KEY.0, UPDATE_KEY.1);
    let unknown_key = KEY.replace("secondary", "unknown");
    for (key, error) in [
        (None, "Transfer failed"),
        (Some(other_secret), "BADSIG"),
        (Some(&*unknown_key), "BADKEY"),
        (Some(&*other_operation), "Transfer failed"),
    ] {
        let refused = transfer("127.0.0.2", "AXFR", key);
        assert!(refused.contains(error) && !refused.contains("192.0.2.2"), "{error}: {refused}");
    }
    signed_questions_have_signed_answers(dns);
}

/// `dig` gets the changes since a serial number whose zone it has transferred before, and otherwise the whole zone.
fn changes_are_transferred_to_clients_with_the_zone(cluster: &Cluster, dns: &Dns) {
    let transfer = |source: &str, serial: &str| {
        let kind = format!("ixfr={serial}");
        let words = ["@127.0.0.1", "-p", "5300", "-b", source, "-y", KEY, "example.org", &kind];
        dns.namespace.run("dig", &words).unwrap()
    };
    let soa =
        dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "+short", "example.org", "SOA"]).unwrap();
    let serial = soa.split_whitespace().nth(2).unwrap();
    cluster.apply_objects(&[zone("192.0.2.3")]).unwrap();
    wait::until_true("the change", || dns.one("www.example.org", "A").contains("192.0.2.3")).unwrap();
    let changes = transfer("127.0.0.1", serial);
    for address in ["192.0.2.2", "192.0.2.3"] {
        assert!(changes.contains(address) && changes.contains("XFR size: 6 records"), "{changes}");
    }
    for (source, serial) in [("127.0.0.4", serial), ("127.0.0.1", "7")] {
        let whole = transfer(source, serial);
        assert!(whole.contains("XFR size: 168 records") && !whole.contains("192.0.2.2"), "{source}: {whole}");
    }
    let newer = (serial.parse::<u32>().unwrap() + 1000).to_string();
    let alone = transfer("127.0.0.1", &newer);
    assert!(alone.contains("XFR size: 1 records"), "{alone}");
    let text = dns.status.get("/metrics").unwrap().text;
    assert!(text.contains("tidegate_dns_questions_total{outcome=\"IncrementalTransfer\"}"), "{text}");
}

fn signed_questions_have_signed_answers(dns: &Dns) {
    let signed =
        dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "-y", KEY, "www.example.org"]).unwrap();
    assert!(signed.contains("NOERROR") && signed.contains("TSIG PSEUDOSECTION"), "{signed}");
    assert!(!signed.contains("verify"), "{signed}");
    // Half of the hash, in both directions.
    let truncated = KEY.replace("hmac-sha256", "hmac-sha256-128");
    let signed = dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "-y", &truncated, "www.example.org"]);
    let signed = signed.unwrap();
    assert!(
        signed.contains("NOERROR") && signed.contains(" 300 16 ") && !signed.contains("verify"),
        "{signed}"
    );
}
