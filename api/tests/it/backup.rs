//! Tests of backup, restore and migration with the real program, and of their effect on a server.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test may fail, and prints counts")]

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use model::primitives::quantity::Timestamp;
use serde_json::{Value, json};
use store::{Contents, Store, backup};

use crate::support;

/// Secret that a backup must contain and the output of commands must not contain.
const CANARY: &str = "canary-3f9c";

fn api(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-api")).env_clear().args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeeds(arguments: &[&str]) -> String {
    let output = api(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    let said = said(&output);
    assert!(!said.contains(CANARY), "{said}");
    said
}

fn fails(arguments: &[&str]) -> String {
    let output = api(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// Temporary directory with backup files and stores.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.file(name))
    }

    /// Opens a store after a stopped server of this process has released it.
    async fn open(&self, name: &str) -> Arc<dyn Store> {
        let now = Timestamp::from_unix_seconds(support::START);
        for _ in 0..1200 {
            match store::open(&self.url(name), now).await {
                Err(store::OpenError::InUse { .. }) => {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                opened => return opened.unwrap(),
            }
        }
        panic!("{name} stays in use");
    }

    /// Creates a store through a server, with two Services, a Node, and a BgpPeer with a password.
    async fn filled(&self, name: &str) {
        let server = support::start_on(
            support::settings(30000..=32767),
            self.open(name).await,
            support::Fixed::at(support::START),
        )
        .await;
        let objects = json!([
            { "kind": "Node", "metadata": { "name": "n1" }, "spec": {} },
            { "kind": "Service", "metadata": { "name": "a" }, "spec": { "ports": [{ "port": 80 }] } },
            { "kind": "Service", "metadata": { "name": "b" }, "spec": { "ports": [{ "port": 81 }] } },
            { "kind": "BgpPeer", "metadata": { "name": "tor" },
              "spec": { "peerAddress": "192.0.2.1", "peerASN": 65001, "password": CANARY } },
        ]);
        let (status, body) = server.call("POST", "/v1/apply", Some(objects)).await;
        assert_eq!(status, 200, "{body}");
        let support::Server { running, router, source: _ } = server;
        drop(router);
        running.stop().await;
        drop(self.open(name).await);
    }
}

async fn contents(store: &dyn Store) -> Contents {
    Contents::of(store, true).await.unwrap().1
}

/// A dry run of a restore over a changed store prints the difference and does not change the store. The
/// restore brings back the four objects of the backup, in a new epoch of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_restored_after_it_was_said_what_that_means() {
    let place = Place::new();
    place.filled("s").await;
    let (url, file) = (place.url("s"), place.file("backup"));
    let taken = succeeds(&["store", "backup", "--store", &url, "--to", &file, "--history"]);
    assert!(taken.contains("every secret"), "{taken}");
    assert_eq!(place.path("backup").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(place.path("backup")).unwrap().contains(CANARY), "passwords are in it");
    let again = fails(&["store", "backup", "--store", &url, "--to", &file]);
    assert!(again.contains("--to") && again.contains("exists"), "{again}");
    assert!(succeeds(&["store", "verify", &file]).contains("is intact"));
    let original = contents(&*place.open("s").await).await;

    let server = support::start_on(
        support::settings(30000..=32767),
        place.open("s").await,
        support::Fixed::at(support::START),
    )
    .await;
    let changed = json!({ "spec": { "ports": [{ "port": 8080 }] } });
    let request = Request::patch("/v1/namespaces/default/services/a")
        .header("if-match", "*")
        .header("content-type", "application/merge-patch+json");
    let answer = server.send(request.body(Body::from(changed.to_string())).unwrap()).await;
    assert_eq!(answer.status(), 200);
    let node = json!({ "metadata": { "name": "n2" }, "spec": {} });
    assert_eq!(server.call("POST", "/v1/nodes", Some(node)).await.0, 201);
    assert_eq!(server.call("DELETE", "/v1/namespaces/default/services/b", None).await.0, 200);
    // A store in use by a server is not touched.
    let restore = ["store", "restore", "--store", &url, "--from", &file];
    let in_use = fails(&[&restore[..], &["--yes"]].concat());
    assert!(in_use.contains("in use by process"), "{in_use}");
    let in_use = fails(&["store", "backup", "--store", &url, "--to", &place.file("other")]);
    assert!(in_use.contains("tidegate backup"), "{in_use}");
    let support::Server { running, router, source: _ } = server;
    drop(router);
    running.stop().await;

    let store = place.open("s").await;
    let before = (store.load().await.unwrap().position, contents(&*store).await);
    drop(store);
    let dry = succeeds(&[&restore[..], &["--dry-run"]].concat());
    assert!(dry.contains("- Node n2"), "{dry}");
    assert!(dry.contains("1 would be added") && dry.contains("nothing was changed"), "{dry}");
    assert!(fails(&restore).contains("--yes"), "without a terminal nobody is asked");
    let store = place.open("s").await;
    assert_eq!((store.load().await.unwrap().position, contents(&*store).await), before);
    drop(store);

    let done = succeeds(&[&restore[..], &["--yes"]].concat());
    assert!(done.contains("restored") && done.contains("revoke them again"), "{done}");
    let store = place.open("s").await;
    let after = store.load().await.unwrap().position;
    assert!(
        after.epoch > before.0.epoch && after.revision == original.revision,
        "{after} after {}",
        before.0
    );
    assert_eq!(contents(&*store).await, original);

    // A watch of the old epoch gets an error that makes the client start over; one of the new epoch
    // continues.
    let server =
        support::start_on(support::settings(30000..=32767), store, support::Fixed::at(support::START)).await;
    for old in [before.0.to_string(), original_position(&place.path("backup"))] {
        let (status, problem) = server.call("GET", &format!("/v1/watch?resume={old}"), None).await;
        assert_eq!((status, &problem["code"]), (410, &json!("ResumeExpired")), "{old}: {problem}");
        // An agent receives a full sync.
        let feed = Request::get(format!("/v1/nodes/n1/state?resume={old}"));
        let mut lines = support::Lines::new(server.send(feed.body(Body::empty()).unwrap()).await.into_body());
        let first = lines.next().await.unwrap();
        assert!(first.contains("\"full\""), "{old}: {first}");
    }
    // The audit log names the author of the restore, the backup, and the position before it.
    let (_, audit) = server.call("GET", "/v1/audit?limit=1", None).await;
    let entry = &audit["items"][0];
    assert_eq!(
        (&entry["path"], &entry["maker"]),
        (&json!("tidegate-api store restore"), &json!("server")),
        "{audit}"
    );
    let objects = entry["objects"].to_string();
    assert!(objects.contains(&file) && objects.contains(&before.0.to_string()), "{objects}");
    let (status, _) =
        server.call("POST", "/v1/nodes", Some(json!({ "metadata": { "name": "n3" }, "spec": {} }))).await;
    assert_eq!(status, 201);
    server.running.stop().await;
}

fn original_position(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let head: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    head["position"].as_str().unwrap().to_owned()
}

/// A backup that is truncated, of a newer version, or damaged at its beginning, middle or end is rejected, and the
/// store is not created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_newer_backup_touches_nothing() {
    let place = Place::new();
    place.filled("s").await;
    let file = place.file("backup");
    succeeds(&["store", "backup", "--store", &place.url("s"), "--to", &file]);
    let intact = std::fs::read(place.path("backup")).unwrap();
    let mut wrong = Vec::new();
    for at in [0, intact.len() / 2, intact.len() - 3] {
        let mut damaged = intact.clone();
        damaged[at] ^= 1;
        wrong.push(damaged);
    }
    wrong.push(intact[..intact.len() / 3].to_vec());
    let newer = String::from_utf8(intact).unwrap().replacen("\"version\":1", "\"version\":7", 1);
    wrong.push(newer.into_bytes());
    for bytes in wrong {
        std::fs::write(place.path("wrong"), bytes).unwrap();
        let refused = fails(&[
            "store",
            "restore",
            "--store",
            &place.url("new"),
            "--from",
            &place.file("wrong"),
            "--yes",
        ]);
        assert!(refused.contains("is not accepted") && !refused.contains(CANARY), "{refused}");
        fails(&["store", "verify", &place.file("wrong")]);
    }
    assert!(!place.path("new").exists());
    let dry = ["store", "restore", "--store", &place.url("new"), "--from", &file, "--dry-run"];
    assert!(succeeds(&dry).contains("new store"));
    assert!(!place.path("new").exists(), "a dry run makes no store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_an_empty_one_and_to_no_other() {
    let place = Place::new();
    place.filled("from").await;
    let (from, to) = (place.url("from"), place.url("to"));
    let moved = succeeds(&["store", "migrate", "--from", &from, "--to", &to]);
    assert!(moved.contains("copied and compared"), "{moved}");
    let (source, target) = (place.open("from").await, place.open("to").await);
    assert_eq!(contents(&*source).await, contents(&*target).await);
    let audit = (source.audit(None, 10).await.unwrap(), target.audit(None, 10).await.unwrap());
    assert!(!audit.0.is_empty() && audit.0 == audit.1, "{audit:?}");
    let (before, after) = (source.load().await.unwrap().position, target.load().await.unwrap().position);
    assert!(after.epoch > before.epoch && after.revision == before.revision);
    drop((source, target));
    assert!(fails(&["store", "migrate", "--from", &from, "--to", &to]).contains("not empty"));
    assert!(fails(&["store", "migrate", "--from", &from, "--to", &from]).contains("same store"));
    assert!(
        fails(&["store", "migrate", "--from", &place.url("none"), "--to", &to]).contains("no such store")
    );
    assert!(!place.path("none").exists());
}

/// Backups that are taken over HTTP under constant writes are consistent, and can be restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_under_load_is_one_state() {
    let server = Arc::new(support::start().await);
    let writer = Arc::clone(&server);
    let writing = tokio::spawn(async move {
        for at in 0..60 {
            // Both in one write: a state with only one of them never existed.
            let pair = ["x", "y"].map(|side| {
                json!({ "kind": "Workload", "metadata": { "name": format!("w{at}-{side}") }, "spec": {} })
            });
            let (status, body) = writer.call("POST", "/v1/apply", Some(json!(pair))).await;
            assert_eq!(status, 200, "{body}");
        }
    });
    let mut taken = 0;
    loop {
        let is_last = writing.is_finished();
        let request = Request::post("/v1/backup?history=true").body(Body::empty()).unwrap();
        let response = server.send(request).await;
        assert_eq!(response.status(), 200);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let read = backup::read(&bytes[..]).unwrap();
        let objects = read.contents.objects.len();
        assert_eq!(objects % 2, 0);
        let elsewhere = store::open("memory:", Timestamp::from_unix_seconds(support::START)).await.unwrap();
        let at = elsewhere.load().await.unwrap().position;
        let now = Timestamp::from_unix_seconds(support::START);
        elsewhere.replace(at, &read.contents, read.position.epoch, now).await.unwrap();
        assert_eq!(contents(&*elsewhere).await, read.contents);
        taken += 1;
        if is_last {
            assert_eq!(objects, 120);
            break;
        }
    }
    writing.await.unwrap();
    let (_, audit) = server.call("GET", "/v1/audit", None).await;
    let text = audit.to_string();
    assert!(text.contains("backup of") && text.contains("/v1/backup"), "who took one is in the audit log");
    assert_eq!(server.call("GET", "/v1/backup", None).await.0, 405, "no GET answers secrets");
    println!("{taken} backups while 60 writes came");
}

#[test]
fn check_says_whether_the_server_would_start_and_changes_nothing() {
    let place = Place::new();
    let (url, listen) = (place.url("s"), "127.0.0.1:0");
    let fine = succeeds(&["--store", &url, "--listen", listen, "check"]);
    assert!(fine.contains("would be created") && fine.contains("is free"), "{fine}");
    assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0);
    std::fs::write(place.path("s"), "something else").unwrap();
    assert!(fails(&["--store", &url, "--listen", listen, "check"]).contains("not a Tidegate store"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    assert!(fails(&["--store", "memory:", "--listen", &busy, "check"]).contains(&busy));
    assert!(fails(&["--tls", "on", "--insecure", "check"]).contains("--insecure"));
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    std::fs::write(place.path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(place.path("key.pem"), key.serialize_pem()).unwrap();
    let (certificate, key) = (place.file("cert.pem"), place.file("key.pem"));
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let expired = fails(&[&["--store", "memory:", "--listen", listen][..], &files, &["check"]].concat());
    assert!(expired.contains("expired 2026-01-01"), "{expired}");
    std::fs::write(place.path("c.toml"), "lisen = 'x'").unwrap();
    assert!(fails(&["--config", &place.file("c.toml"), "check"]).contains("c.toml"));
}

/// Running etcd server with ports of its own, stopped with the test.
struct Etcd {
    process: std::process::Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts etcd. Retries with other ports if another process has taken the first ones.
async fn etcd() -> Etcd {
    for _ in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held = [free(), free()];
        let [client, peer] = held.each_ref().map(|held| format!("http://{}", held.local_addr().unwrap()));
        drop(held);
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("etcd is installed");
        let mut etcd = Etcd { process, url: format!("etcd:{client}"), _directory: directory };
        while etcd.process.try_wait().unwrap().is_none() {
            if store::inspect(&etcd.url).await.is_ok() {
                return etcd;
            }
        }
    }
    panic!("etcd does not start");
}

/// Runs a command. Repeats it while etcd reports the store as in use, because the lease of the previous user
/// expires only after a moment.
fn succeeds_soon(arguments: &[&str]) -> String {
    for _ in 0..60 {
        let output = api(arguments);
        let said = said(&output);
        if output.status.success() {
            return said;
        }
        assert!(said.contains("in use by"), "{said}");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    panic!("{arguments:?}: the store stays in use");
}

/// A store is migrated from SQLite to etcd and from there to another SQLite file, and a backup of the first is
/// restored into etcd. The contents are always the same, in a newer epoch each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_to_etcd_and_back() {
    let place = Place::new();
    place.filled("from").await;
    let (from, back, file) = (place.url("from"), place.url("back"), place.file("backup"));
    succeeds(&["store", "backup", "--store", &from, "--to", &file, "--history"]);
    let etcd = etcd().await;
    let there = succeeds(&["store", "migrate", "--from", &from, "--to", &etcd.url]);
    assert!(there.contains("copied and compared"), "{there}");
    succeeds_soon(&["store", "migrate", "--from", &etcd.url, "--to", &back]);
    let (first, last) = (place.open("from").await, place.open("back").await);
    assert_eq!(contents(&*first).await, contents(&*last).await);
    let (first, last) = (first.load().await.unwrap().position, last.load().await.unwrap().position);
    assert!(last.epoch.0 >= first.epoch.0 + 2 && last.revision == first.revision, "{first} {last}");
    let dry = succeeds_soon(&["store", "restore", "--store", &etcd.url, "--from", &file, "--dry-run"]);
    assert!(dry.contains("0 would be added, 0 changed, 0 removed"), "{dry}");
    let done = succeeds_soon(&["store", "restore", "--store", &etcd.url, "--from", &file, "--yes"]);
    assert!(done.contains("restored"), "{done}");
}
