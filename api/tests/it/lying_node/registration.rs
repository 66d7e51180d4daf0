//! False registrations: a row with lies for each field of the metadata and of the spec of a Node.

use serde_json::{Value, json};

use super::{
    assert_complete,
    world::{ADDRESS, SINCE, World, assert_same},
};

/// Field and false values of it.
type Row = (&'static str, Vec<Value>);

/// Returns the rows of the metadata and of the spec of a Node.
fn rows() -> (Vec<Row>, Vec<Row>) {
    let metadata = vec![
        ("name", vec![json!("n1"), json!("n2"), json!("n9")]),
        ("namespace", vec![json!("default")]),
        ("uid", vec![json!("00000000-0000-7000-8000-000000000001")]),
        ("resourceVersion", vec![json!("1")]),
        ("generation", vec![json!(99)]),
        ("creationTimestamp", vec![json!("2000-01-01T00:00:00Z")]),
        ("selfLink", vec![json!("/v1/nodes/n1")]),
        ("applySet", vec![json!("kubernetes")]),
        ("labels", vec![json!({ "who": "n1" }), json!({ "who": "n2", "role": "edge" })]),
        ("annotations", vec![json!({ "a": "b" })]),
    ];
    let own_bgp = json!({ "asn": 65001, "routerId": "198.51.100.1" });
    let spec = vec![
        (
            "addresses",
            vec![json!(["198.51.100.1"]), json!(["10.1.1.9"]), json!([ADDRESS]), json!(["10.96.0.1"])],
        ),
        ("zone", vec![json!("zone-of-n1")]),
        (
            "workloadCIDRs",
            vec![
                json!(["1.0.0.0/8", "2.0.0.0/7", "64.0.0.0/3", "192.0.0.0/4", "2000::/4"]),
                json!(["10.1.0.0/16"]),
                json!(["198.51.100.0/24"]),
                json!(["10.96.0.0/16"]),
                json!(["0.0.0.0/0"]),
            ],
        ),
        ("mode", vec![json!("userspace")]),
        ("proxy", vec![json!({ "masqueradeAll": true, "clusterCIDRs": ["0.0.0.0/0"] })]),
        ("bgp", vec![own_bgp]),
        ("unschedulable", vec![json!(true)]),
        ("maintenance", vec![json!({ "mode": "Maintenance" })]),
        ("lostSince", vec![json!(SINCE)]),
        ("requested", vec![json!({ "labels": { "who": "n1" } })]),
    ];
    (metadata, spec)
}

/// False registrations of a machine change nothing of other nodes, in no field.
#[tokio::test]
async fn a_false_registration_concerns_the_node_alone() {
    let (metadata, spec) = rows();
    assert_complete("Metadata", metadata.iter().map(|(field, _)| (*field).to_owned()));
    assert_complete("NodeSpec", spec.iter().map(|(field, _)| (*field).to_owned()));
    let world = World::new().await;
    let before = world.look().await;
    let parts = metadata.iter().map(|row| ("metadata", row)).chain(spec.iter().map(|row| ("spec", row)));
    let lies = parts.flat_map(|(part, (field, lies))| lies.iter().map(move |lie| (part, *field, lie)));
    let (mut registered, mut refused) = (0, 0);
    for (number, (part, field, lie)) in lies.enumerate() {
        let liar: &'static str = Box::leak(format!("liar-{number}").into_boxed_str());
        let mut node = json!({ "kind": "Node", "metadata": { "name": liar }, "spec": {} });
        node[part][field] = lie.clone();
        let what = format!("{part}.{field} = {lie} of a registration");
        let (status, answer) = world.call(liar, "POST", "/v1/nodes", Some(node)).await;
        match status {
            201 => registered += 1,
            400 | 403 | 409 | 422 => refused += 1,
            other => panic!("{what}: {other} {answer}"),
        }
        world.pass_tasks().await;
        assert_same(&what, &before, &world.look().await);
        if status == 201 {
            world.secured.admin("DELETE", &format!("/v1/nodes/{liar}"), None).await;
        }
    }
    println!("lying node: {registered} false registrations without effect on others, {refused} refused");
}
