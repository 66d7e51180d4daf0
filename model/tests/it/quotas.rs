//! Tests of quotas: the resources that the objects of one namespace may use.

use model::{
    admission::admit::{Operation, Refusal, Request, usage},
    cluster::quota::{QuotaResource, Quotas},
    kinds::resource::ObjectKey,
    primitives::{
        name::Namespace,
        violation::{Violation, ViolationCode},
    },
};
use serde_json::{Value, json};

use crate::support::{Cluster, of_kind};

fn cluster(quotas: &[&str]) -> Cluster {
    let mut cluster = Cluster::new();
    limit(&mut cluster, quotas);
    let pool = of_kind("AddressPool", "pool", json!({}), json!({ "addresses": ["198.51.100.0/24"] }));
    cluster.apply(&pool).unwrap();
    cluster
}

fn limit(cluster: &mut Cluster, quotas: &[&str]) {
    let quotas = Quotas::new(quotas.iter().map(|text| text.parse().unwrap()));
    cluster.config = cluster.config.clone().with_quotas(quotas);
}

fn within(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn service(name: &str, spec: Value) -> Value {
    of_kind("Service", name, json!({}), spec)
}

fn plain(name: &str) -> Value {
    service(name, json!({ "ports": [{ "port": 80 }] }))
}

fn workload(name: &str) -> Value {
    of_kind("Workload", name, json!({ "app": "web" }), json!({ "addresses": ["10.1.0.1"] }))
}

fn set(name: &str, service: &str, endpoints: u8) -> Value {
    let endpoints: Vec<_> =
        (1..=endpoints).map(|host| json!({ "address": format!("10.2.0.{host}") })).collect();
    of_kind("EndpointSet", name, json!({}), json!({ "service": service, "endpoints": endpoints }))
}

fn exceeded(cluster: &mut Cluster, objects: &[Value]) -> Vec<Violation> {
    match cluster.apply_many(objects, None) {
        Err(Refusal::QuotaExceeded(found)) => {
            assert!(found.iter().all(|one| one.code == ViolationCode::QuotaExceeded), "{found:?}");
            found
        }
        other => panic!("must exceed a quota: {other:?}"),
    }
}

fn used(cluster: &Cluster, namespace: &str, resource: QuotaResource) -> usize {
    usage(&cluster.snapshot, &Namespace::parse(namespace).unwrap()).get(resource)
}

/// Each resource is accepted up to its quota and refused beyond it, in the namespace concerned only.
#[test]
fn each_resource_is_limited_in_its_namespace_alone() {
    let ports = json!([{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }]);
    let check = json!({ "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" } });
    let dual =
        json!({ "ports": [{ "port": 80 }], "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false });
    let local = json!({
        "ports": [{ "port": 80 }], "type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "allocateLoadBalancerNodePorts": false,
    });
    let node_port = json!({ "ports": ports, "type": "NodePort" });
    let cases: [(&str, Vec<Value>, Vec<Value>); 8] = [
        ("services=2", vec![plain("a"), plain("b")], vec![plain("c")]),
        ("workloads=1", vec![workload("a")], vec![workload("b")]),
        ("endpoint-sets=1", vec![set("a", "web", 3)], vec![set("b", "web", 3)]),
        ("endpoints=4", vec![set("a", "web", 3), workload("a")], vec![workload("b")]),
        ("node-ports=2", vec![service("a", node_port.clone())], vec![service("b", node_port)]),
        ("node-ports=0", vec![plain("a")], vec![service("b", local)]),
        ("load-balancer-addresses=1", vec![service("a", dual.clone())], vec![service("b", dual)]),
        (
            "checked-endpoints=3",
            vec![service("web", check.clone()), set("a", "web", 3)],
            vec![set("a", "web", 4)],
        ),
    ];
    for (quota, fits, exceeds) in cases {
        let mut cluster = cluster(&[&format!("shop/{quota}")]);
        let inside = |objects: &[Value]| objects.iter().cloned().map(|one| within("shop", one)).collect();
        let outside = |objects: &[Value]| objects.iter().cloned().map(|one| within("other", one)).collect();
        let (fits_inside, exceeds_inside): (Vec<_>, Vec<_>) = (inside(&fits), inside(&exceeds));
        let (fits_outside, exceeds_outside): (Vec<_>, Vec<_>) = (outside(&fits), outside(&exceeds));
        cluster.apply_many(&fits_inside, None).unwrap_or_else(|refusal| panic!("{quota}: {refusal:?}"));
        let found = exceeded(&mut cluster, &exceeds_inside);
        assert_eq!(found[0].pointer, "/items/0", "{quota}: {found:?}");
        assert!(found[0].message.contains("quota of namespace shop: "), "{found:?}");
        let hint = found[0].hint.clone().unwrap();
        assert!(hint.contains(&format!("shop/{}", quota.split('=').next().unwrap())), "{hint}");
        cluster.apply_many(&fits_outside, None).unwrap();
        cluster.apply_many(&exceeds_outside, None).unwrap();
    }
}

/// The refusal names the objects that do not fit, so that an adapter can write the others.
#[test]
fn a_refusal_names_the_objects_that_do_not_fit() {
    let mut cluster = cluster(&["services=2", "endpoints=3"]);
    let objects = [plain("a"), set("a", "a", 4), plain("b"), set("b", "b", 3), plain("c")];
    let found = exceeded(&mut cluster, &objects);
    let pointers: Vec<_> = found.iter().map(|one| one.pointer.as_str()).collect();
    assert_eq!(pointers, ["/items/4", "/items/1"]);
    let message = "must fit into the quota of namespace default: 2 Services; 0 are in use, with this write it \
                   would be 3";
    assert_eq!(found[0].message, message);
    cluster.apply_many(&[plain("a"), plain("b"), set("b", "b", 3)], None).unwrap();
    let replaced = [plain("c"), set("c", "c", 3)];
    let delete =
        |key: &str| Operation::Delete { key: ObjectKey::parse_store_key(key).unwrap(), if_revision: None };
    let applied = replaced.iter().map(|object| Operation::Apply(crate::support::object(object)));
    let operations =
        applied.chain([delete("services/default/a"), delete("endpointsets/default/b")]).collect();
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
    assert_eq!(used(&cluster, "default", QuotaResource::Services), 2);
}

/// After a quota is lowered, only writes that increase the use are refused.
#[test]
fn a_lowered_quota_refuses_only_further_growth() {
    let mut cluster = cluster(&[]);
    let check = json!({ "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" } });
    cluster.apply_many(&[service("web", check.clone()), set("web", "web", 9), plain("b")], None).unwrap();
    limit(&mut cluster, &["services=1", "endpoints=4", "checked-endpoints=2", "workloads=0"]);
    assert_eq!(used(&cluster, "default", QuotaResource::CheckedEndpoints), 9);
    cluster.apply(&set("web", "web", 8)).unwrap();
    cluster.apply(&service("web", json!({ "ports": [{ "port": 80 }] }))).unwrap();
    assert_eq!(used(&cluster, "default", QuotaResource::CheckedEndpoints), 0);
    let found = exceeded(&mut cluster, &[service("web", check)]);
    assert_eq!((found.len(), found[0].pointer.as_str()), (1, "/items/0"), "{found:?}");
    exceeded(&mut cluster, &[plain("c")]);
    exceeded(&mut cluster, &[workload("a")]);
    cluster.delete("services/default/b").unwrap();
}
