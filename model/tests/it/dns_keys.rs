//! Keys of DnsZones: validation, secrets that responses never contain, and the permission of transfers.

use model::{
    admission::{
        admit::Refusal,
        decode::{Expect, decode},
    },
    cluster::{change::Action, history::differences},
    discovery::dns::{DnsQuestion, RecordType, TransferDecision, Zone, judge_transfer},
    wire::dns_keys::DnsKeyList,
};
use serde_json::{Value, json};

use crate::{dns::settings, support::Cluster};

const SECRETS: [&str; 2] = ["MDEyMzQ1Njc4OWFiY2RlZg==", "c2VjcmV0IG9mIHRoZSBsYWIgb2YgdGlkZWdhdGUgMTI="];

fn zone(keys: Value) -> Value {
    json!({ "apiVersion": "tidegate/v1", "kind": "DnsZone", "metadata": { "name": "example" },
            "spec": { "zone": "example.org", "keys": keys } })
}

fn key(name: &str, operations: &[&str], secret: Option<&str>) -> Value {
    let mut key = json!({ "name": name, "operations": operations });
    if let Some(secret) = secret {
        key["secret"] = secret.into();
    }
    key
}

/// Returns the secrets that DNS servers receive.
fn secrets(cluster: &Cluster) -> Vec<(String, String)> {
    let list = DnsKeyList::of(&cluster.snapshot);
    assert_eq!(list.revision, cluster.snapshot.revision());
    list.keys.iter().map(|key| (key.name.to_string(), key.secret.reveal().to_owned())).collect()
}

/// A write without the secret of a key keeps the present one, and a removed key is gone with its secret. No response
/// contains a secret.
#[test]
fn secrets_are_kept_with_the_names_of_their_keys_and_never_shown() {
    let mut cluster = Cluster::new();
    let both = [key("a", &["Transfer"], Some(SECRETS[0])), key("b", &["Transfer"], Some(SECRETS[1]))];
    cluster.apply(&zone(json!(both))).unwrap();
    let before = cluster.get("dnszones//example").clone();
    let shown = before.to_json().to_string();
    assert!(shown.contains(r#""operations":["Transfer"]"#) && !shown.contains("secret"), "{shown}");
    assert!(!format!("{before:?}").contains(SECRETS[0]));
    assert_eq!(cluster.apply(&before.to_json()).unwrap(), Action::Unchanged);
    let known = [("a".to_owned(), SECRETS[0].to_owned()), ("b".to_owned(), SECRETS[1].to_owned())];
    assert_eq!(secrets(&cluster), known);
    // Another order.
    let turned = [key("b", &["Transfer"], None), key("a", &["Transfer"], None)];
    cluster.apply(&zone(json!(turned))).unwrap();
    assert_eq!(secrets(&cluster), [known[1].clone(), known[0].clone()]);
    let middle = cluster.get("dnszones//example").clone();
    cluster.apply(&zone(json!([turned[0], key("a", &["Transfer"], Some(SECRETS[1]))]))).unwrap();
    let (changes, _) = differences(Some(&middle), Some(cluster.get("dnszones//example")));
    let hidden = Some(json!("(hidden)"));
    let [change] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&*change.pointer, &change.before, &change.after), ("/spec/keys/1/secret", &hidden, &hidden));
    cluster.apply(&zone(json!([turned[0]]))).unwrap();
    assert_eq!(secrets(&cluster), [known[1].clone()]);
    let Err(Refusal::Invalid(found)) = cluster.apply(&zone(json!(turned))) else {
        panic!("a secret is missing")
    };
    assert_eq!((found.len(), &*found[0].pointer), (1, "/items/0/spec/keys/1/secret"));
}

#[test]
fn invalid_keys_are_rejected_without_a_copy_of_the_secret() {
    let good = || key("a", &["Transfer"], Some(SECRETS[0]));
    for (keys, pointer) in [
        (json!([key("a", &[], Some(SECRETS[0]))]), "/spec/keys/0/operations"),
        (json!([key("a", &["Transfer"], Some("aHVudGVyMg=="))]), "/spec/keys/0/secret"),
        (json!([key("a", &["Transfer"], Some("hunter2"))]), "/spec/keys/0/secret"),
        (json!([good(), good()]), "/spec/keys/1/name"),
        (json!([key("A", &["Transfer"], Some(SECRETS[0]))]), "/spec/keys/0/name"),
        (
            json!(
                (0..17)
                    .map(|index| key(&format!("k{index}"), &["Transfer"], Some(SECRETS[0])))
                    .collect::<Vec<_>>()
            ),
            "/spec/keys",
        ),
    ] {
        let found = decode(&zone(keys), &Expect::default()).unwrap_err();
        assert_eq!((found.len(), &*found[0].pointer), (1, pointer), "{found:?}");
        let text = format!("{found:?}");
        assert!(
            !text.contains("hunter2") && !text.contains("aHVudGVyMg") && !text.contains(SECRETS[0]),
            "{text}"
        );
    }
    // A section without networks needs a key that permits transfers.
    let other = json!([key("a", &["Update"], Some(SECRETS[0]))]);
    for (keys, is_valid) in [(json!([good()]), true), (other, false), (json!([]), false)] {
        let mut zone = zone(keys);
        zone["spec"]["transfer"] = json!({ "notify": ["192.0.2.53"] });
        assert_eq!(decode(&zone, &Expect::default()).is_ok(), is_valid, "{zone}");
    }
    // Notifications are signed with a key of the zone that secondary name servers have.
    let update = key("update", &["Update"], Some(SECRETS[1]));
    for (name, is_valid) in [("a", true), ("update", false), ("other", false)] {
        let mut zone = zone(json!([good(), update]));
        zone["spec"]["transfer"] = json!({ "notify": ["192.0.2.53"], "notifyKey": name });
        assert_eq!(decode(&zone, &Expect::default()).is_ok(), is_valid, "{zone}");
    }
}

/// A key permits the transfer of its own zone to any address, if it has the operation.
#[test]
fn a_key_permits_transfers_of_its_zone() {
    let mut cluster = Cluster::new();
    let keys = [key("a", &["Transfer"], Some(SECRETS[0])), key("b", &["Update"], Some(SECRETS[0]))];
    cluster.apply(&zone(json!(keys))).unwrap();
    let zone = Zone::new(settings(), cluster.snapshot.clone());
    let judge = |key| {
        let question = DnsQuestion::new("example.org", RecordType::Other);
        judge_transfer(&zone, &question, "192.0.2.1".parse().unwrap(), key)
    };
    assert!(matches!(judge(Some("a")), TransferDecision::Allowed(..)));
    for key in [None, Some("b"), Some("c")] {
        assert_eq!(judge(key), TransferDecision::Refused, "{key:?}");
    }
}
