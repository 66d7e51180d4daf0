//! Dynamic updates of a DnsZone by `nsupdate` of BIND and `knsupdate` of Knot DNS, each a write at the control server.

use std::fs;

use lab::cluster::deployment::Cluster;
use serde_json::json;

use crate::discovery::Dns;

/// Key that permits updates, with its secret.
pub(crate) const UPDATE_KEY: (&str, &str) =
    ("update.example.org", "dGhlIHNlY3JldCBvZiBhIHByb2dyYW0gdGhhdCB1cGRhdGU=");

/// Runs `nsupdate` of BIND with commands over TCP or UDP and returns its output, which is empty after success.
fn nsupdate(dns: &Dns, key: Option<(&str, &str)>, commands: &str) -> String {
    run_update(dns, "nsupdate", key, commands)
}

/// Runs `nsupdate`, or `knsupdate` of Knot DNS, which has the same commands.
fn run_update(dns: &Dns, program: &str, key: Option<(&str, &str)>, commands: &str) -> String {
    let key = key.map(|(name, secret)| format!("key hmac-sha256:{name} {secret}\n")).unwrap_or_default();
    let file = dns.directory().join("nsupdate");
    fs::write(&file, format!("server 127.0.0.1 5300\nzone example.org\n{key}{commands}\nsend\n")).unwrap();
    let command = format!("{program} -t 20 {} 2>&1 || true", file.display());
    dns.namespace.run("sh", &["-c", &command]).unwrap().trim().to_owned()
}

/// Updates with a permitted key are writes of the static records with the key as author: the server has them when it
/// responds. Without a valid key, outside of the zone, with a false prerequisite and for names of Services, nothing
/// changes.
pub(crate) fn updates_with_a_key_are_writes(cluster: &Cluster, dns: &Dns) {
    let update = |commands: &str| nsupdate(dns, Some(UPDATE_KEY), commands);
    assert_eq!(update("prereq nxdomain new.example.org\nupdate add new.example.org 60 A 192.0.2.77"), "");
    assert_eq!(dns.one("new.example.org", "A"), "  NOERROR\n  answer new.example.org 60 A 192.0.2.77");
    let history = cluster.api.get_json("/v1/history?limit=1").unwrap();
    let write = &history["items"][0];
    assert_eq!(write["author"], json!("dns-key/update.example.org"), "{history}");
    let zone = cluster.object("dnszones/example").unwrap();
    assert_eq!(zone["spec"]["keys"].as_array().map(Vec::len), Some(2), "keys stay");
    for (commands, error) in [
        ("prereq nxdomain new.example.org\nupdate add new.example.org 60 A 192.0.2.78", "YXDOMAIN"),
        ("prereq yxrrset new.example.org A 192.0.2.78\nupdate delete new.example.org", "NXRRSET"),
        ("update add www.example.com 60 A 192.0.2.78", "NOTZONE"),
        ("update add shop.example.org 60 A 192.0.2.78", "REFUSED"),
        ("update add new.example.org 60 PTR www.example.org", "REFUSED"),
    ] {
        let output = update(commands);
        assert!(output.contains(error), "{commands}: {output}");
    }
    for (key, error) in [
        (None, "REFUSED"),
        (Some(("unknown.example.org", UPDATE_KEY.1)), "NOTAUTH"),
        (Some((UPDATE_KEY.0, "YW5vdGhlciBzZWNyZXQgdGhhdCBpcyB3cm9uZzEyMzQ=")), "NOTAUTH"),
        (Some(("secondary.example.org", crate::dns_secondary::secret())), "REFUSED"),
    ] {
        let output = nsupdate(dns, key, "update delete new.example.org");
        assert!(output.contains(error), "{key:?}: {output}");
    }
    assert_eq!(cluster.object("dnszones/example").unwrap()["spec"], zone["spec"]);
    let same = cluster.api.get_json("/v1/history?limit=1").unwrap();
    assert_eq!(same["items"][0]["revision"], write["revision"]);
    // Several changes are one write; texts may have the name of a Service.
    let commands = "update delete new.example.org A 192.0.2.77\nupdate add shop.example.org 60 TXT \"owner=other\"\n\
                    update add new.example.org 60 AAAA 2001:db8::7";
    assert_eq!(update(commands), "");
    assert_eq!(dns.one("new.example.org", "AAAA"), "  NOERROR\n  answer new.example.org 60 AAAA 2001:db8::7");
    assert!(dns.one("shop.example.org", "TXT").contains("owner=other"));
    updates_of_knot(cluster, dns);
}

/// `knsupdate` of Knot DNS signs and writes its updates in its own way.
fn updates_of_knot(cluster: &Cluster, dns: &Dns) {
    let update = |key: Option<(&str, &str)>, commands: &str| run_update(dns, "knsupdate", key, commands);
    let add = "prereq nxdomain knot.example.org.\nupdate add knot.example.org. 60 A 192.0.2.79";
    assert_eq!(update(Some(UPDATE_KEY), add), "");
    assert_eq!(dns.one("knot.example.org", "A"), "  NOERROR\n  answer knot.example.org 60 A 192.0.2.79");
    let history = cluster.api.get_json("/v1/history?limit=1").unwrap();
    assert_eq!(history["items"][0]["author"], json!("dns-key/update.example.org"), "{history}");
    assert!(update(Some(UPDATE_KEY), add).contains("YXDOMAIN"));
    let delete = "update delete knot.example.org. A";
    assert!(update(None, delete).contains("REFUSED"));
    let other = (UPDATE_KEY.0, "YW5vdGhlciBzZWNyZXQgdGhhdCBpcyB3cm9uZzEyMzQ=");
    let output = update(Some(other), delete);
    assert!(!output.is_empty() && dns.one("knot.example.org", "A").contains("192.0.2.79"), "{output}");
    assert_eq!(update(Some(UPDATE_KEY), delete), "");
    assert!(dns.one("knot.example.org", "A").starts_with("  NXDOMAIN"));
}

/// Without a control server, updates fail with SERVFAIL, which clients repeat, and answers go on.
pub(crate) fn updates_fail_without_control(cluster: &mut Cluster, dns: &Dns) {
    cluster.server.kill();
    let output = nsupdate(dns, Some(UPDATE_KEY), "update delete new.example.org");
    assert!(output.contains("SERVFAIL"), "{output}");
    assert!(dns.one("new.example.org", "AAAA").contains("2001:db8::7"));
}
