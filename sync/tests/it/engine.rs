//! Tests of the reconciliation engine with a real control server, and with files as its source.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{Api, Sync, eventually, replace, run};

const SERVICE: &str =
    "kind: Service\nmetadata: {name: web}\nspec:\n  ports: [{port: 80}]\n  selector: {app: web}\n";

fn workload(name: &str, address: &str) -> String {
    format!(
        "---\nkind: Workload\nmetadata: {{name: {name}, labels: {{app: web}}}}\nspec: {{addresses: [{address}]}}\n"
    )
}

fn workloads(count: u8) -> String {
    (0..count).map(|n| workload(&format!("w{n:02}"), &format!("10.1.0.{}", n + 1))).collect()
}

fn follow(api: &Api, directory: &Path) -> Sync {
    Sync::start(&api.url, &["files", directory.to_str().unwrap()])
}

/// A manually created object with the name of an object in the files stays unchanged and is reported. After
/// its removal, the source's object is created.
#[test]
fn what_another_made_is_reported_and_left_alone_and_holds_up_nothing_else() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    api.apply(
        &json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 8080 }] } }),
    );
    fs::write(files.path().join("web.yaml"), SERVICE.to_owned() + &workload("w1", "10.1.0.1")).unwrap();
    let sync = follow(&api, files.path());
    eventually("the rest is made", || api.names("workloads"), |names| names == &["w1"]);
    eventually("it is reported", || sync.trouble(), |text| text.contains("1 objects are rejected"));
    let log = sync.log();
    assert!(log.contains("Service default/web") && log.contains("belongs to none"), "{log}");
    let by_hand = api.get("/v1/namespaces/default/services/web");
    assert_eq!(
        (&by_hand["spec"]["ports"][0]["port"], &by_hand["metadata"]["applySet"]),
        (&json!(8080), &Value::Null)
    );

    api.call("DELETE", "/v1/namespaces/default/services/web", None);
    sync.wait_until_equal();
    assert_eq!(api.get("/v1/namespaces/default/services/web")["metadata"]["applySet"], "files");
}

/// Objects of the source that were changed or deleted externally are restored. The drain of an object stays,
/// even if the source changes the object.
#[test]
fn what_others_change_is_put_back_and_what_operators_drain_stays_drained() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    let path = files.path().join("web.yaml");
    fs::write(&path, SERVICE.to_owned() + &workloads(2)).unwrap();
    let sync = follow(&api, files.path());
    sync.wait_until_equal();
    let given = api.get("/v1/namespaces/default/services/web");
    assert_eq!(given["metadata"]["labels"]["tidegate.io/source"], "files");

    api.apply(&json!({ "kind": "Service", "metadata": { "name": "web" },
        "spec": { "ports": [{ "port": 81 }], "selector": { "app": "web" } } }));
    let port = || api.get("/v1/namespaces/default/services/web")["spec"]["ports"][0]["port"].clone();
    eventually("the port is put back", port, |port| port == 80);
    api.call("DELETE", "/v1/namespaces/default/workloads/w00", None);
    eventually("the Workload comes again", || api.names("workloads"), |names| names == &["w00", "w01"]);

    let drained = json!({ "kind": "Workload", "metadata": { "name": "w01", "labels": { "app": "web", "tidegate.io/source": "files" } },
        "spec": { "addresses": ["10.1.0.2"], "maintenance": { "mode": "Drain", "by": "jo" } } });
    api.apply(&drained);
    replace(&path, &(SERVICE.to_owned() + &workloads(1) + &workload("w01", "10.1.0.77")));
    let spec = || api.get("/v1/namespaces/default/workloads/w01")["spec"].clone();
    let spec = eventually("the address changes", spec, |spec| spec["addresses"][0] == "10.1.0.77");
    assert_eq!(spec["maintenance"]["by"], "jo");

    sync.wait_until_equal();
    let address = &api.get("/v1/namespaces/default/services/web")["spec"]["clusterIP"];
    assert_eq!(address, &given["spec"]["clusterIP"], "what the server gave is kept");
}

/// If the source loses 10 of 20 Workloads, or all of them, none is removed without confirmation.
#[test]
fn a_source_that_loses_much_at_once_removes_nothing_until_that_is_confirmed() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    let path = files.path().join("all.yaml");
    fs::write(&path, workloads(20)).unwrap();
    let sync = follow(&api, files.path());
    sync.wait_until_equal();

    replace(&path, &(workloads(10) + &workload("new", "10.1.0.99")));
    eventually("it is held", || sync.trouble(), |text| text.contains("10 changes wait for confirmation"));
    eventually("what is new comes all the same", || api.names("workloads").len(), |count| *count == 21);
    assert!(sync.log().contains("REMOVALS HELD"));
    sync.confirm();
    sync.wait_until_equal();
    assert_eq!(api.names("workloads").len(), 11);

    replace(&path, "# nothing\n");
    eventually("it is held", || sync.trouble(), |text| text.contains("11 changes wait for confirmation"));
    assert_eq!(api.names("workloads").len(), 11);
    // The confirmation covered other removals.
    replace(&path, &workloads(1));
    eventually("it is held", || sync.trouble(), |text| text.contains("10 changes wait for confirmation"));
    sync.confirm();
    sync.wait_until_equal();
    assert_eq!(api.names("workloads"), ["w00"]);
}

/// A few objects that the source no longer contains are removed without confirmation, each object before the
/// ones to which it refers.
#[test]
fn a_few_objects_that_the_source_no_longer_has_are_removed() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("service.yaml"), SERVICE).unwrap();
    fs::write(files.path().join("workloads.yaml"), workloads(3)).unwrap();
    let sync = follow(&api, files.path());
    sync.wait_until_equal();
    fs::remove_file(files.path().join("workloads.yaml")).unwrap();
    eventually("they go", || api.names("workloads"), Vec::is_empty);
    assert_eq!(api.names("services"), ["web"]);
    // Counted after the response.
    eventually("they are counted", || sync.metric("objects_removed_total"), |count| *count == Some(3.0));
}

/// Changes made while the control server is down are written when it returns. If it returns with an empty
/// store, all objects are created again.
#[test]
fn control_servers_that_are_killed_and_come_again_or_lose_everything_become_equal_again() {
    let (files, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", store.path().join("store").display());
    let path = files.path().join("web.yaml");
    fs::write(&path, SERVICE.to_owned() + &workloads(2)).unwrap();
    let api = Api::start(&store, 0);
    let port = api.port();
    // A second, unreachable server has no effect.
    let sync = Sync::start(&format!("http://127.0.0.1:9,{}", api.url), &["files", path.to_str().unwrap()]);
    sync.wait_until_equal();
    api.kill();
    replace(&path, &(SERVICE.to_owned() + &workloads(3)));
    eventually("it is noticed", || sync.trouble(), |text| text.contains("control:"));
    let api = Api::start(&store, port);
    eventually("the third comes", || api.names("workloads").len(), |count| *count == 3);
    sync.wait_until_equal();

    api.kill();
    let api = Api::start("memory:", port);
    eventually("all comes again", || api.names("workloads").len(), |count| *count == 3);
    sync.wait_until_equal();
    assert_eq!(api.names("services"), ["web"]);
    sync.kill();
    assert_eq!(api.names("workloads").len(), 3, "nothing changes because the process ends");
}

/// A restart without changes writes nothing, and the change of one of many objects writes only that object.
#[test]
fn a_restart_with_nothing_to_do_writes_nothing_and_a_change_writes_what_changed() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("many.yaml"), workloads(200)).unwrap();
    let service = SERVICE.replace("spec:\n", "spec:\n  type: NodePort\n");
    fs::write(files.path().join("one.yaml"), service).unwrap();
    let sync = follow(&api, files.path());
    sync.wait_until_equal();
    let before = api.revision();
    sync.kill();
    let sync = follow(&api, files.path());
    sync.wait_until_equal();
    assert_eq!((api.revision(), sync.metric("objects_written_total")), (before, Some(0.0)));
    replace(&files.path().join("one.yaml"), &SERVICE.replace("port: 80", "port: 81"));
    eventually("it is written", || sync.metric("objects_written_total"), |count| *count == Some(1.0));
    sync.wait_until_equal();
}

/// `--dry-run` prints the planned changes without writing, and `--once` writes them. Both exit with 1 if the
/// server rejects an object.
#[test]
fn once_and_dry_run_say_what_they_do_and_end() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    let path = files.path().join("web.yaml");
    let wrong =
        "---\nkind: Service\nmetadata: {name: wrong}\nspec: {clusterIP: 192.0.2.1, ports: [{port: 80}]}\n";
    fs::write(&path, SERVICE.to_owned() + wrong).unwrap();
    let place = path.to_str().unwrap();
    let (code, out, _) = run(&api.url, &["--dry-run", "files", place]);
    assert_eq!(code, Some(1), "{out}");
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("create Service default/web"));
    assert!(
        lines.next().is_some_and(|line| line.starts_with("refused Service default/wrong: spec/clusterIP")),
        "{out}"
    );
    assert_eq!(api.names("services"), [""; 0]);

    let (code, _, _) = run(&api.url, &["--once", "files", place]);
    assert_eq!((code, api.names("services")), (Some(1), vec!["web".to_owned()]));
    fs::write(&path, SERVICE).unwrap();
    let (code, out, err) = run(&api.url, &["--once", "files", place]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let (code, out, _) = run(&api.url, &["--dry-run", "files", place]);
    assert_eq!((code, out.as_str()), (Some(0), "nothing to do\n"));
}

/// If two sources contain an object of the same name, the first owns it, and the second gets an error that
/// names the owner.
#[test]
fn two_sources_do_not_take_each_other_s_objects() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    let path = files.path().join("web.yaml");
    fs::write(&path, SERVICE).unwrap();
    let first = Sync::start(&api.url, &["--source", "blue", "files", path.to_str().unwrap()]);
    first.wait_until_equal();
    let second = Sync::start(&api.url, &["--source", "green", "files", path.to_str().unwrap()]);
    eventually("it is told", || second.log(), |log| log.contains("it belongs to `blue`"));
    assert_eq!(api.get("/v1/namespaces/default/services/web")["metadata"]["applySet"], "blue");
    first.wait_until_equal();
}

/// Objects that a user of one namespace adds to the apply set of a source are neither removed nor counted as lost,
/// and do not keep the source from creating its own objects of the same name.
#[test]
fn objects_that_a_user_of_a_namespace_adds_to_the_set_do_not_hinder_the_source() {
    let (api, files) = (Api::secured(), tempfile::tempdir().unwrap());
    let tenant = api.create_token("tenant", &json!({ "role": "operator", "namespaces": ["team-a"] }));
    let object = |name: &str, port: u16| {
        let metadata =
            json!({ "namespace": "team-a", "name": name, "labels": { "tidegate.io/source": "files" } });
        json!({ "kind": "Service", "metadata": metadata, "spec": { "ports": [{ "port": port }] } })
    };
    let squatters: Vec<_> = (0..9).map(|number| object(&format!("s{number}"), 8080)).collect();
    let squatters = Value::Array([&squatters[..], &[object("web", 8080)]].concat());
    let add = |path: &str| api.call_as(Some(&tenant), "POST", path, Some(&squatters));
    let (status, answer) = add("/v1/apply?applySet=files");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["results"][0]["object"]["metadata"]["applySetLimited"], true, "{answer}");

    let place = files.path().join("web.yaml");
    let of_source = |names: &[&str]| {
        let all: Vec<_> = names
            .iter()
            .map(|name| {
                format!(
                    "---\nkind: Service\nmetadata: {{name: {name}, namespace: team-a}}\nspec: {{ports: [{{port: 80}}]}}\n"
                )
            })
            .collect();
        all.concat()
    };
    fs::write(&place, of_source(&["web", "shop"])).unwrap();
    let token = files.path().join("token");
    fs::write(&token, api.create_token("sync", &json!({ "role": "admin" }))).unwrap();
    let sync = Sync::start(
        &api.url,
        &["--token-file", token.to_str().unwrap(), "files", files.path().to_str().unwrap()],
    );
    sync.wait_until_equal();
    let web = api.get("/v1/namespaces/team-a/services/web");
    assert_eq!(web["spec"]["ports"][0]["port"], 80, "the source has the name");
    assert_eq!(web["metadata"]["applySetLimited"], Value::Null, "{web}");
    assert_eq!(api.names("services").len(), 11);
    // The source loses an object. The prune limit is not reached, because the other objects are not its own.
    replace(&place, &of_source(&["web"]));
    eventually("its own leaves", || api.names("services"), |names| !names.contains(&"shop".to_owned()));
    sync.wait_until_equal();
    assert_eq!(api.names("services").len(), 10, "those of the user stay");
}

/// A source whose token is limited to a namespace removes its own objects.
#[test]
fn a_source_that_is_limited_to_a_namespace_removes_its_own_objects() {
    let (api, files) = (Api::secured(), tempfile::tempdir().unwrap());
    let place = files.path().join("web.yaml");
    let service = |name: &str| {
        format!(
            "---\nkind: Service\nmetadata: {{name: {name}, namespace: team-a}}\nspec: {{ports: [{{port: 80}}]}}\n"
        )
    };
    fs::write(&place, service("a") + &service("b")).unwrap();
    let token = files.path().join("token");
    let binding = json!({ "role": "operator", "namespaces": ["team-a"] });
    fs::write(&token, api.create_token("sync", &binding)).unwrap();
    let sync = Sync::start(
        &api.url,
        &["--token-file", token.to_str().unwrap(), "files", files.path().to_str().unwrap()],
    );
    sync.wait_until_equal();
    let web = api.get("/v1/namespaces/team-a/services/a");
    assert_eq!(web["metadata"]["applySetLimited"], true, "{web}");
    replace(&place, &service("a"));
    eventually("it leaves", || api.names("services"), |names| names == &["a"]);
    sync.wait_until_equal();
}
