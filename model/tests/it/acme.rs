//! Certificates from ACME servers: settings, the results of orders, the answers to challenges, and conditions.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    admission::{
        admit::{Operation, Refusal, Request},
        decode::{Expect, decode},
    },
    cluster::{
        change::{Action, ObjectChange},
        history::differences,
    },
    http::{HttpObjectKey, HttpState, is_order_due, renewal_in_window, renewal_time, retry_delay},
    kinds::{
        certificate::{CertificateSpec, IssuanceRecord},
        condition_reason::ConditionReason,
        resource::Object,
    },
    observed::{
        rollup::certificate_status,
        status::{CertificateStatus, ConditionType},
    },
    primitives::{
        quantity::{Port, Revision, Timestamp},
        secret::Secret,
    },
    wire::certificate_keys::CertificateKeyList,
};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::support::Cluster;

/// Path of a challenge in tests.
const PATH: &str = "/.well-known/acme-challenge/token-1";

fn acme(name: &str, settings: Value) -> Value {
    json!({ "kind": "Certificate", "metadata": { "name": name }, "spec": { "acme": settings } })
}

fn time(text: &str) -> Timestamp {
    Timestamp::try_from(text.to_owned()).unwrap()
}

/// Returns a certificate of the year 2026 in PEM with its private key.
fn issued(names: &[&str]) -> (String, Secret) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 12, 31));
    (params.self_signed(&key).unwrap().pem(), Secret::new(key.serialize_pem()))
}

fn spec(cluster: &Cluster) -> CertificateSpec {
    cluster.get("certificates/default/www").as_certificate().unwrap().clone()
}

/// Stores the result of an order of the Certificate `www`, as the leader does.
fn store(cluster: &mut Cluster, record: IssuanceRecord, issued: Option<(String, Secret)>) {
    let certificate: HttpObjectKey = "default/www".parse().unwrap();
    let settings = Box::new(spec(cluster).acme.unwrap());
    let operations = vec![Operation::SetIssuance { certificate, settings, record, issued }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
}

fn status(cluster: &Cluster, now: &str) -> CertificateStatus {
    let object = cluster.get("certificates/default/www");
    certificate_status(&cluster.snapshot, &object.metadata, object.as_certificate().unwrap(), time(now))
}

fn reason(status: &CertificateStatus, wanted: ConditionType) -> (ConditionReason, String) {
    let found = status.conditions.iter().find(|condition| condition.condition_type == wanted).unwrap();
    (found.reason, found.message.clone())
}

#[test]
fn the_settings_of_an_order_are_checked() {
    let valid = json!({
        "dnsNames": ["www.example.org", "example.org"], "contacts": ["hostmaster@example.org"],
        "directory": "https://ca.example.org/dir", "externalAccount": { "keyId": "kid-1", "key": "aGVsbG8" },
    });
    assert!(decode(&acme("www", valid.clone()), &Expect::default()).is_ok());
    for (field, value, pointer) in [
        ("directory", json!("http://ca.example.org/dir"), "/spec/acme/directory"),
        ("directory", json!("https://kim@ca.example.org/dir"), "/spec/acme/directory"),
        ("directory", json!("https:///dir"), "/spec/acme/directory"),
        ("dnsNames", json!([]), "/spec/acme/dnsNames"),
        ("dnsNames", json!(["*.example.org"]), "/spec/acme/dnsNames/0"),
        ("dnsNames", json!(["a.example.org", "a.example.org"]), "/spec/acme/dnsNames/1"),
        ("contacts", json!(["example.org"]), "/spec/acme/contacts/0"),
        ("contacts", json!(["a@example.org?subject=x"]), "/spec/acme/contacts/0"),
        ("externalAccount", json!({ "keyId": "", "key": "aGVsbG8" }), "/spec/acme/externalAccount/keyId"),
        ("externalAccount", json!({ "keyId": "k", "key": "hunter 2" }), "/spec/acme/externalAccount/key"),
    ] {
        let mut settings = valid.clone();
        settings[field] = value;
        let found = decode(&acme("www", settings), &Expect::default()).unwrap_err();
        assert!(matches!(&found[..], [one] if one.pointer == pointer), "{field}: {found:?}");
        assert!(!format!("{found:?}").contains("hunter"), "{found:?}");
    }
    // Without an ACME server, the user gives the certificate.
    let empty = json!({ "kind": "Certificate", "metadata": { "name": "www" }, "spec": {} });
    assert_eq!(decode(&empty, &Expect::default()).unwrap_err()[0].pointer, "/spec/certificate");
}

/// The certificate and the state of the orders are kept by writes that leave them out, and users cannot set the state.
#[test]
fn users_write_settings_and_the_server_writes_certificates() {
    let mut cluster = Cluster::new();
    let account = |key: Value| json!({ "keyId": "kid-1", "key": key });
    let settings = |names: &[&str], account: Value| json!({ "dnsNames": names, "externalAccount": account });
    let first = acme("www", settings(&["www.example.org"], account(json!("c2VjcmV0"))));
    cluster.apply(&first).unwrap();
    assert!(is_order_due(&spec(&cluster), time("2026-01-01T00:00:00Z")));
    let (pem, key) = issued(&["www.example.org"]);
    let renew_at = Some(time("2026-08-01T00:00:00Z"));
    store(
        &mut cluster,
        IssuanceRecord { renew_at, ..IssuanceRecord::default() },
        Some((pem.clone(), key.clone())),
    );
    let before = cluster.get("certificates/default/www").clone();
    let shown = before.to_json();
    assert!(!shown.to_string().contains("PRIVATE") && !shown.to_string().contains("c2VjcmV0"), "{shown}");
    for same in [&first, &acme("www", settings(&["www.example.org"], account(Value::Null))), &shown] {
        assert_eq!(cluster.apply(same).unwrap(), Action::Unchanged);
    }
    let mut forged = shown.clone();
    forged["spec"]["issuance"]["challenges"] = json!({ "token": "answer" });
    let Err(Refusal::Invalid(found)) = cluster.apply(&forged) else { panic!("a user set a challenge") };
    assert_eq!(found[0].pointer, "/items/0/spec/issuance");
    let other = json!({ "keyId": "kid-2" });
    let Err(Refusal::Invalid(found)) = cluster.apply(&acme("www", settings(&["www.example.org"], other)))
    else {
        panic!("the key of another account was kept")
    };
    assert_eq!(found[0].pointer, "/items/0/spec/acme/externalAccount/key");
    // Other names keep the certificate until they have their own, and end pauses.
    let failed = IssuanceRecord { failures: 3, retry_after: renew_at, ..IssuanceRecord::default() };
    store(&mut cluster, failed, None);
    assert!(!is_order_due(&spec(&cluster), time("2026-07-31T00:00:00Z")));
    cluster
        .apply(&acme("www", settings(&["www.example.org", "a.example.org"], account(json!("bmV3")))))
        .unwrap();
    let next = spec(&cluster);
    assert_eq!((&next.certificate, &next.private_key, &next.issuance), (&pem, &Some(key), &None));
    assert!(is_order_due(&next, time("2026-01-02T00:00:00Z")));
    let (changes, _) = differences(Some(&before), Some(cluster.get("certificates/default/www")));
    let change = changes.iter().find(|change| change.pointer == "/spec/acme/externalAccount/key").unwrap();
    assert_eq!((&change.before, &change.after), (&Some(json!("(hidden)")), &Some(json!("(hidden)"))));
    // A result for other settings has no effect.
    let (certificate, record) = ("default/www".parse().unwrap(), IssuanceRecord::default());
    let settings = Box::new(before.as_certificate().unwrap().acme.clone().unwrap());
    let operations =
        vec![Operation::SetIssuance { certificate, settings, record, issued: Some(issued(&["b.org"])) }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(spec(&cluster), next);
}

/// A rollback of the settings keeps the newest certificate, because the older one may have been revoked.
#[test]
fn a_rollback_keeps_the_newest_certificate() {
    let mut cluster = Cluster::new();
    cluster.apply(&acme("www", json!({ "dnsNames": ["www.example.org"] }))).unwrap();
    store(&mut cluster, IssuanceRecord::default(), Some(issued(&["www.example.org"])));
    let former = cluster.get("certificates/default/www").clone();
    let newest = issued(&["www.example.org"]);
    store(&mut cluster, IssuanceRecord::default(), Some(newest.clone()));
    let if_revision = Some(cluster.get("certificates/default/www").metadata.revision());
    let operations = vec![Operation::Restore { object: former, if_revision }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(spec(&cluster).certificate, newest.0);
}

#[test]
fn orders_are_due_for_new_names_and_renewals_and_pauses_grow() {
    let mut cluster = Cluster::new();
    cluster.apply(&acme("www", json!({ "dnsNames": ["www.example.org"] }))).unwrap();
    let pem = issued(&["www.example.org"]);
    store(&mut cluster, IssuanceRecord::default(), Some(pem));
    // Two thirds of the year have passed at the end of August.
    for (now, expected) in [("2026-08-30T00:00:00Z", false), ("2026-09-02T00:00:00Z", true)] {
        assert_eq!(is_order_due(&spec(&cluster), time(now)), expected, "{now}");
    }
    let retry_after = Some(time("2026-09-03T00:00:00Z"));
    store(&mut cluster, IssuanceRecord { failures: 1, retry_after, ..IssuanceRecord::default() }, None);
    for (now, expected) in [("2026-09-02T23:59:59Z", false), ("2026-09-03T00:00:00Z", true)] {
        assert_eq!(is_order_due(&spec(&cluster), time(now)), expected, "{now}");
    }
    let delays: Vec<_> = (1..=9).map(|failures| retry_delay(failures, 0)).collect();
    assert_eq!(delays, [120, 240, 480, 960, 1920, 3840, 7680, 15360, 21600]);
    assert_eq!(retry_delay(u32::MAX, u64::MAX) / 21_600, 1);
    let facts = model::http::CertificateFacts::read(&spec(&cluster).certificate).unwrap();
    let renewals: BTreeSet<_> = (0..100).map(|number| renewal_time(&facts, number * 86_400)).collect();
    assert!(renewals.len() > 20, "{renewals:?}");
    let (first, last) = (renewals.first().unwrap(), renewals.last().unwrap());
    assert!(*first > time("2026-07-31T00:00:00Z") && *last < time("2026-09-01T00:00:00Z"), "{first} {last}");
    let window =
        |random| renewal_in_window(time("2026-03-01T00:00:00Z"), time("2026-03-01T00:00:09Z"), random);
    assert_eq!((window(0), window(19)), (time("2026-03-01T00:00:00Z"), time("2026-03-01T00:00:09Z")));
    assert_eq!(renewal_in_window(time("2026-03-01T00:00:00Z"), time("2026-02-01T00:00:00Z"), 7), window(0));
}

/// Gateways answer for the namespaces of their listeners only, and only at listeners without TLS. The answers change with
/// the Certificates.
#[test]
fn challenges_are_answered_at_the_listeners_of_the_namespace() {
    let mut cluster = Cluster::new();
    let listener = |name: &str, hostname: Option<&str>, port: u16, protocol: &str| {
        let mut one = json!({ "name": name, "port": port, "protocol": protocol });
        if let Some(hostname) = hostname {
            one["hostname"] = hostname.into();
        }
        if protocol == "HTTPS" {
            one["tls"] = json!({ "certificateRefs": [{ "name": "www" }] });
        }
        one
    };
    let gateway = |namespace: &str, listeners: Value| {
        let metadata = json!({ "name": "edge", "namespace": namespace });
        json!({ "kind": "Gateway", "metadata": metadata, "spec": { "listeners": listeners } })
    };
    let own = json!([listener("a", None, 80, "HTTP"), listener("b", None, 443, "HTTPS")]);
    cluster.apply(&gateway("default", own)).unwrap();
    cluster.apply(&gateway("other", json!([listener("a", Some("*.example.net"), 80, "HTTP")]))).unwrap();
    cluster.apply(&acme("www", json!({ "dnsNames": ["www.example.org"] }))).unwrap();
    let before = HttpState::new(Arc::new(BTreeSet::new()), cluster.snapshot.clone());
    let challenges = [("token-1".to_owned(), "token-1.thumbprint".to_owned())].into();
    store(&mut cluster, IssuanceRecord { challenges, ..IssuanceRecord::default() }, None);
    let state = HttpState::new(Arc::new(BTreeSet::new()), cluster.snapshot.clone());
    let put: Arc<Object> = Arc::new(cluster.get("certificates/default/www").clone());
    let updated = before.update(Revision(9), [ObjectChange::Put(put)]);
    assert_eq!(updated.table(), state.table());
    for (port, host, path, expected) in [
        (80, "www.example.org", PATH, Some("token-1.thumbprint")),
        (80, "", PATH, Some("token-1.thumbprint")),
        (80, "www.example.net", PATH, None),
        (443, "www.example.org", PATH, None),
        (81, "www.example.org", PATH, None),
        (80, "www.example.org", "/.well-known/acme-challenge/token-2", None),
        (80, "www.example.org", "/.well-known/acme-challenge/", None),
        (80, "www.example.org", "/token-1", None),
    ] {
        let answer = state.table().challenges.answer(Port::new(port).unwrap(), host, path);
        assert_eq!(answer, expected, "{port} {host} {path}");
    }
    assert_eq!(before.table().challenges.answer(Port::new(80).unwrap(), "www.example.org", PATH), None);
    // A listener without its certificate fails alone, and gateways receive no key.
    assert_eq!(CertificateKeyList::of(&cluster.snapshot, |_, _| true).keys, []);
}

#[test]
fn conditions_show_orders_and_their_failures() {
    let mut cluster = Cluster::new();
    cluster.apply(&acme("www", json!({ "dnsNames": ["www.example.org"] }))).unwrap();
    let now = "2026-06-01T00:00:00Z";
    let pending = status(&cluster, now);
    assert_eq!(reason(&pending, ConditionType::Ready).0, ConditionReason::OrderPending);
    assert_eq!(reason(&pending, ConditionType::Issued).0, ConditionReason::OrderPending);
    let record = IssuanceRecord {
        failures: 2,
        error: "www.example.org: connection refused".to_owned(),
        retry_after: Some(time("2026-06-01T00:04:00Z")),
        ..IssuanceRecord::default()
    };
    store(&mut cluster, record.clone(), None);
    let (failed, message) = reason(&status(&cluster, now), ConditionType::Issued);
    assert_eq!(failed, ConditionReason::OrderFailed);
    assert!(
        message.contains("connection refused (failures: 2); the next order follows at 2026-06-01T00:04:00Z")
    );
    store(&mut cluster, IssuanceRecord::default(), Some(issued(&["www.example.org"])));
    let good = status(&cluster, now);
    assert_eq!(reason(&good, ConditionType::Ready).0, ConditionReason::InValidity);
    assert_eq!(reason(&good, ConditionType::Issued).0, ConditionReason::Issued);
    assert_eq!(good.renew_at, Some(time("2026-08-31T16:00:00Z")));
    // A renewal that fails does not end the validity.
    store(&mut cluster, record, None);
    let failing = status(&cluster, "2026-12-20T00:00:00Z");
    assert_eq!(reason(&failing, ConditionType::Ready).0, ConditionReason::ExpiresSoon);
    assert_eq!(reason(&failing, ConditionType::Issued).0, ConditionReason::OrderFailed);
}
