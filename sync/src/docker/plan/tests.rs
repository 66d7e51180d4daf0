use model::kinds::resource::Kind;

use super::*;
use crate::docker::container::PublishedPort;

fn host() -> Host {
    Host {
        node: Name::parse("n1").unwrap(),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        namespace: Namespace::parse("default").unwrap(),
        network: None,
        address: AddressKind::Auto,
    }
}

fn container(name: &str, network: &str, address: &str, labels: &[(&str, &str)]) -> Container {
    let attachment =
        Attachment { network_id: format!("id-{network}"), addresses: vec![address.parse().unwrap()] };
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Container {
        id: format!("id-{name}"),
        name: name.to_owned(),
        labels,
        life: Life::Running,
        networks: [(network.to_owned(), attachment)].into(),
        ports: [((80, Protocol::Tcp), Vec::new())].into(),
        ..Container::default()
    }
}

fn engine(major: u32, containers: &[Container]) -> EngineState {
    let network = Network {
        name: "bridge".to_owned(),
        subnets: vec!["172.17.0.0/16".to_owned()],
        driver: "bridge".to_owned(),
        link: Some("docker0".to_owned()),
        is_open: false,
    };
    EngineState {
        major,
        containers: containers.iter().map(|container| (container.id.clone(), container.clone())).collect(),
        networks: [("id-bridge".to_owned(), network)].into(),
        ending: BTreeSet::new(),
    }
}

const WEB: (&str, &str) = ("tidegate.service", "web");

/// Returns the JSON of the only Workload, or the reported problems if there is none.
fn one(engine: &EngineState) -> Result<Value, String> {
    let translation = translate(&host(), engine, &Elsewhere::default());
    let mut workloads = translation.objects.values().filter(|object| object.spec.kind() == Kind::Workload);
    match (workloads.next(), translation.complaints.as_slice()) {
        (Some(object), []) => Ok(object.to_json()),
        (_, complaints) => Err(complaints.join("\n")),
    }
}

/// A container started by Compose becomes a Workload with the Service label and those of Compose's labels
/// that are valid Kubernetes labels. A label whose value is a path is left out.
#[test]
fn a_container_becomes_a_workload_with_its_labels_address_node_and_ports() {
    let labels = [
        WEB,
        ("com.docker.compose.project", "shop"),
        ("com.docker.compose.project.working_dir", "/srv/shop"),
    ];
    let found = one(&engine(20, &[container("shop_web_1", "bridge", "172.17.0.2", &labels)])).unwrap();
    assert_eq!(found["metadata"]["name"], "n1.shop-web-1");
    let expected = json!({ "com.docker.compose.project": "shop", "tidegate.service": "web",
        "tidegate.io/engine": "docker", "tidegate.io/service": "web" });
    assert_eq!(found["metadata"]["labels"], expected);
    assert_eq!(found["spec"]["addresses"], json!(["172.17.0.2"]));
    assert_eq!((&found["spec"]["node"], &found["spec"]["ready"]), (&json!("n1"), &json!(true)));
    assert_eq!(found["spec"]["ports"]["tcp-80"]["port"], 80);
}

#[test]
fn containers_that_declare_ports_make_a_service_and_the_first_says_how() {
    let labels =
        [WEB, ("tidegate.port.http", "80:8080"), ("tidegate.type", "LoadBalancer"), ("tidegate.pool", "lan")];
    let other = [WEB, ("tidegate.port.http", "81:8080")];
    let engine = engine(
        20,
        &[container("a", "bridge", "172.17.0.2", &labels), container("b", "bridge", "172.17.0.3", &other)],
    );
    let translation = translate(&host(), &engine, &Elsewhere::default());
    let service =
        translation.objects.values().find(|object| object.spec.kind() == Kind::Service).unwrap().to_json();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "tcp-8080");
    assert_eq!(service["spec"]["loadBalancer"]["pool"], "lan");
    assert_eq!(
        translation.complaints,
        ["container b: declares Service web differently from a, whose declaration is used"]
    );
    let workload = translation.objects.values().next().unwrap().to_json();
    assert_eq!(
        workload["spec"]["ports"]["tcp-8080"]["port"], 8080,
        "what a Service sends to need not be exposed"
    );
}

#[test]
fn states_of_containers_are_phases_and_readiness() {
    for (life, is_healthy, expected) in [
        (Life::Running, None, ("Running", true)),
        (Life::Running, Some(true), ("Running", true)),
        (Life::Running, Some(false), ("Running", false)),
        (Life::Paused, Some(true), ("Running", false)),
        (Life::Ending, None, ("Terminating", false)),
        (Life::Waiting, None, ("Pending", false)),
        (Life::Ended, None, ("Succeeded", false)),
        (Life::Failed, None, ("Failed", false)),
    ] {
        let seen = Container { life, is_healthy, ..container("a", "bridge", "172.17.0.2", &[WEB]) };
        let found = one(&engine(20, &[seen])).unwrap();
        let found = (found["spec"]["phase"].as_str().unwrap(), found["spec"]["ready"].as_bool().unwrap());
        assert_eq!(found, expected, "{life:?} {is_healthy:?}");
    }
    let mut told = engine(20, &[container("a", "bridge", "172.17.0.2", &[WEB])]);
    told.ending.insert("id-a".to_owned());
    assert_eq!(one(&told).unwrap()["spec"]["phase"], "Terminating");
}

#[test]
fn f024_containers_in_another_one_s_network_have_its_address_and_those_in_the_machine_s_have_its() {
    let owner = container("owner", "bridge", "172.17.0.2", &[]);
    let joined = Container {
        mode: NetworkMode::Of("id-owner".to_owned()),
        networks: BTreeMap::new(),
        ports: [((90, Protocol::Tcp), Vec::new())].into(),
        ..container("joined", "x", "10.0.0.1", &[WEB])
    };
    let found = one(&engine(20, &[owner, joined.clone()])).unwrap();
    assert_eq!(found["spec"]["addresses"], json!(["172.17.0.2"]));
    assert_eq!(found["spec"]["ports"]["tcp-90"]["port"], 90);
    assert!(
        one(&engine(20, std::slice::from_ref(&joined)))
            .unwrap_err()
            .contains("container id-owner, which does not exist")
    );
    let itself = Container { mode: NetworkMode::Of("id-joined".to_owned()), ..joined.clone() };
    assert!(one(&engine(20, &[itself])).unwrap_err().contains("more than 8 containers"));
    let machine = Container { mode: NetworkMode::Host, ..joined };
    assert_eq!(one(&engine(20, &[machine])).unwrap()["spec"]["addresses"], json!(["192.0.2.1"]));
}

#[test]
fn an_address_is_never_guessed() {
    let mut several = container("a", "bridge", "172.17.0.2", &[WEB]);
    several.networks.insert("other".to_owned(), Attachment { network_id: "x".to_owned(), addresses: vec![] });
    let complaint = one(&engine(20, std::slice::from_ref(&several))).unwrap_err();
    assert!(
        complaint.contains("several networks (bridge, other)") && complaint.contains("tidegate.network"),
        "{complaint}"
    );
    several.labels.insert("tidegate.network".to_owned(), "bridge".to_owned());
    assert_eq!(
        one(&engine(20, std::slice::from_ref(&several))).unwrap()["spec"]["addresses"],
        json!(["172.17.0.2"])
    );
    several.labels.insert("tidegate.network".to_owned(), "gone".to_owned());
    assert!(
        one(&engine(20, &[several])).unwrap_err().contains("not in network gone, only in: bridge, other")
    );
}

/// If the engine drops traffic from other machines to container addresses, published ports are used, provided
/// that all ports are published. Otherwise the reported problem names the remedy.
#[test]
fn newer_engines_that_keep_machines_apart_are_answered_by_published_ports_or_by_words() {
    let bare = container("a", "bridge", "172.17.0.2", &[WEB]);
    assert!(one(&engine(27, std::slice::from_ref(&bare))).is_ok());
    let complaint = one(&engine(28, std::slice::from_ref(&bare))).unwrap_err();
    for remedy in ["publish its ports", "nat-unprotected", "trusted_host_interfaces", "allow-direct-routing"]
    {
        assert!(complaint.contains(remedy), "{complaint}");
    }
    let mut published = bare.clone();
    let everywhere = PublishedPort { address: "0.0.0.0".parse().unwrap(), port: 32768 };
    published.ports.insert((80, Protocol::Tcp), vec![everywhere]);
    let found = one(&engine(28, &[published])).unwrap();
    assert_eq!(
        (&found["spec"]["addresses"], &found["spec"]["ports"]["tcp-80"]["port"]),
        (&json!(["192.0.2.1"]), &json!(32768))
    );
    let mut open = engine(28, std::slice::from_ref(&bare));
    open.networks.get_mut("id-bridge").unwrap().is_open = true;
    assert!(one(&open).is_ok());
    let mut labelled = bare;
    labelled.labels.insert("tidegate.address".to_owned(), "container".to_owned());
    assert!(one(&engine(28, &[labelled])).is_ok(), "the operator knows");
}

#[test]
fn published_ports_must_be_reachable_and_unambiguous() {
    let mut published = container("a", "bridge", "172.17.0.2", &[WEB, ("tidegate.address", "published")]);
    assert!(
        one(&engine(20, std::slice::from_ref(&published)))
            .unwrap_err()
            .contains("none of its ports is published")
    );
    let binding = |address: &str| PublishedPort { address: address.parse().unwrap(), port: 8080 };
    published.ports.insert((80, Protocol::Tcp), vec![binding("127.0.0.1")]);
    assert!(
        one(&engine(20, std::slice::from_ref(&published)))
            .unwrap_err()
            .contains("none of its ports is published")
    );
    published.ports.insert((80, Protocol::Tcp), vec![binding("192.0.2.7")]);
    assert_eq!(
        one(&engine(20, std::slice::from_ref(&published))).unwrap()["spec"]["addresses"],
        json!(["192.0.2.7"])
    );
    published.ports.insert((81, Protocol::Tcp), vec![binding("192.0.2.8")]);
    assert!(one(&engine(20, &[published])).unwrap_err().contains("at several addresses"));
}

/// A subnet or an address that containers on another Node also use is reported, and the ambiguous address is
/// rejected.
#[test]
fn f026_equal_subnets_on_two_nodes_are_told_and_equal_addresses_are_refused() {
    let engine = engine(
        20,
        &[container("a", "bridge", "172.17.0.2", &[WEB]), container("b", "bridge", "172.17.0.3", &[WEB])],
    );
    let elsewhere = Elsewhere {
        addresses: [("172.17.0.2".parse().unwrap(), "n2".to_owned())].into(),
        subnets: [("172.17.0.0/16".to_owned(), ["n2".to_owned()].into())].into(),
    };
    let translation = translate(&host(), &engine, &elsewhere);
    let names: Vec<_> = translation.objects.keys().map(|key| key.name.to_string()).collect();
    assert_eq!(names, ["n1.b"]);
    let [address, subnet] = translation.complaints.as_slice() else { panic!("{:?}", translation.complaints) };
    assert!(
        address.contains("172.17.0.2 in network bridge is also used by a container on Node n2"),
        "{address}"
    );
    assert!(
        subnet.contains("172.17.0.0/16, which containers on Node n2 have too") && subnet.contains("bip"),
        "{subnet}"
    );
}
