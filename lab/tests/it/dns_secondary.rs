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
    _process: Process,
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
    Secondary { _process: process, _directory: directory }
}

/// Configuration of Knot DNS, which transfers the zone without a key from an allowed address.
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
remote:
  - id: primary
    address: 127.0.0.1@5300
acl:
  - id: notify
    address: 127.0.0.1
    action: notify
zone:
  - domain: example.org
    storage: PATH
    master: primary
    acl: notify
";

/// Returns the configuration of BIND, which transfers the zone with a key from an address that is not allowed without one.
fn bind(secret: &str) -> String {
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
                      "notify": [format!("127.0.0.1:{KNOT_PORT}"), format!("127.0.0.1:{BIND_PORT}")] },
        "allowedNamespaces": ["shop"],
        "keys": [
            { "name": "secondary.example.org", "operations": ["Transfer"], "secret": secret() },
            { "name": UPDATE_KEY.0, "operations": ["Update"], "secret": UPDATE_KEY.1 },
        ],
    } })
}

/// F146: Knot DNS and BIND transfer a zone and follow its changes by notifications within seconds, long before the refresh
/// time: Knot DNS from an allowed address, BIND with a key (TSIG). Other clients may not transfer the zone.
#[test]
fn f146_knot_and_bind_follow_a_zone_as_secondary_name_servers() {
    let mut cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    cluster.apply_objects(&[zone("192.0.2.1")]).unwrap();
    let mut dns = start(&cluster, &[dns_external::ARGUMENT]);
    dns.wait_ready();
    let _knot = start_secondary(&dns, "knotd", KNOT_PORT, KNOT);
    let _bind = start_secondary(&dns, "named", BIND_PORT, &bind(secret()));
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
    only_permitted_clients_transfer_the_zone(&dns);
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

fn signed_questions_have_signed_answers(dns: &Dns) {
    let signed =
        dns.namespace.run("dig", &["@127.0.0.1", "-p", "5300", "-y", KEY, "www.example.org"]).unwrap();
    assert!(signed.contains("NOERROR") && signed.contains("TSIG PSEUDOSECTION"), "{signed}");
    assert!(!signed.contains("verify"), "{signed}");
}
