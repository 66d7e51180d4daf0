//! Test that a support bundle has the state of the cluster and no secret.

use std::{collections::BTreeMap, fs, io::Read as _, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::stub::{JSON, PROBLEM, Stub, command, ended, write_answer};

/// Returns the files of an archive, each with its text.
fn files(archive: &[u8]) -> BTreeMap<String, String> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut bytes).unwrap();
    let (mut files, mut at) = (BTreeMap::new(), 0);
    while bytes[at] != 0 {
        let text = |from: usize, length: usize| {
            String::from_utf8(bytes[at + from..at + from + length].to_vec())
                .unwrap()
                .trim_matches(['\0', ' '])
                .to_owned()
        };
        let size = usize::from_str_radix(&text(124, 12), 8).unwrap();
        let sum: u32 =
            (0..512).map(|i| if (148..156).contains(&i) { 32 } else { u32::from(bytes[at + i]) }).sum();
        assert_eq!(u32::from_str_radix(&text(148, 7), 8).unwrap(), sum, "checksum");
        files.insert(text(0, 100), text(512, size));
        at += 512 + size.next_multiple_of(512);
    }
    files
}

#[test]
fn a_support_bundle_has_the_state_of_the_cluster_and_no_secret() {
    let stub = Stub::new(|_, request, stream| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let answer = if path.starts_with("/v1/audit") {
            let problem = json!({ "status": 403, "code": "Forbidden", "detail": "not allowed" });
            return write_answer(stream, "403 Forbidden", PROBLEM, &problem.to_string());
        } else if path.starts_with("/v1/bgppeers") {
            let peer = json!({ "kind": "BgpPeer", "metadata": { "name": "tor", "annotations": { "example.org/api-token": "canary-1" } },
                               "spec": { "password": "canary-2", "peerAddress": "192.0.2.1" } });
            json!({ "metadata": {}, "items": [peer] })
        } else if path.starts_with("/v1/nodes/n1/doctor") {
            json!({ "node": "n1", "findings": [] })
        } else if path.starts_with("/v1/nodes") {
            json!({ "metadata": {}, "items": [{ "kind": "Node", "metadata": { "name": "n1" }, "spec": {} }] })
        } else if path.starts_with("/v1/history") {
            json!({ "items": [{ "revision": 1, "message": "with tg_canary3", "fields": [
                { "pointer": "/spec/password", "before": "canary-4", "after": "canary-5" }] }] })
        } else {
            json!({ "metadata": {}, "items": [] })
        };
        write_answer(stream, "200 OK", JSON, &answer.to_string());
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bundle.tar.gz");
    let mut command = command(&stub.url, &["support-bundle", "-o", path.to_str().unwrap()]);
    let (code, out, err) = ended(command.env("TIDEGATE_TOKEN", "tg_canary3").output().unwrap());
    assert_eq!((code, out.trim()), (0, path.to_str().unwrap()), "{err}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let files = files(&fs::read(&path).unwrap());
    for (name, text) in &files {
        assert!(!text.contains("canary"), "{name}: {text}");
    }
    let file = |name: &str| {
        files.get(&format!("tidegate-support/{name}")).unwrap_or_else(|| panic!("{name}: {:?}", files.keys()))
    };
    assert!(
        file("objects/bgppeers.json").contains("192.0.2.1")
            && file("objects/bgppeers.json").contains("(redacted)")
    );
    for name in [
        "status.json",
        "versions.txt",
        "connection.txt",
        "history.json",
        "nodes/00-n1-doctor.json",
        "objects/services.json",
    ] {
        assert!(!file(name).is_empty(), "{name}");
    }
    assert!(file("errors.txt").contains("audit.json") && file("errors.txt").contains("not allowed"));
    let (code, _, err) = crate::stub::run(&stub.url, &["support-bundle", "-o", path.to_str().unwrap()]);
    assert!(code == 1 && err.contains("exists"), "an existing file is not overwritten: {err}");
}
