//! Test of the Ansible role (`packaging/ansible`): it installs a control server and joins a node, a second run changes nothing,
//! and invalid settings change nothing either.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use lab::host::{machine::SystemdMachine, wait};

use super::stage::{Stage, packages, root};

/// Replaces `ssh`: runs the command in the namespaces of a machine. The last arguments are host and command. Ansible also
/// asks which options it knows.
const ENTER: &str = r#"#!/bin/sh
while [ $# -gt 2 ]; do shift; done
case $1 in
  control-1) init=CONTROL ;;
  node-2) init=NODE ;;
  *) exit 0 ;;
esac
exec nsenter --target "$init" --all -- env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$2"
"#;

/// Directory with the inventory of the guide, adapted to the machines of the test.
struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    fn new(control: &SystemdMachine, node: &SystemdMachine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let enter = directory.path().join("enter");
        let script =
            ENTER.replace("CONTROL", &control.init().to_string()).replace("NODE", &node.init().to_string());
        fs::write(&enter, script).unwrap();
        fs::set_permissions(&enter, Permissions::from_mode(0o755)).unwrap();
        let example = fs::read_to_string(root().join("packaging/ansible/inventory.example.yml")).unwrap();
        let connection = format!(
            "  vars:\n    ansible_become: false\n    ansible_ssh_executable: {}\n    ansible_ssh_transfer_method: piped\n",
            enter.display()
        );
        let inventory = example
            .replace("../../target/debian", packages().to_str().unwrap())
            .replace("10.0.0.1", "192.0.2.10")
            .replace("        node-1:\n", "")
            .replacen("  vars:\n", &connection, 1);
        fs::write(directory.path().join("inventory.yml"), inventory).unwrap();
        Self { directory }
    }

    /// Runs the playbook with further arguments. Returns its success and output.
    fn play(&self, arguments: &[&str]) -> (bool, String) {
        let place = root().join("packaging/ansible");
        let output = Command::new("ansible-playbook")
            .current_dir(place)
            .arg("--inventory")
            .arg(self.directory.path().join("inventory.yml"))
            .arg("site.yml")
            .args(arguments)
            .env("ANSIBLE_HOME", self.directory.path())
            .env("ANSIBLE_LOCAL_TEMP", self.directory.path())
            .env("ANSIBLE_NOCOLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.success(), said)
    }
}

/// Returns the word `key=value` of a host in the summary of a run.
fn summary<'a>(said: &'a str, host: &str, key: &str) -> &'a str {
    let line = said.lines().rfind(|line| line.starts_with(host) && line.contains("unreachable="));
    let word = line.unwrap_or_else(|| panic!("no summary of {host}: {said}")).split_whitespace();
    word.filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).next().unwrap()
}

/// The role installs the packages, and the node joins with a token and follows its settings. The guide is
/// `docs/how-to/ansible.md`.
#[test]
fn the_ansible_role_sets_up_a_cluster_and_a_second_run_or_invalid_settings_change_nothing() {
    let stage = Stage::new();
    let node = stage.boot("node-2", 13);
    let desk = Desk::new(&stage.machine, &node);

    let (ok, said) = desk.play(&[]);
    assert!(ok, "{said}");
    wait::until("the node to be ready", || {
        stage.machine.run("tidegate get node node-2 --no-headers | grep -w Ready")
    })
    .unwrap();
    let spec = stage.machine.run("tidegate get node node-2 -o json").unwrap();
    assert!(spec.contains("rack-b"), "the zone of the inventory: {spec}");
    let settings = node.run("cat /etc/tidegate/agent.toml").unwrap();
    assert!(settings.contains("iptables"), "{settings}");
    assert_eq!(node.run("sysctl -n net.ipv4.ip_forward").unwrap().trim(), "1");

    let (ok, said) = desk.play(&[]);
    assert!(ok, "{said}");
    for host in ["control-1", "node-2"] {
        assert_eq!(summary(&said, host, "changed"), "0", "{said}");
    }

    let before = stage.machine.run("cat /etc/tidegate/api.toml").unwrap();
    let invalid = r#"{"tidegate_api_settings": {"listn": "192.0.2.10:7440"}}"#;
    let (ok, said) = desk.play(&["--extra-vars", invalid]);
    assert!(!ok && said.contains("listn"), "{said}");
    assert_eq!(stage.machine.run("cat /etc/tidegate/api.toml").unwrap(), before);
    stage.running("tidegate-api");
    assert!(Path::new(&node.path("/etc/tidegate/agent.toml")).exists());
}
