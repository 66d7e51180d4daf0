//! Tests of the source `files` with broken, replaced and missing files.

use std::fs;

use crate::support::{Api, Sync, eventually, replace, run};

fn workload(name: &str, address: &str) -> String {
    format!("---\nkind: Workload\nmetadata: {{name: {name}}}\nspec: {{addresses: [{address}]}}\n")
}

/// The objects of a file stay when the file becomes invalid, and the error is reported with file and line.
/// Changes in other files are applied.
#[test]
fn a_broken_file_keeps_its_last_objects_and_is_reported_with_its_line() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    let (a, b) = (files.path().join("a.yaml"), files.path().join("b.yaml"));
    fs::write(&a, workload("a", "10.0.0.1")).unwrap();
    fs::write(&b, workload("b", "10.0.0.2")).unwrap();
    fs::write(files.path().join("notes.txt"), "not for us: [").unwrap();
    fs::write(files.path().join(".hidden.yaml"), "not for us: [").unwrap();
    let place = files.path().to_str().unwrap();
    let sync = Sync::start(&api.url, &["files", place]);
    sync.wait_until_equal();

    replace(&a, "kind: Workload\nmetadata: {name: a}\nspec: {addresses: [10.0.0.300]}\n");
    eventually(
        "it is told",
        || sync.trouble(),
        |text| text.contains("a.yaml: line 1: Workload a: /spec/addresses/0"),
    );
    replace(&b, &workload("b2", "10.0.0.3"));
    eventually("b goes on", || api.names("workloads"), |names| names == &["a", "b2"]);

    sync.kill();
    let sync = Sync::start(&api.url, &["files", place]);
    eventually("nothing is removed", || sync.trouble(), |text| text.contains("not been read completely"));
    replace(&b, &workload("b3", "10.0.0.4"));
    eventually("what is new comes", || api.names("workloads"), |names| names == &["a", "b2", "b3"]);
    replace(&a, &workload("a", "10.0.0.5"));
    eventually("the rest goes when all is read", || api.names("workloads"), |names| names == &["a", "b3"]);
    sync.wait_until_equal();
}

/// If the directory is missing, at startup or later, nothing is removed. When the directory returns, its
/// files are used.
#[test]
fn a_directory_that_is_away_takes_nothing_away() {
    let (api, parent) = (Api::memory(), tempfile::tempdir().unwrap());
    let (there, away) = (parent.path().join("there"), parent.path().join("away"));
    fs::create_dir(&there).unwrap();
    fs::write(there.join("a.yaml"), workload("a", "10.0.0.1") + &workload("b", "10.0.0.2")).unwrap();
    let place = there.to_str().unwrap().to_owned();
    let sync = Sync::start(&api.url, &["files", &place]);
    sync.wait_until_equal();
    fs::rename(&there, &away).unwrap();
    eventually("it is noticed", || sync.trouble(), |text| text.contains("No such file or directory"));
    assert_eq!(api.names("workloads"), ["a", "b"]);
    replace(&away.join("a.yaml"), &workload("b", "10.0.0.2"));
    fs::rename(&away, &there).unwrap();
    eventually("its files count again", || api.names("workloads"), |names| names == &["b"]);
    sync.kill();

    fs::rename(&there, &away).unwrap();
    let (code, _, err) = run(&api.url, &["--once", "--allow-empty", "--prune-limit", "100", "files", &place]);
    assert_eq!(code, Some(1));
    assert!(err.contains("nothing is removed"), "{err}");
    assert_eq!(api.names("workloads"), ["b"]);
}

/// If two files contain the same object, the first is used and the duplicate is reported. When the first file
/// is removed, the second is used.
#[test]
fn an_object_in_two_files_is_reported_and_the_first_counts() {
    let (api, files) = (Api::memory(), tempfile::tempdir().unwrap());
    fs::write(files.path().join("a.yaml"), workload("w", "10.0.0.1")).unwrap();
    fs::write(
        files.path().join("b.json"),
        r#"{"kind":"Workload","metadata":{"name":"w"},"spec":{"addresses":["10.0.0.2"]}}"#,
    )
    .unwrap();
    let sync = Sync::start(&api.url, &["files", files.path().to_str().unwrap()]);
    eventually(
        "it is told",
        || sync.trouble(),
        |text| text.contains("Workload default/w is in") && text.contains("b.json; the first is used"),
    );
    let address = || api.get("/v1/namespaces/default/workloads/w")["spec"]["addresses"][0].clone();
    eventually("the first counts", address, |address| address == "10.0.0.1");
    fs::remove_file(files.path().join("a.yaml")).unwrap();
    eventually("the second counts", address, |address| address == "10.0.0.2");
    sync.wait_until_equal();
}
