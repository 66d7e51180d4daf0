//! Admission of writes: an accepted write keeps or allocates absent values, and a refused write has a reason.

use model::{
    admission::admit::{ApplySet, Operation, Refusal, Request},
    cluster::change::Action,
    kinds::{
        resource::ObjectKey,
        service::{ClusterIp, IpFamilyPolicy, ServiceType},
    },
    primitives::{
        name::{Name, Namespace},
        net::IpFamily,
        violation::ViolationCode::{
            AddressNotAllowed, AddressTaken, Conflict, Exhausted, Immutable, Overlap, OwnedByOther,
            PortOutOfRange, PortTaken,
        },
    },
};
use serde_json::json;

use crate::support::{Cluster, object, of_kind, service, violations};

fn web() -> serde_json::Value {
    service("web", json!({ "ports": [{ "port": 80 }] }))
}

/// F030: a Service without a type becomes a ClusterIP Service with an allocated address of the primary Service
/// range.
#[test]
fn f030_a_service_without_type_is_a_cluster_ip_service_with_an_address() {
    let mut cluster = Cluster::new();
    cluster.apply(&web()).unwrap();
    let spec = cluster.service("web");
    assert_eq!(spec.service_type, ServiceType::ClusterIP);
    let address = spec.cluster_ip.and_then(ClusterIp::address).unwrap();
    assert!(cluster.config.service_cidr(IpFamily::V4).unwrap().contains(&address));
    assert_eq!(spec.ip_families, [IpFamily::V4]);
    assert_eq!(spec.ip_family_policy, Some(IpFamilyPolicy::SingleStack));
}

/// F034: an update of a Service without a cluster IP keeps the present one, and an update with a different
/// one is refused. The deletion of a Service makes its cluster IP available to other Services.
#[test]
fn f034_a_cluster_ip_is_fixed_for_the_life_of_the_service() {
    let mut cluster = Cluster::new();
    cluster.apply(&service("web", json!({ "clusterIP": "10.96.7.7", "ports": [{ "port": 80 }] }))).unwrap();
    cluster.apply(&service("web", json!({ "ports": [{ "port": 81 }] }))).unwrap();
    assert_eq!(cluster.service("web").cluster_ip.map(String::from).as_deref(), Some("10.96.7.7"));

    let moved = service("web", json!({ "clusterIP": "10.96.7.8", "ports": [{ "port": 81 }] }));
    assert_eq!(violations(cluster.apply(&moved)), [("/items/0/spec/clusterIP".to_owned(), Immutable)]);

    let rival = service("rival", json!({ "clusterIP": "10.96.7.7", "ports": [{ "port": 80 }] }));
    assert_eq!(violations(cluster.apply(&rival)), [("/items/0/spec/clusterIP".to_owned(), AddressTaken)]);
    cluster.delete("services/default/web").unwrap();
    assert_eq!(cluster.apply(&rival), Ok(Action::Created));
}

#[test]
fn f025_virtual_workload_and_node_addresses_are_never_mixed() {
    let mut cluster = Cluster::new();
    let outside = service("web", json!({ "clusterIP": "10.97.0.1", "ports": [{ "port": 80 }] }));
    assert_eq!(
        violations(cluster.apply(&outside)),
        [("/items/0/spec/clusterIP".to_owned(), AddressNotAllowed)]
    );
    for edge in ["10.96.0.0", "10.96.255.255"] {
        let edge = service("web", json!({ "clusterIP": edge, "ports": [{ "port": 80 }] }));
        assert_eq!(
            violations(cluster.apply(&edge)),
            [("/items/0/spec/clusterIP".to_owned(), AddressNotAllowed)]
        );
    }
    let workload = of_kind("Workload", "w", json!({}), json!({ "addresses": ["10.96.0.9"] }));
    assert_eq!(
        violations(cluster.apply(&workload)),
        [("/items/0/spec/addresses/0".to_owned(), AddressNotAllowed)]
    );
    let set = of_kind(
        "EndpointSet",
        "e",
        json!({}),
        json!({ "service": "web", "endpoints": [{ "address": "10.96.1.1" }] }),
    );
    assert_eq!(
        violations(cluster.apply(&set)),
        [("/items/0/spec/endpoints/0/address".to_owned(), AddressNotAllowed)]
    );
    let node = of_kind("Node", "n", json!({}), json!({ "addresses": ["10.96.1.1"] }));
    assert_eq!(
        violations(cluster.apply(&node)),
        [("/items/0/spec/addresses/0".to_owned(), AddressNotAllowed)]
    );
}

#[test]
fn f031_overlapping_service_and_workload_networks_are_refused() {
    let mut cluster = Cluster::new();
    let node = of_kind("Node", "n", json!({}), json!({ "workloadCIDRs": ["10.1.0.0/24", "10.96.128.0/17"] }));
    assert_eq!(violations(cluster.apply(&node)), [("/items/0/spec/workloadCIDRs/1".to_owned(), Overlap)]);
}

#[test]
fn f036_node_ports_are_in_range_unique_per_protocol_and_honoured() {
    let mut cluster = Cluster::new();
    let both = json!([{ "name": "t", "port": 53, "nodePort": 30053 }, { "name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053 }]);
    cluster.apply(&service("dns", json!({ "type": "NodePort", "ports": both }))).unwrap();
    let with =
        |port: u16| service("x", json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": port }] }));
    assert_eq!(
        violations(cluster.apply(&with(30053))),
        [("/items/0/spec/ports/0/nodePort".to_owned(), PortTaken)]
    );
    assert_eq!(
        violations(cluster.apply(&with(80))),
        [("/items/0/spec/ports/0/nodePort".to_owned(), PortOutOfRange)]
    );
    let ports: Vec<_> = (1..=40).map(|port| json!({ "name": format!("p{port}"), "port": port })).collect();
    cluster.apply(&service("many", json!({ "type": "NodePort", "ports": ports }))).unwrap();
    let given: std::collections::BTreeSet<_> =
        cluster.service("many").ports.iter().map(|port| port.node_port.unwrap().get()).collect();
    assert_eq!(given.len(), 40);
    assert!(given.iter().all(|port| (30000..=32767).contains(port)));
}

#[test]
fn a_load_balancer_may_have_no_node_ports() {
    let mut cluster = Cluster::new();
    let mut given = |are_given: Option<bool>| {
        let ports = json!([{ "name": "a", "port": 80 }, { "name": "b", "port": 81, "nodePort": 30_081 }]);
        let mut spec = json!({ "type": "LoadBalancer", "ports": ports });
        if let Some(are_given) = are_given {
            spec["allocateLoadBalancerNodePorts"] = json!(are_given);
        }
        cluster.apply(&service("web", spec)).unwrap();
        let ports = &cluster.service("web").ports;
        ports
            .iter()
            .map(|port| port.node_port.map(model::primitives::quantity::Port::get))
            .collect::<Vec<_>>()
    };
    assert_eq!(given(Some(false)), [None, Some(30_081)], "the one that is named is opened");
    assert!(given(None)[0].is_some());
    assert_eq!(given(Some(false)), [None, Some(30_081)], "what was given is given back");
}

#[test]
fn node_ports_survive_updates_and_are_released_with_the_type() {
    let mut cluster = Cluster::new();
    cluster
        .apply(&service("web", json!({ "type": "NodePort", "ports": [{ "name": "http", "port": 80 }] })))
        .unwrap();
    let given = cluster.service("web").ports[0].node_port;
    cluster
        .apply(&service("web", json!({ "type": "NodePort", "ports": [{ "name": "http", "port": 8080 }] })))
        .unwrap();
    assert_eq!(cluster.service("web").ports[0].node_port, given, "the name keeps the node port");
    cluster.apply(&service("web", json!({ "ports": [{ "name": "http", "port": 8080 }] }))).unwrap();
    assert_eq!(cluster.service("web").ports[0].node_port, None);
}

#[test]
fn a_full_range_is_refused_and_a_freed_value_is_found_again() {
    let mut cluster = Cluster::with(&["10.96.0.0/29"], 30000..=30002);
    for n in 0..6 {
        cluster.apply(&service(&format!("s{n}"), json!({ "ports": [{ "port": 80 }] }))).unwrap();
    }
    assert_eq!(violations(cluster.apply(&web())), [("/items/0/spec/clusterIP".to_owned(), Exhausted)]);
    let freed = cluster.service("s3").cluster_ip;
    cluster.delete("services/default/s3").unwrap();
    cluster.apply(&web()).unwrap();
    assert_eq!(cluster.service("web").cluster_ip, freed);
    let ports = json!([{ "name": "a", "port": 1 }, { "name": "b", "port": 2 }, { "name": "c", "port": 3 }, { "name": "d", "port": 4 }]);
    let greedy = service("web", json!({ "type": "NodePort", "ports": ports }));
    assert_eq!(
        violations(cluster.apply(&greedy)),
        [("/items/0/spec/ports/3/nodePort".to_owned(), Exhausted)]
    );
}

#[test]
fn dual_stack_follows_policy_and_configured_ranges() {
    let mut cluster = Cluster::new();
    let spec = |policy: &str| service("web", json!({ "ipFamilyPolicy": policy, "ports": [{ "port": 80 }] }));
    cluster.apply(&spec("PreferDualStack")).unwrap();
    let both = cluster.service("web").cluster_ips.clone();
    assert_eq!(both.len(), 2);
    cluster.apply(&spec("SingleStack")).unwrap();
    assert_eq!(cluster.service("web").cluster_ips, both[..1], "the primary stays");
    cluster.apply(&spec("RequireDualStack")).unwrap();
    assert_eq!(cluster.service("web").cluster_ips[0], both[0]);
    let six = service("six", json!({ "ipFamilies": ["IPv6"], "ports": [{ "port": 80 }] }));
    cluster.apply(&six).unwrap();
    assert_eq!(cluster.service("six").ip_families, [IpFamily::V6]);

    let mut four_only = Cluster::with(&["10.96.0.0/16"], 30000..=32767);
    four_only.apply(&spec("PreferDualStack")).unwrap();
    assert_eq!(four_only.service("web").cluster_ips.len(), 1);
    let refused = service("two", json!({ "ipFamilyPolicy": "RequireDualStack", "ports": [{ "port": 80 }] }));
    assert_eq!(violations(four_only.apply(&refused))[0].0, "/items/0/spec/ipFamilyPolicy");
}

/// F040: Services may share an external IP on different ports, but not on the same port. An address outside of the
/// allowed ranges is refused.
#[test]
fn f040_external_ips_need_permission_and_have_one_holder_per_port() {
    let mut cluster = Cluster::new();
    let with = |name: &str, address: &str, port: u16| {
        service(name, json!({ "externalIPs": [address], "ports": [{ "port": port }] }))
    };
    assert_eq!(cluster.apply(&with("a", "192.0.2.10", 80)), Ok(Action::Created));
    assert_eq!(cluster.apply(&with("b", "192.0.2.10", 81)), Ok(Action::Created));
    assert_eq!(violations(cluster.apply(&with("c", "192.0.2.10", 80)))[0].1, AddressTaken);
    assert_eq!(violations(cluster.apply(&with("c", "203.0.113.1", 80)))[0].1, AddressNotAllowed);
}

#[test]
fn values_that_a_request_releases_are_free_for_its_objects() {
    let mut cluster = Cluster::new();
    let port = |name: &str, number: u16| {
        service(name, json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": number }] }))
    };
    cluster.apply_many(&[port("a", 30001), port("b", 30002)], None).unwrap();
    let swapped = cluster.apply_many(&[port("a", 30002), port("b", 30001)], None).unwrap();
    assert_eq!(swapped, [Action::Updated, Action::Updated]);
}

#[test]
fn f012_applying_the_same_twice_makes_one_revision() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.apply(&web()), Ok(Action::Created));
    let revision = cluster.snapshot.revision();
    assert_eq!(cluster.apply(&web()), Ok(Action::Unchanged));
    assert_eq!(cluster.snapshot.revision(), revision);
}

#[test]
fn a_refused_request_changes_nothing_and_names_every_item() {
    let mut cluster = Cluster::new();
    cluster.apply(&web()).unwrap();
    let before = cluster.snapshot.clone();
    let bad = |name: &str| service(name, json!({ "clusterIP": "10.1.1.1", "ports": [{ "port": 80 }] }));
    let refused = cluster.apply_many(&[web(), bad("x"), bad("y")], None).unwrap_err();
    let Refusal::Invalid(found) = refused else { panic!("must be about fields: {refused:?}") };
    let pointers: Vec<_> = found.iter().map(|violation| violation.pointer.as_str()).collect();
    assert_eq!(pointers, ["/items/1/spec/clusterIP", "/items/2/spec/clusterIP"]);
    assert_eq!(cluster.snapshot, before);
}

/// F006: a replacement of an object with an old `resourceVersion` is refused as a conflict. A replacement
/// with an old revision in `If-Match` is refused as a failed precondition.
#[test]
fn f006_metadata_is_complete_and_stale_revisions_are_refused() {
    let mut cluster = Cluster::new();
    cluster.apply(&web()).unwrap();
    let first = cluster.get("services/default/web").clone();
    cluster.apply(&service("web", json!({ "ports": [{ "port": 81 }] }))).unwrap();
    let second = cluster.get("services/default/web").metadata.clone();
    let second_revision = second.revision();
    assert_eq!(second.uid, first.metadata.uid);
    assert!(second.revision() > first.metadata.revision());
    assert_eq!((first.metadata.generation, second.generation), (Some(1), Some(2)));
    assert_eq!(second.self_link.as_deref(), Some("/v1/namespaces/default/services/web"));

    let replace = |object, if_revision| Request {
        operations: vec![Operation::Replace { object, if_revision }],
        ..Request::default()
    };
    assert!(matches!(cluster.write(&replace(first.clone(), None)), Err(Refusal::Conflict(_))));
    let mut fresh = object(&web());
    assert!(matches!(
        cluster.write(&replace(fresh.clone(), Some(first.metadata.revision()))),
        Err(Refusal::PreconditionFailed(_))
    ));
    fresh.metadata.resource_version = second.resource_version;
    assert!(cluster.write(&replace(fresh, Some(second_revision))).is_ok());
}

#[test]
fn apply_sets_own_their_members_and_prune_within_bounds() {
    let mut cluster = Cluster::new();
    let set = |name: &str, prune, prune_limit| {
        Some(ApplySet { name: Name::parse(name).unwrap(), scope: None, prune, prune_limit, adopt: true })
    };
    let many: Vec<_> =
        (0..20).map(|n| service(&format!("s{n}"), json!({ "ports": [{ "port": 80 }] }))).collect();
    cluster.apply_many(&many, set("blue", false, None)).unwrap();

    let stolen = cluster.apply_many(&many[..1], set("green", false, None)).unwrap_err();
    assert!(matches!(&stolen, Refusal::Invalid(found) if found[0].code == OwnedByOther), "{stolen:?}");
    let refused = cluster.apply_many(&many[..14], set("blue", true, None)).unwrap_err();
    assert!(
        matches!(&refused, Refusal::PruneLimit { would_prune, limit: 5 } if would_prune.len() == 6),
        "{refused:?}"
    );
    let pruned = cluster.apply_many(&many[..15], set("blue", true, None)).unwrap();
    assert_eq!(pruned.iter().filter(|action| **action == Action::Pruned).count(), 5);
    let pruned = cluster.apply_many(&[], set("blue", true, Some(15))).unwrap();
    assert_eq!(pruned.len(), 15);
}

/// Writers with and without a limit to namespaces have separate parts of an apply set: neither deletes nor counts
/// the objects of the other, and an object that both apply belongs to the writer without a limit.
#[test]
fn writers_of_one_namespace_have_their_own_part_of_an_apply_set() {
    let mut cluster = Cluster::new();
    let set = |scope: Option<&str>| {
        let scope = scope.map(|namespace| [Namespace::parse(namespace).unwrap()].into());
        let name = Name::parse("kubernetes").unwrap();
        Some(ApplySet { name, scope, prune: true, prune_limit: None, adopt: true })
    };
    let named = |namespace: &str, name: &str| {
        let mut object = service(name, json!({ "ports": [{ "port": 80 }] }));
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let squatters: Vec<_> = (0..6).map(|number| named("team-a", &format!("own-{number}"))).collect();
    cluster.apply_many(&squatters, set(Some("team-a"))).unwrap();
    let all = [named("team-a", "shop"), named("team-b", "shop"), named("team-c", "shop")];
    cluster.apply_many(&all, set(None)).unwrap();
    let actions = cluster.apply_many(&all[..2], set(None)).unwrap();
    assert_eq!(actions, [Action::Unchanged, Action::Unchanged, Action::Pruned], "team-c lost its own");
    // A writer of one namespace neither takes an object over nor is stopped by those of others.
    let of_team = [squatters[0].clone(), all[0].clone()];
    let actions = cluster.apply_many(&of_team, set(Some("team-a"))).unwrap();
    assert_eq!(actions[..2], [Action::Unchanged, Action::Unchanged]);
    assert_eq!(actions[2..], [Action::Pruned; 5]);
    let actions = cluster.apply_many(&[named("team-b", "new")], set(Some("team-b"))).unwrap();
    assert_eq!(
        actions,
        [Action::Created, Action::Pruned],
        "objects of older writers in its namespace are its own"
    );
    // An object that the writer without a limit applies becomes a member of its part.
    cluster.apply_many(&squatters[..1], set(None)).unwrap();
    assert!(cluster.snapshot.get(&ObjectKey::parse_store_key("services/team-a/shop").unwrap()).is_none());
    let actions = cluster.apply_many(&[], set(None)).unwrap();
    assert_eq!(actions, [Action::Pruned]);
}

#[test]
fn an_apply_set_without_adoption_changes_no_objects_outside_of_sets() {
    let mut cluster = Cluster::new();
    let careful = || {
        Some(ApplySet {
            name: Name::parse("blue").unwrap(),
            scope: None,
            prune: false,
            prune_limit: None,
            adopt: false,
        })
    };
    let [by_hand, own] = ["hand", "own"].map(|name| service(name, json!({ "ports": [{ "port": 80 }] })));
    cluster.apply(&by_hand).unwrap();
    let refused = cluster.apply_many(&[by_hand, own.clone()], careful()).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Invalid(found)
            if found.len() == 1 && found[0].code == OwnedByOther && found[0].pointer == "/items/0/metadata/name"),
        "{refused:?}"
    );
    cluster.apply_many(std::slice::from_ref(&own), careful()).unwrap();
    assert_eq!(cluster.apply_many(&[own], careful()).unwrap(), [Action::Unchanged], "it is its own");
}

#[test]
fn f033_headless_and_external_name_services_get_no_address() {
    let mut cluster = Cluster::new();
    cluster.apply(&service("h", json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }))).unwrap();
    cluster.apply(&service("e", json!({ "type": "ExternalName", "externalName": "db.example" }))).unwrap();
    assert!(cluster.service("h").is_headless());
    assert_eq!(cluster.service("e").cluster_ips, []);
    cluster.apply(&service("e", json!({ "ports": [{ "port": 80 }] }))).unwrap();
    assert_eq!(cluster.service("e").cluster_ips.len(), 1, "a name may become an address");
}

#[test]
fn a_dry_run_returns_the_values_that_the_write_gets() {
    let mut cluster = Cluster::new();
    let spec = json!({ "type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "ports": [{ "port": 80 }] });
    let request =
        Request { operations: vec![Operation::Apply(object(&service("web", spec)))], ..Request::default() };
    let before = cluster.snapshot.clone();
    let tried = cluster.write(&request).unwrap().outcomes[0].object.spec.clone();
    cluster.snapshot = before;
    let written = cluster.write(&request).unwrap().outcomes[0].object.spec.clone();
    assert_eq!(tried, written);
}

/// F040: Services with overlapping port ranges of one protocol cannot share an external IP. An external IP
/// cannot also be a load balancer address.
#[test]
fn f040_routed_addresses_have_one_holder_per_port_also_of_ranges() {
    let mut cluster = Cluster::new();
    let external = |name: &str, port: u16, last: u16, protocol: &str| {
        let ports = json!([{ "port": port, "endPort": last, "protocol": protocol }]);
        service(name, json!({ "externalIPs": ["192.0.2.10"], "ports": ports }))
    };
    let pinned = |name: &str, address: &str, port: u16| {
        let ports = json!([{ "port": port }]);
        service(
            name,
            json!({ "type": "LoadBalancer", "loadBalancer": { "addresses": [address] }, "ports": ports }),
        )
    };
    cluster.apply(&external("a", 100, 200, "TCP")).unwrap();
    let at = "/items/0/spec/externalIPs/0".to_owned();
    for (first, last) in [(200, 300), (50, 100), (1, 65535), (150, 150), (90, 210)] {
        let refused = violations(cluster.apply(&external("b", first, last, "TCP")));
        assert_eq!(refused, [(at.clone(), AddressTaken)], "{first}-{last}");
    }
    cluster.apply(&external("b", 201, 300, "TCP")).unwrap();
    cluster.apply(&external("c", 1, 99, "TCP")).unwrap();
    cluster.apply(&external("d", 1, 65535, "UDP")).unwrap();
    // A load balancer address belongs to its Services on every port, so it cannot be an external IP too.
    let taken = violations(cluster.apply(&pinned("e", "192.0.2.10", 450)));
    assert_eq!(taken, [("/items/0/spec/loadBalancer/addresses/0".to_owned(), AddressTaken)]);
    for name in ["a", "b", "c", "d"] {
        cluster.delete(&format!("services/default/{name}")).unwrap();
    }
    assert_eq!(cluster.apply(&pinned("e", "192.0.2.10", 150)), Ok(Action::Created));
    assert_eq!(violations(cluster.apply(&external("a", 1, 10, "TCP"))), [(at, AddressTaken)]);
}

/// A requested load balancer address outside of all pools is only accepted if it is in an allowed range and
/// no Node has it. While a Service has the address, a Node with this address is refused.
#[test]
fn a_load_balancer_address_lies_in_an_allowed_range_and_is_no_node_address() {
    let mut cluster = Cluster::new();
    let pinned = |address: &str| {
        let spec = json!({ "type": "LoadBalancer", "loadBalancer": { "addresses": [address] }, "ports": [{ "port": 80 }] });
        service("web", spec)
    };
    let node =
        |name: &str, address: &str| of_kind("Node", name, json!({}), json!({ "addresses": [address] }));
    let at = "/items/0/spec/loadBalancer/addresses/0".to_owned();
    cluster.apply(&node("n1", "192.0.2.1")).unwrap();
    for bad in ["203.0.113.1", "192.0.2.1"] {
        assert_eq!(violations(cluster.apply(&pinned(bad))), [(at.clone(), AddressNotAllowed)], "{bad}");
    }
    cluster.apply(&pinned("192.0.2.2")).unwrap();
    let refused = violations(cluster.apply(&node("n2", "192.0.2.2")));
    assert_eq!(refused, [("/items/0/spec/addresses/0".to_owned(), AddressTaken)]);
}

/// F036: a health check node port is allocated from the node port range, and differs from the TCP node ports
/// of the Service. Updates keep the port, and it is released when the Service no longer needs it.
#[test]
fn f036_health_check_node_ports_are_allocated_kept_and_released() {
    let mut cluster = Cluster::with(&["10.96.0.0/16"], 30000..=30002);
    let local = |name: &str, extra: serde_json::Value| {
        let mut spec =
            json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "port": 80 }] });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        service(name, spec)
    };
    cluster.apply(&local("web", json!({}))).unwrap();
    let given = cluster.service("web").health_check_node_port.unwrap();
    let node_port = cluster.service("web").ports[0].node_port.unwrap();
    assert!(given != node_port && (30000..=30002).contains(&given.get()), "{given} {node_port}");
    cluster.apply(&local("web", json!({ "sessionAffinity": "ClientIP" }))).unwrap();
    assert_eq!(cluster.service("web").health_check_node_port, Some(given), "an update keeps it");

    let full = violations(cluster.apply(&local("more", json!({}))));
    assert_eq!(full, [("/items/0/spec/healthCheckNodePort".to_owned(), Exhausted)]);
    let thief =
        |port| service("thief", json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": port }] }));
    assert_eq!(
        violations(cluster.apply(&thief(given.get()))),
        [("/items/0/spec/ports/0/nodePort".to_owned(), PortTaken)]
    );
    let same = violations(cluster.apply(&local("web", json!({ "healthCheckNodePort": node_port }))));
    assert_eq!(same, [("/items/0/spec/healthCheckNodePort".to_owned(), Conflict)]);
    let outside = violations(cluster.apply(&local("web", json!({ "healthCheckNodePort": 80 }))));
    assert_eq!(outside, [("/items/0/spec/healthCheckNodePort".to_owned(), PortOutOfRange)]);

    cluster.apply(&local("web", json!({ "externalTrafficPolicy": "Cluster" }))).unwrap();
    assert_eq!(cluster.service("web").health_check_node_port, None);
    assert_eq!(cluster.apply(&thief(given.get())), Ok(Action::Created), "what was given up is free");
}

/// A port range has no node port: if an update turns a single port into a range, the port loses its node
/// port.
#[test]
fn a_port_range_gets_no_node_port() {
    let mut cluster = Cluster::new();
    let web = |port| service("web", json!({ "type": "NodePort", "ports": [port] }));
    cluster.apply(&web(json!({ "port": 80 }))).unwrap();
    assert!(cluster.service("web").ports[0].node_port.is_some());
    cluster.apply(&web(json!({ "port": 80, "endPort": 90 }))).unwrap();
    assert_eq!(cluster.service("web").ports[0].node_port, None);
}
