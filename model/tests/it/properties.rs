//! Properties over random histories of writes: no value is allocated twice, indices match the objects, and
//! incremental compilation of Services (resolution of their endpoints) equals full compilation.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    cluster::{change::Change, compiled::CompiledService, snapshot::Snapshot},
    compile::{affected, compile},
    kinds::{
        resource::{Kind, ServiceKey},
        service::Protocol,
    },
    primitives::quantity::Revision,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{self, Cluster, of_kind, service};

/// Random write with one of a few names and values, so that the writes of a history collide.
#[derive(Debug, Clone)]
enum Step {
    Apply(Value),
    Delete(String),
}

fn a_service() -> impl Strategy<Value = Value> {
    let spec = (
        prop::sample::select(vec!["ClusterIP", "NodePort", "LoadBalancer"]),
        prop::option::of(1_u8..7),
        prop::option::of(30000_u16..30006),
        prop::sample::select(vec!["SingleStack", "PreferDualStack"]),
        prop::option::of("[ab]"),
        (prop::bool::ANY, prop::bool::ANY, prop::bool::ANY),
        (78_u16..82, prop::option::of(80_u16..84)),
    );
    ("[a-e]", spec).prop_map(|(name, (service_type, ip, node_port, policy, app, flags, (first, last)))| {
        let (external, pinned, is_local) = flags;
        let mut port = json!({ "port": first });
        if let Some(last) = last.filter(|last| *last >= first) {
            port["endPort"] = json!(last);
        } else if let Some(node_port) = node_port.filter(|_| service_type != "ClusterIP") {
            port["nodePort"] = json!(node_port);
        }
        let mut spec = json!({ "type": service_type, "ipFamilyPolicy": policy, "ports": [port] });
        if let Some(ip) = ip {
            spec["clusterIP"] = json!(format!("10.96.0.{ip}"));
        }
        if let Some(app) = app {
            spec["selector"] = json!({ "app": app, "tier": "x" });
        }
        if external {
            spec["externalIPs"] = json!(["192.0.2.1"]);
        }
        if service_type == "LoadBalancer" && pinned {
            spec["loadBalancer"] = json!({ "addresses": ["192.0.2.1"] });
        }
        if service_type == "LoadBalancer" && is_local {
            spec["externalTrafficPolicy"] = json!("Local");
        }
        service(&name, spec)
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let workload =
        ("[v-z]", "[ab]", "[xy]", 1_u8..9, any::<bool>()).prop_map(|(name, app, tier, ip, ready)| {
            let spec = json!({ "addresses": [format!("10.1.0.{ip}")], "ready": ready });
            of_kind("Workload", &name, json!({ "app": app, "tier": tier }), spec)
        });
    let set = ("[st]", "[a-e]", 1_u8..9).prop_map(|(name, service, ip)| {
        let spec = json!({ "service": service, "endpoints": [{ "address": format!("10.2.0.{ip}") }] });
        of_kind("EndpointSet", &name, json!({}), spec)
    });
    let delete = (prop::sample::select(vec!["services", "workloads", "endpointsets"]), "[a-estv-z]")
        .prop_map(|(plural, name)| Step::Delete(format!("{plural}/default/{name}")));
    prop_oneof![
        4 => a_service().prop_map(Step::Apply),
        3 => workload.prop_map(Step::Apply),
        2 => set.prop_map(Step::Apply),
        2 => delete,
    ]
}

fn compile_all(snapshot: &Snapshot) -> BTreeMap<ServiceKey, CompiledService> {
    let keys = snapshot.list(Kind::Service, None, None).map(|object| ServiceKey {
        namespace: object.metadata.namespace.clone().unwrap(),
        name: object.metadata.name.clone(),
    });
    keys.filter_map(|key| Some((key.clone(), compile(snapshot, &key)?))).collect()
}

fn assert_nothing_is_held_twice(snapshot: &Snapshot) {
    let (mut addresses, mut node_ports, mut frontends) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for object in snapshot.list(Kind::Service, None, None) {
        let spec = object.as_service().unwrap();
        assert_eq!(spec.cluster_ips.len(), spec.ip_families.len(), "every family has its address");
        for address in spec.cluster_addresses() {
            assert!(addresses.insert(address), "{address} is held twice");
        }
        for port in &spec.ports {
            assert_eq!(port.node_port.is_some(), spec.has_node_port(port));
            if let Some(node_port) = port.node_port {
                assert!(node_ports.insert((port.protocol, node_port)), "{node_port} is held twice");
            }
            let key = support::key(object.metadata.name.as_str());
            let external = spec.external_ips.iter().copied();
            let addresses: BTreeSet<_> = external.chain(snapshot.addresses_of(&key)).collect();
            let numbers = port.range().first().get()..=port.range().last().get();
            for frontend in addresses.iter().flat_map(|address| numbers.clone().map(|port| (*address, port)))
            {
                assert!(frontends.insert((frontend, port.protocol)), "{frontend:?} is held twice");
            }
        }
        assert_eq!(spec.health_check_node_port.is_some(), spec.has_health_check_node_port());
        if let Some(port) = spec.health_check_node_port {
            assert!(node_ports.insert((Protocol::Tcp, port)), "{port} is held twice");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_hold_every_invariant(steps in prop::collection::vec(a_step(), 1..40)) {
        let mut cluster = Cluster::new();
        let mut compiled: BTreeMap<ServiceKey, CompiledService> = BTreeMap::new();
        for step in steps {
            let before = cluster.snapshot.clone();
            let changes: Vec<Change> = match &step {
                Step::Apply(value) => {
                    let object = support::object(value);
                    let operations = vec![model::admission::admit::Operation::Apply(object)];
                    let request = model::admission::admit::Request { operations, ..Default::default() };
                    cluster.write(&request).map(|admitted| admitted.changes).unwrap_or_default()
                }
                Step::Delete(key) => cluster.delete(key).map(|admitted| admitted.changes).unwrap_or_default(),
            };
            let after = &cluster.snapshot;
            let moved = u64::from(!changes.is_empty());
            prop_assert_eq!(after.revision(), Revision(before.revision().0 + moved));
            assert_nothing_is_held_twice(after);

            let objects = Kind::ALL.into_iter().flat_map(|kind| after.list(kind, None, None)).cloned();
            prop_assert_eq!(&Snapshot::from_objects(after.revision(), objects), after);

            for key in changes.iter().flat_map(|change| affected(&before, after, change)) {
                match compile(after, &key) {
                    Some(form) => compiled.insert(key, form),
                    None => compiled.remove(&key),
                };
            }
            prop_assert_eq!(&compiled, &compile_all(after));
        }
    }
}

/// Returns the number of proptest cases; `make soak` runs more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}
