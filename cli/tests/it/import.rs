//! Tests of the conversion of other load balancers' configurations. Input, output and report are text files
//! next to this test; `UPDATE_GOLDEN=1 cargo test -p cli --test it import::` rewrites output and report.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use cli::import::{Fidelity, translate};
use model::admission::decode::{Expect, decode};
use serde_json::{Value, json};

use crate::stub::{JSON, Stub, run, write_answer};

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Runs `import` on input files in the fixture directory, without a server.
fn import(arguments: &[&str]) -> (i32, String, String) {
    tidegate("import", arguments)
}

fn tidegate(command: &str, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg(command)
        .args(arguments)
        .env_clear()
        .env("TIDEGATE_API", "http://127.0.0.1:1")
        .current_dir(directory("fixtures/import"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn check(name: &str, actual: &str) {
    let path = directory("golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name}.txt differs; it would be:\n{actual}\nUPDATE_GOLDEN=1 rewrites it");
}

fn check_import(file: &str) {
    let (code, objects, report) = import(&[file]);
    assert_eq!(code, 0, "{report}");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&objects).unwrap();
    for document in documents {
        assert!(decode(&document, &Expect::default()).is_ok(), "the server would take {document:#}");
    }
    let name = file.trim_end_matches(".yaml");
    check(&format!("import_{name}"), &format!("{objects}\n{report}"));
}

/// F009: the MetalLB ConfigMap from the requirements, unchanged, is converted to a pool and an advertisement,
/// and no setting is left out.
#[test]
fn f135_the_configmap_of_the_documents_imports_unchanged() {
    check_import("seed.yaml");
    let (_, objects, report) = import(&["seed.yaml"]);
    assert!(report.ends_with("3 mapped, 0 approximated, 0 ignored\n"), "{report}");
    assert!(objects.contains("- 172.25.1.100-172.25.1.200\n"), "the range is as it was written: {objects}");
}

#[test]
fn every_setting_of_the_old_configmap_is_accounted_for() {
    check_import("config_all.yaml");
    check_import("embedded.yaml");
}

#[test]
fn every_setting_of_the_resources_is_accounted_for_and_no_restriction_is_lost() {
    check_import("objects.yaml");
}

#[test]
fn what_holds_nothing_to_import_is_refused() {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), "kind: Namespace\nmetadata: {name: metallb-system}\n").unwrap();
    let (code, objects, report) = import(&[file.path().to_str().unwrap()]);
    assert_eq!((code, objects.as_str()), (1, ""));
    assert!(report.contains("this kind cannot be imported") && report.contains("nothing in it"), "{report}");
    fs::write(file.path(), "a: [").unwrap();
    assert_eq!(import(&[file.path().to_str().unwrap()]).0, 1, "no YAML");
}

/// A document with unexpected content results in report entries; the command never aborts.
#[test]
fn no_shape_of_a_document_stops_the_import() {
    let odd = [json!(null), json!([]), json!(1), json!("x"), json!({"a": [1]})];
    for value in &odd {
        let kinds = [
            "ConfigMap",
            "IPAddressPool",
            "AddressPool",
            "L2Advertisement",
            "BGPAdvertisement",
            "BGPPeer",
            "BFDProfile",
            "Community",
        ];
        let documents: Vec<Value> = kinds
            .iter()
            .flat_map(|kind| {
                [
                    json!({"kind": kind, "data": value, "spec": value, "metadata": value}),
                    json!({"kind": kind, "apiVersion": "metallb.io/v1", "metadata": {"name": "x", "labels": value},
                        "data": {"config": value}, "spec": {"addresses": value, "autoAssign": value,
                            "serviceAllocation": {"priority": value, "namespaces": value, "serviceSelectors": value},
                            "ipAddressPools": value, "ipAddressPoolSelectors": value, "nodeSelectors": value, "peers": value,
                            "communities": value, "holdTime": value, "peerASN": value, "password": value, "protocol": "bgp",
                            "bgpAdvertisements": value}}),
                ]
            })
            .chain([json!({"address-pools": value}), json!({"address-pools": [value, {"name": value}]}),
                json!({"peers": [value], "bfd-profiles": [value], "bgp-communities": value, "address-pools": []}), value.clone()])
            .collect();
        let imported = translate(&[("file".to_owned(), documents)]);
        for object in &imported.objects {
            assert!(decode(object, &Expect::default()).is_ok(), "{object:#}");
        }
        assert!(imported.report.count(Fidelity::Ignored) > 0, "{value}: {}", imported.report.text());
    }
}

/// The kube-proxy configuration of the requirements is converted to an agent's settings file. `--apply` is
/// rejected, because there are no objects.
#[test]
fn f130_what_configures_kube_proxy_is_printed_as_the_file_of_an_agent() {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../translate/tests/import/kube_proxy_seed.yaml");
    let path = file.to_str().unwrap();
    let (code, settings, report) = import(&[path]);
    assert_eq!(code, 0, "{report}");
    let lines: Vec<&str> = settings.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["mode = \"ipvs\"", "strict-arp = true"]);
    assert!(report.ends_with("2 mapped, 0 approximated, 0 ignored\n"), "{report}");
    let (code, applied, report) = import(&[path, "--apply"]);
    assert!(code == 1 && applied.is_empty() && report.contains("tidegate-agent --config"), "{report}");
    let (code, _, report) = import(&[path, "--from", "ipvsadm"]);
    assert!(code == 1 && report.contains("nothing in it can be imported"), "{report}");
}

/// Pools in a manifest are exported as MetalLB resources that import to the same pools, and the report is
/// written to a separate file.
#[test]
fn what_is_exported_is_imported_the_same() {
    let pools = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let manifest = "apiVersion: tidegate/v1\nkind: AddressPool\nmetadata:\n  name: lan\nspec:\n  addresses:\n  - 192.0.2.0/28\n  priority: 3\n";
    fs::write(pools.path(), manifest).unwrap();
    let report = tempfile::NamedTempFile::new().unwrap();
    let arguments = [
        "--format",
        "metallb",
        "-f",
        pools.path().to_str().unwrap(),
        "--report",
        report.path().to_str().unwrap(),
    ];
    let (code, exported, said) = tidegate("export", &arguments);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(fs::read_to_string(report.path()).unwrap().ends_with("2 mapped, 0 approximated, 0 ignored\n"));
    fs::write(pools.path(), exported).unwrap();
    assert_eq!(import(&[pools.path().to_str().unwrap()]).1, manifest);
}

/// `export -A` exports the Services on the server in all namespaces, and reports unsupported settings on
/// stderr.
#[test]
fn an_export_asks_the_server_for_what_the_format_has_words_for() {
    let service = |namespace: &str| {
        json!({ "apiVersion": "tidegate/v1", "kind": "Service", "metadata": { "name": "web", "namespace": namespace, "generation": 3 },
            "spec": { "ports": [{ "port": 80 }], "scheduler": "lc" }, "status": { "conditions": [] } })
    };
    let listings = [("services", json!([service("shop"), service("back")])), ("endpointsets", json!([]))];
    let server = Stub::new(move |_, request, stream| {
        let found = listings.iter().find(|(plural, _)| request.starts_with(&format!("GET /v1/{plural} ")));
        let items = found.map_or_else(|| panic!("{request}"), |(_, items)| items.clone());
        write_answer(stream, "200 OK", JSON, &json!({ "items": items, "metadata": {} }).to_string());
    });
    let (code, exported, said) = run(&server.url, &["export", "--format", "kubernetes", "-A"]);
    assert_eq!(code, 0, "{said}");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&exported).unwrap();
    assert_eq!(documents.len(), 2);
    let expected = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "ports": [{ "port": 80 }] } });
    assert_eq!(documents[0], expected);
    assert!(said.contains("spec.scheduler: configured for each node's proxy in Kubernetes"), "{said}");
}
