//! Tests of `tidegate doctor` with a real control server, agents and their nodes.

use std::process::{Command, Stdio};

use lab::{
    cluster::deployment::{Cluster, Options},
    processes::binaries,
};
use serde_json::Value;

/// Runs `tidegate doctor` in the namespace of the control server, and returns its exit status, stdout and
/// stderr.
fn doctor(cluster: &Cluster, arguments: &[&str]) -> (i32, String, String) {
    let place = cluster.place("control").unwrap();
    let program = binaries::find("tidegate").unwrap();
    let output = Command::new("ip")
        .args([
            "netns",
            "exec",
            place.name(),
            program.to_str().unwrap(),
            "--api",
            cluster.api.url(),
            "doctor",
        ])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code().unwrap(), out, err)
}

/// Returns the state of the check `check` on the only node of the cluster.
fn state(cluster: &Cluster, check: &str) -> Value {
    let (_, out, err) = doctor(cluster, &["-o", "json"]);
    let answer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let findings = answer["items"][0]["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("{check} is looked at: {out}"))["state"].clone()
}

fn one_node_that_forwards_nothing(agent_arguments: Vec<String>) -> Cluster {
    let cluster = Cluster::start(&Options { nodes: 1, agent_arguments, ..Options::default() }).unwrap();
    set_forwarding(&cluster, "0");
    cluster
}

fn set_forwarding(cluster: &Cluster, value: &str) {
    let node = cluster.topology.nodes.values().next().unwrap();
    let setting = format!("net.ipv4.ip_forward={value}");
    let arguments = ["netns", "exec", node.namespace.name(), "sysctl", "-qw", &setting];
    assert!(Command::new("ip").args(arguments).status().unwrap().success());
}

const CHECK: &str = "net.ipv4.ip_forward=1";

/// `tidegate doctor` finds that IP forwarding is disabled. With `--fix --yes`, an agent that permits fixes enables
/// it, after which the problem is no longer reported and the fix is in the audit log.
#[test]
fn the_doctor_finds_what_is_odd_and_agents_that_may_put_it_right() {
    let cluster = one_node_that_forwards_nothing(vec!["--allow-fixes".to_owned()]);
    assert_eq!(state(&cluster, "clock"), "Fine", "both have the clock of this machine");
    assert_eq!(state(&cluster, CHECK), "Warning");
    let (code, _, err) = doctor(&cluster, &["--fix"]);
    assert!(code == 2 && err.contains("--yes"), "{code}: {err}");
    assert_eq!(state(&cluster, CHECK), "Warning", "nobody has said yes");
    let (_, _, err) = doctor(&cluster, &["--fix", "--yes"]);
    assert!(err.contains("IpForward Done: net.ipv4.ip_forward was 0 and is 1"), "{err}");
    assert_eq!(state(&cluster, CHECK), "Fine");
    let audit = cluster.api.get_json("/v1/audit").unwrap().to_string();
    assert!(audit.contains("/fixes"), "{audit}");
}

/// An agent with default settings rejects the request for a fix with an explanation, and changes nothing on
/// its machine.
#[test]
fn an_agent_that_was_not_told_to_changes_nothing_of_its_machine() {
    let cluster = one_node_that_forwards_nothing(Vec::new());
    let (code, out, err) = doctor(&cluster, &["--fix", "--yes"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("--allow-fixes"), "{err}");
    assert_eq!(state(&cluster, CHECK), "Warning");
}
