//! Environment variables of Services (F162).

use std::{fs, path::Path};

use model::{
    discovery::environment::{Environment, EnvironmentFilter},
    primitives::name::{Name, Namespace},
};
use serde_json::{Value, json};

use crate::support::Cluster;

fn service(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "tidegate/v1", "kind": "Service", "metadata": { "namespace": namespace, "name": name }, "spec": spec,
    })
}

/// Creates Services with names, ports and addresses of every kind that matters for names and values of variables.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let port =
        |name: &str, protocol: &str, port: u16| json!({ "name": name, "protocol": protocol, "port": port });
    let services = [
        service("shop", "web", json!({ "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] })),
        service(
            "shop",
            "1st-dns",
            json!({ "clusterIP": "10.96.0.11", "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53), port("1x", "SCTP", 54)] }),
        ),
        service(
            "shop",
            "v6",
            json!({ "clusterIPs": ["fd00:96::10"], "ipFamilies": ["IPv6"], "ports": [port("http", "TCP", 8080)] }),
        ),
        service(
            "shop",
            "both",
            json!({ "clusterIPs": ["fd00:96::11", "10.96.0.12"], "ports": [port("http", "TCP", 80)] }),
        ),
        service("shop", "headless", json!({ "clusterIP": "None", "ports": [{ "port": 5432 }] })),
        service("shop", "alias", json!({ "type": "ExternalName", "externalName": "db.example.com" })),
        service("other", "hidden", json!({ "clusterIP": "10.96.0.13", "ports": [{ "port": 80 }] })),
        service(
            "default",
            "kubernetes",
            json!({ "clusterIP": "10.96.0.1", "ports": [port("https", "TCP", 443)] }),
        ),
    ];
    for service in services {
        cluster.apply(&service).unwrap();
    }
    cluster
}

fn of(cluster: &Cluster, namespace: &str, names: Option<&[&str]>, links: bool) -> Environment {
    let names = names.map(|names| names.iter().map(|name| Name::parse(name).unwrap()).collect());
    Environment::of(
        &cluster.snapshot,
        &Namespace::parse(namespace).unwrap(),
        &EnvironmentFilter { names, links },
    )
}

/// Variable names without values, for short assertions.
fn names(environment: &Environment) -> Vec<&str> {
    environment.variables.iter().map(|variable| variable.name.as_str()).collect()
}

/// All variables of kubelet for odd names, IPv6, two protocols at one port and unnamed ports; none of headless
/// Services, aliases and other namespaces.
#[test]
fn f162_the_variables_are_those_of_kubelet() {
    let text = of(&cluster(), "shop", None, true).to_dotenv();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/environment.env");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap());
}

#[test]
fn f162_links_and_names_restrict_the_variables() {
    let cluster = cluster();
    let bare = of(&cluster, "shop", Some(&["web", "v6"]), false);
    let expected = [
        "V6_SERVICE_HOST",
        "V6_SERVICE_PORT",
        "V6_SERVICE_PORT_HTTP",
        "WEB_SERVICE_HOST",
        "WEB_SERVICE_PORT",
    ];
    assert_eq!(names(&bare), expected);
    // Without Services of its own, a namespace has the variables of the Kubernetes API server.
    let empty = of(&cluster, "empty", None, false);
    assert_eq!(
        names(&empty),
        ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS"]
    );
    assert_eq!(names(&of(&cluster, "default", None, false)), names(&empty));
}

/// Dots are not allowed in names of Services, so only a dash and a port name can produce the same variable twice.
#[test]
fn f162_a_variable_of_two_services_has_one_value_and_is_reported() {
    let mut cluster = Cluster::new();
    let odd = json!({ "clusterIP": "10.96.0.20", "ports": [{ "name": "service-host", "port": 1 }, { "name": "x", "port": 2 }] });
    cluster.apply(&service("shop", "a", odd)).unwrap();
    let other = json!({ "clusterIP": "10.96.0.21", "ports": [{ "port": 80 }] });
    cluster.apply(&service("shop", "a-service-port", other)).unwrap();
    let environment = of(&cluster, "shop", None, false);
    let of_name = |name: &str| {
        let mut found = environment.variables.iter().filter(|variable| variable.name == name);
        (found.next().map(|variable| variable.value.clone()), found.count())
    };
    assert_eq!(of_name("A_SERVICE_PORT_SERVICE_HOST"), (Some("10.96.0.21".to_owned()), 0));
    let conflicts: Vec<_> =
        environment.conflicts.iter().map(|one| (one.name.as_str(), one.ignored.to_string())).collect();
    assert_eq!(conflicts, [("A_SERVICE_PORT_SERVICE_HOST", "shop/a".to_owned())]);
}

#[test]
fn f162_the_formats_agree_and_the_size_is_that_of_the_kernel() {
    let environment = of(&cluster(), "shop", None, true);
    let docker = environment.to_docker();
    assert_eq!(environment.to_dotenv(), docker.iter().map(|line| format!("{line}\n")).collect::<String>());
    assert_eq!(environment.size(), docker.iter().map(|line| line.len() + 1).sum::<usize>());
    assert!(docker.iter().all(|line| line.is_ascii() && !line.contains(['\n', ' ', '"', '\''])));
}
