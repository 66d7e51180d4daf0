//! Tests of plans (previews of writes): output of the CLI, and comparison with the kernels after the write.

use std::{fs, path::Path, process::Command};

use lab::{
    cluster::{
        control::string,
        deployment::{Cluster, Options},
    },
    processes::binaries,
};
use serde_json::{Value, json};

/// Runs the CLI in the namespace of the control server, and returns its exit status and output.
fn tidegate(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let place = cluster.place("control").unwrap();
    let program = binaries::find("tidegate").unwrap();
    let output = Command::new("ip")
        .args(["netns", "exec", place.name(), program.to_str().unwrap(), "--api", cluster.api.url()])
        .args(arguments)
        .output()
        .unwrap();
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), printed)
}

fn write(directory: &Path, name: &str, objects: &[Value]) -> String {
    let path = directory.join(name);
    fs::write(&path, json!(objects).to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn endpoints(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "address": address })).collect();
    json!({"apiVersion": "tidegate/v1", "kind": "EndpointSet", "metadata": {"name": service}, "spec": {
        "service": service, "endpoints": endpoints,
    }})
}

/// F011: `tidegate diff` prints a diff and exits with status 1 if an apply would change anything, else exits
/// with 0. In both cases it writes nothing.
#[test]
fn f011_diff_prints_what_would_change_and_ends_with_1_and_with_0_when_nothing_would() {
    let cluster = Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let position = || cluster.api.get_json("/v1/status").unwrap()["position"].clone();
    let web = |port: u16| service("web", json!({"clusterIP": "10.96.0.7", "ports": [{"port": port}]}));
    let file = write(directory.path(), "web.json", &[web(80)]);
    let before = position();
    let (code, printed) = tidegate(&cluster, &["diff", "-f", &file]);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("+ Service default/web created"), "{printed}");
    assert_eq!(position(), before, "diff writes nothing");
    assert!(before.is_string(), "{before}");

    cluster.apply_objects(&[web(80)]).unwrap();
    assert_eq!(tidegate(&cluster, &["diff", "-f", &file]), (0, "Nothing would change.\n".to_owned()));
    let other = write(directory.path(), "other.json", &[web(81)]);
    let (code, printed) = tidegate(&cluster, &["diff", "-f", &other]);
    assert_eq!(code, 1, "{printed}");
    for line in ["~ Service default/web updated", "  - /spec/ports/0/port: 80", "  + /spec/ports/0/port: 81"]
    {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in:\n{printed}");
    }
    let broken = write(directory.path(), "broken.json", &[service("web", json!({"ports": [{"port": 0}]}))]);
    assert_eq!(tidegate(&cluster, &["diff", "-f", &broken]).0, 2, "what cannot be compared is no difference");
}

/// A kernel line that a plan would add on a node is absent from the kernel before the plan is applied and
/// present afterwards. A line that a plan would remove is present before and absent afterwards.
#[test]
fn a_plan_lists_what_each_kernel_will_list_and_is_applied_by_its_id() {
    let cluster = Cluster::start(&Options { nodes: 2, ..Options::default() }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let web = service("web", json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}));
    cluster.apply_objects(&[web.clone(), endpoints("web", &["10.1.1.11", "10.1.1.12"])]).unwrap();
    cluster.wait_verified("default/web").unwrap();
    let listing = |node: &str| {
        let place = cluster.place(node).unwrap();
        place.run("nft", &["-n", "-s", "list", "table", "inet", "tidegate"]).unwrap()
    };
    // Elements are listed several to a line.
    let has = |listing: &str, line: &str| {
        let pieces = listing.split(['\n', ',', '{', '}']).map(str::trim);
        pieces.into_iter().any(|piece| piece == line)
    };
    let file = write(
        directory.path(),
        "web.json",
        &[web, endpoints("web", &["10.1.1.12", "10.1.1.13", "10.1.1.14"])],
    );
    let before = ["node1", "node2"].map(listing);
    let (code, printed) = tidegate(&cluster, &["plan", "-f", &file, "-o", "json"]);
    assert_eq!(code, 3, "{printed}");
    let plan: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(["node1", "node2"].map(listing), before, "a plan writes nothing");

    let (code, printed) = tidegate(&cluster, &["apply", "--plan", &string(&plan, "/id").unwrap()]);
    assert_eq!(code, 0, "{printed}");
    cluster.wait_verified("default/web").unwrap();
    for (node, before) in ["node1", "node2"].into_iter().zip(before) {
        let after = listing(node);
        let lines = plan["nodes"][node]["preview"]["kernel"].as_array().unwrap_or_else(|| panic!("{plan:#}"));
        let elements: Vec<_> =
            lines.iter().filter(|line| !line["place"].as_str().unwrap().starts_with("chain")).collect();
        assert!(elements.len() >= 4, "slots go and come: {lines:#?}");
        for change in elements {
            let (line, is_added) = (change["line"].as_str().unwrap(), change["change"] == "added");
            assert_eq!(
                (has(&before, line), has(&after, line)),
                (!is_added, is_added),
                "{node}: {line}\n{after}"
            );
        }
    }
    assert_eq!(tidegate(&cluster, &["plan", "-f", &file]), (0, "Nothing would change.\n".to_owned()));
    let (code, printed) = tidegate(&cluster, &["apply", "--plan", &string(&plan, "/id").unwrap()]);
    assert_eq!(code, 1, "the world has moved: {printed}");
    assert!(printed.contains("make the plan again"), "{printed}");
}

/// The plan of a change of the proxy mode contains the numbers of kernel lines that would be created and
/// removed, which are consistent with the kernel, but does not list the lines. The plan writes nothing.
#[test]
fn a_plan_of_another_proxy_mode_says_how_much_is_made_anew_and_how_much_goes() {
    let cluster = Cluster::start(&Options { nodes: 1, ..Options::default() }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let web = service(
        "web",
        json!({"clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], "ports": [{"port": 80, "name": "one"}, {"port": 81, "name": "two"}]}),
    );
    cluster.apply_objects(&[web, endpoints("web", &["10.1.1.11", "10.1.1.12"])]).unwrap();
    cluster.wait_verified("default/web").unwrap();
    let listing = || {
        let place = cluster.place("node1").unwrap();
        place.run("nft", &["-n", "-s", "list", "ruleset"]).unwrap()
    };
    let plan = |spec: Value| {
        let mut node = cluster.object("nodes/node1").unwrap();
        for (field, value) in spec.as_object().unwrap() {
            node["spec"][field] = value.clone();
        }
        let node = json!({"kind": "Node", "metadata": {"name": "node1"}, "spec": node["spec"]});
        let file = write(directory.path(), "node.json", &[node]);
        let before = listing();
        let (code, printed) = tidegate(&cluster, &["plan", "-f", &file, "-o", "json"]);
        assert_eq!((code, listing()), (3, before), "{printed}");
        let plan: Value = serde_json::from_str(&printed).unwrap();
        plan["nodes"]["node1"]["preview"].clone()
    };
    let preview = plan(json!({"mode": "iptables"}));
    assert_eq!(preview["kernel"], json!([]), "{preview:#}");
    let said = preview["failures"][0].as_str().unwrap();
    let begins = "the node would change from nftables to iptables: all of its rules are made anew, which are not listed here \
                  (Services: 1, frontends: 2); the present ones (lines: ";
    assert!(said.starts_with(begins), "{said}");
    let lines = said[begins.len()..].split_once(')').unwrap().0.parse::<usize>().unwrap();
    // Both frontends, the slots of their endpoints and the workload network of the node are elements.
    assert!((6..40).contains(&lines), "{said}");
    let preview = plan(json!({"zone": "b"}));
    assert_eq!(preview["failures"], json!([]), "{preview:#}");
}
