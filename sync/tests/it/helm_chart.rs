//! Tests of the Helm chart, rendered by Helm: it makes the objects of the manifests, and refuses settings that
//! it does not know.

use std::{collections::BTreeMap, path::PathBuf, process::Output};

use serde_json::{Value, json};
use translate::parse::{Language, objects};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run(program: &str, arguments: &[&str]) -> Output {
    std::process::Command::new(program).args(arguments).current_dir(root()).output().unwrap()
}

fn helm(command: &[&str], settings: &[&str]) -> Output {
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<_> =
        command.iter().copied().chain(["packaging/helm/tidegate"]).chain(settings).collect();
    run("lab/helm.sh", &arguments)
}

/// Returns the objects of the chart with settings as in `--set`, in namespace `tidegate`.
fn render(settings: &[&str]) -> Vec<Value> {
    let made = helm(&["template", "release", "--namespace", "tidegate"], settings);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    objects(Language::Yaml, &made.stdout).unwrap()
}

fn refusal(settings: &[&str]) -> String {
    let made = helm(&["template", "release"], settings);
    assert!(!made.status.success(), "{settings:?} was accepted");
    String::from_utf8(made.stderr).unwrap()
}

fn find<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    all.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn container(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]
}

/// Returns the environment of a container by name, with the settings of a ConfigMap.
fn environment(container: &Value, shared: Option<&Value>) -> BTreeMap<String, Value> {
    let own = container["env"].as_array().unwrap().iter().map(|entry| {
        let value = entry.get("value").or_else(|| entry.get("valueFrom")).unwrap();
        (entry["name"].as_str().unwrap().to_owned(), value.clone())
    });
    let shared = shared.and_then(Value::as_object).into_iter().flatten();
    own.chain(shared.map(|(name, value)| (name.clone(), value.clone()))).collect()
}

/// Removes the parts of an object in which chart and manifests differ: labels, and the source of settings.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("labels");
    if let Some(spec) = object.get_mut("spec").filter(|spec| spec.get("template").is_some()) {
        spec.as_object_mut().unwrap().remove("selector");
        spec["template"].as_object_mut().unwrap().remove("metadata");
        let container = spec["template"]["spec"]["containers"][0].as_object_mut().unwrap();
        container.remove("env");
        container.remove("envFrom");
    }
    object
}

#[test]
fn the_chart_makes_the_objects_of_the_manifests() {
    let made = run("kubectl", &["kustomize", "packaging/kubernetes"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let manifests = objects(Language::Yaml, &made.stdout).unwrap();
    let chart = render(&[]);
    let settings = &find(&manifests, "ConfigMap")["data"];
    // Helm creates the namespace, and the chart has no ConfigMap.
    let expected: Vec<_> = manifests
        .iter()
        .filter(|object| object["kind"] != "Namespace" && object["kind"] != "ConfigMap")
        .collect();
    assert_eq!(chart.len(), expected.len());
    for object in expected {
        let kind = object["kind"].as_str().unwrap();
        let other = find(&chart, kind);
        assert_eq!(comparable(other), comparable(object), "{kind}");
        if object["spec"].get("template").is_some() {
            let mut all = environment(container(object), Some(settings));
            if kind == "DaemonSet" {
                // A setting of the adapter only, although the ConfigMap has it for both.
                all.remove("TIDEGATE_KUBE_MODE");
            }
            assert_eq!(environment(container(other), None), all, "{kind}");
            let labels = &other["spec"]["template"]["metadata"]["labels"];
            for (name, value) in other["spec"]["selector"]["matchLabels"].as_object().unwrap() {
                assert_eq!(labels[name], *value, "{kind}: label {name}");
            }
        }
    }
}

#[test]
fn every_setting_has_its_effect() {
    let all = render(&[
        "controlServers=https://a:7440\\,https://b:7440",
        "cluster=east",
        "images.registry=registry.example.org/tidegate/",
        "images.tag=1.2.3",
        "images.pullSecrets={one,two}",
        "agent.secret=join",
        "agent.mode=ipvs",
        "agent.listen=0.0.0.0:7441",
        "agent.nodeSelector.disk=fast",
        "agent.tolerations=null",
        "agent.environment.TIDEGATE_LOG=debug",
        "sync.secret=access",
        "sync.mode=proxy",
        "sync.replicas=3",
        "sync.loadBalancerClass=example.org/tidegate",
        "sync.passwordSecrets={tor-a,tor-b}",
        "sync.passwordNamespace=routers",
        "sync.resources.limits.memory=2Gi",
        "sync.environment.TIDEGATE_PRUNE_LIMIT=5",
        "sync.listen=[::]:9000",
        "sync.gateways=true",
        "sync.networkPolicies=true",
        "sync.publishService=edge/gateway",
        "podMonitor.enabled=true",
        "podMonitor.interval=30s",
        "podMonitor.labels.release=prometheus",
    ]);
    let (agent, sync) = (find(&all, "DaemonSet"), find(&all, "Deployment"));
    let own = environment(container(agent), None);
    assert_eq!(own["TIDEGATE_API"], "https://a:7440,https://b:7440");
    assert_eq!(own["TIDEGATE_NODE"], "east--$(KUBE_NODE)");
    assert_eq!((&own["TIDEGATE_MODE"], &own["TIDEGATE_LISTEN"]), (&json!("ipvs"), &json!("0.0.0.0:7441")));
    assert_eq!(own["TIDEGATE_LOG"], "debug");
    let pod = &agent["spec"]["template"]["spec"];
    assert_eq!(container(agent)["image"], "registry.example.org/tidegate/tidegate-agent:1.2.3");
    assert_eq!(container(agent)["ports"], json!([{"name": "metrics", "containerPort": 7441}]));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "one"}, {"name": "two"}]));
    assert_eq!(pod["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!((&pod["volumes"][2]["secret"]["secretName"], pod.get("tolerations")), (&json!("join"), None));
    let own = environment(container(sync), None);
    assert_eq!(own["TIDEGATE_CLUSTER"], "east");
    assert_eq!((&own["TIDEGATE_KUBE_MODE"], &own["TIDEGATE_PRUNE_LIMIT"]), (&json!("proxy"), &json!("5")));
    assert_eq!(own["TIDEGATE_LOAD_BALANCER_CLASS"], "example.org/tidegate");
    assert_eq!(own["TIDEGATE_PASSWORD_SECRETS"], "true");
    assert_eq!(own["TIDEGATE_LISTEN"], "[::]:9000");
    assert_eq!(container(sync)["ports"], json!([{"name": "metrics", "containerPort": 9000}]));
    assert_eq!(sync["spec"]["replicas"], 3);
    assert_eq!(container(sync)["resources"]["limits"]["memory"], "2Gi");
    assert_eq!(sync["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"], "access");
    let passwords: Vec<_> =
        all.iter().filter(|object| object["metadata"]["name"] == "tidegate-sync-passwords").collect();
    assert_eq!(passwords.len(), 2);
    assert!(passwords.iter().all(|object| object["metadata"]["namespace"] == "routers"));
    let publisher = (&own["TIDEGATE_GATEWAYS"], &own["TIDEGATE_PUBLISH_SERVICE"]);
    assert_eq!(publisher, (&json!("true"), &json!("edge/gateway")));
    assert_eq!(own["TIDEGATE_NETWORK_POLICIES"], "true");
    let manifests: Vec<_> = ["gateways.yaml", "network-policies.yaml"]
        .iter()
        .flat_map(|name| {
            let text = std::fs::read(root().join("packaging/kubernetes").join(name)).unwrap();
            objects(Language::Yaml, &text).unwrap()
        })
        .collect();
    // Helm renders the GatewayClass only for a cluster with the Gateway API.
    for object in manifests.iter().filter(|object| object["kind"] != "GatewayClass") {
        let mut of_chart = all.iter().filter(|other| other["metadata"]["name"] == object["metadata"]["name"]);
        let other = of_chart.find(|other| other["kind"] == object["kind"]).unwrap();
        assert_eq!(comparable(other), comparable(object));
    }
    let monitors: Vec<_> = all.iter().filter(|object| object["kind"] == "PodMonitor").collect();
    assert_eq!(monitors.len(), 2);
    for (monitor, watched) in monitors.iter().zip([agent, sync]) {
        assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["interval"], "30s");
        assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
        assert_eq!(monitor["spec"]["selector"]["matchLabels"], watched["spec"]["selector"]["matchLabels"]);
    }

    // Each half is left out by itself.
    let kinds = |settings| -> Vec<_> {
        render(settings).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&["sync.enabled=false"]), ["DaemonSet"]);
    assert!(!kinds(&["agent.enabled=false"]).contains(&"DaemonSet".to_owned()));
}

/// The chart makes the objects of the manifest of the DNS server, which is off by default.
#[test]
fn the_chart_makes_the_dns_server_of_the_manifest() {
    let text = std::fs::read(root().join("packaging/kubernetes/dns.yaml")).unwrap();
    let manifests = objects(Language::Yaml, &text).unwrap();
    let settings =
        ["dns.enabled=true", "dns.upstream={192.0.2.53}", "agent.enabled=false", "dns.clusterIP=10.96.0.53"];
    let chart = render(&settings);
    for object in &manifests {
        let kind = object["kind"].as_str().unwrap();
        let (mut other, mut object) = (comparable(find(&chart, kind)), comparable(object));
        if kind == "Service" {
            for one in [&mut other, &mut object] {
                one["spec"].as_object_mut().unwrap().remove("selector");
            }
        } else {
            let image = |one: &mut Value| one["spec"]["template"]["spec"]["containers"][0]["image"].take();
            let images = (image(&mut other), image(&mut object));
            assert!(images.0.as_str().unwrap().starts_with(images.1.as_str().unwrap()), "{images:?}");
            let own = |one: &Value| environment(container(one), None);
            assert_eq!(own(find(&chart, kind)), own(find(&manifests, kind)));
        }
        assert_eq!(other, object, "{kind}");
    }
    assert_eq!(find(&render(&settings[..3]), "Service")["spec"].get("clusterIP"), None);
    assert!(!render(&[]).iter().any(|object| object["metadata"]["name"] == "tidegate-dns"));
}

#[test]
fn wrong_settings_are_refused_by_name() {
    for (settings, name) in [
        (&["agent.mode=none"][..], "agent.mode"),
        (&["agent.environment.log=debug"], "agent.environment"),
        (&["sync.replicas=0"], "sync.replicas"),
        (&["dns.upstream={a\\,b}"], "dns.upstream"),
        (&["dns.enabled=true"], "dns.upstream is empty"),
        (&["controlServers="], "controlServers"),
        (&["agnet.mode=ipvs"], "agnet"),
        (&["podMonitor.enabled=true"], "podMonitor.enabled needs agent.listen"),
        (&["podMonitor.enabled=true", "agent.listen=0.0.0.0:7441"], "podMonitor.enabled needs sync.listen"),
    ] {
        let text = refusal(settings);
        assert!(text.contains(name), "{settings:?}: {text}");
    }
}

#[test]
fn the_chart_is_valid_and_has_the_version_of_the_programs() {
    let made = helm(&["lint", "--strict"], &[]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    let text = std::fs::read(root().join("packaging/helm/tidegate/Chart.yaml")).unwrap();
    let chart = objects(Language::Yaml, &text).unwrap().remove(0);
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
