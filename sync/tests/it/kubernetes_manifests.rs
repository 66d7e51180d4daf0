//! Tests of the Kubernetes manifests: they use only options that the programs accept, and kubectl combines
//! them as documented.

use std::{fs, path::PathBuf};

use clap::{CommandFactory as _, Parser as _};
use serde_json::Value;
use sync::args::Cli;
use translate::parse::{Language, objects};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the container of the first object of a kind.
fn container(path: &str, kind: &str) -> Value {
    let text = fs::read(root().join("packaging/kubernetes").join(path)).unwrap();
    let all = objects(Language::Yaml, &text).unwrap();
    let object = all.into_iter().find(|object| object["kind"] == kind).unwrap();
    object["spec"]["template"]["spec"]["containers"][0].clone()
}

/// Returns Tidegate's environment variables of a container, including those of the shared ConfigMap.
fn variables(container: &Value) -> Vec<String> {
    let own =
        container["env"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned());
    own.filter(|name| name.starts_with("TIDEGATE_")).collect()
}

#[test]
fn the_adapter_understands_its_arguments_and_variables() {
    let container = container("sync/deployment.yaml", "Deployment");
    let arguments = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    Cli::try_parse_from(["tidegate-sync"].into_iter().chain(arguments)).unwrap();
    let command = Cli::command();
    let kubernetes = command.find_subcommand("kubernetes").unwrap();
    let all = command.get_arguments().chain(kubernetes.get_arguments());
    let known: Vec<_> = all.filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned)).collect();
    let shared = ["TIDEGATE_API", "TIDEGATE_KUBE_MODE", "TIDEGATE_CLUSTER", "TIDEGATE_LOAD_BALANCER_CLASS"];
    for name in variables(&container).iter().map(String::as_str).chain(shared) {
        assert!(known.iter().any(|known| known == name), "{name} is none of {known:?}");
    }
}

#[test]
fn the_agent_has_its_variables_and_the_capabilities_of_its_unit() {
    let container = container("agent/daemonset.yaml", "DaemonSet");
    let options = fs::read_to_string(root().join("node-agent/src/config/options.rs")).unwrap();
    for name in variables(&container) {
        assert!(options.contains(&format!("\"{name}\"")), "the agent has no {name}");
    }
    let unit = fs::read_to_string(root().join("packaging/systemd/tidegate-agent.service")).unwrap();
    let bounds = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let given = container["securityContext"]["capabilities"]["add"].as_array().unwrap();
    let given: Vec<String> = given.iter().map(|word| format!("CAP_{}", word.as_str().unwrap())).collect();
    assert_eq!(given.join(" "), bounds);
}

#[test]
fn the_dns_server_has_its_variables() {
    let container = container("dns.yaml", "DaemonSet");
    let options: String = ["dns/src/args.rs", "replica/src/control.rs"]
        .map(|path| fs::read_to_string(root().join(path)).unwrap())
        .concat();
    for name in variables(&container) {
        assert!(options.contains(&format!("\"{name}\"")), "the DNS server has no {name}");
    }
}

/// In the output of `kubectl kustomize packaging/kubernetes`, all objects are in namespace `tidegate`, the
/// role bindings refer to the ServiceAccount there, and both containers use the ConfigMap.
#[test]
fn kubectl_puts_the_manifests_together() {
    let made = std::process::Command::new("kubectl")
        .args(["kustomize", "packaging/kubernetes"])
        .current_dir(root())
        .output()
        .expect("kubectl is installed: lab/setup.sh");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let all = objects(Language::Yaml, &made.stdout).unwrap();
    let of = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap();
    for kind in ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment", "DaemonSet"] {
        assert_eq!(of(kind)["metadata"]["namespace"], "tidegate", "{kind}");
    }
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        let subject = &of(kind)["subjects"][0];
        assert_eq!(
            (&subject["name"], &subject["namespace"]),
            (&of("ServiceAccount")["metadata"]["name"], &"tidegate".into())
        );
    }
    // The name ends in a hash of the contents, so that containers are replaced when the contents change.
    let settings = &of("ConfigMap")["metadata"]["name"];
    for kind in ["Deployment", "DaemonSet"] {
        let container = &of(kind)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["envFrom"][0]["configMapRef"]["name"], *settings, "{kind}");
    }
    let guide = fs::read_to_string(root().join("docs/how-to/kubernetes.md")).unwrap();
    assert!(guide.contains("\nkubectl apply -k packaging/kubernetes\n"));
}
