//! Tests of the guarantees of the control server for writes: object identity, idempotence, races, rejections,
//! and durability.

use std::{collections::BTreeSet, sync::Barrier, thread};

use lab::cluster::{
    control::{Answer, string},
    deployment::{Cluster, Options},
};
use serde_json::{Value, json};

const SERVICES: &str = "/v1/namespaces/default/services";

/// Starts a cluster with a control server and no agents.
fn control() -> Cluster {
    Cluster::start_control(&Options { nodes: 1, ..Options::default() }).unwrap()
}

fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn create(cluster: &Cluster, name: &str, spec: Value) -> Answer {
    cluster.api.send_json("POST", SERVICES, &service(name, spec)).unwrap()
}

/// Asserts that a write was rejected with status 422, and returns the JSON pointers of the invalid fields.
fn refused(answer: Answer) -> BTreeSet<String> {
    let problem = answer.expect(422).unwrap();
    assert_eq!(problem["code"], "Invalid", "{problem:#}");
    let errors = problem["errors"].as_array().unwrap();
    assert!(errors.iter().all(|error| !error["message"].as_str().unwrap().is_empty()), "{problem:#}");
    errors.iter().map(|error| error["pointer"].as_str().unwrap().to_owned()).collect()
}

/// F001, F006, F029: the response to a POST contains the object with the fields that the server sets. A write
/// that names an outdated version is rejected with status 409 or 412.
#[test]
fn f006_objects_carry_identity_and_a_stale_version_is_refused() {
    let cluster = control();
    let answer = create(&cluster, "web", json!({"ports": [{"port": 80}]}));
    let etag = answer.etag.clone().unwrap();
    let made = answer.expect(201).unwrap();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "selfLink"] {
        assert!(!string(&made, &format!("/metadata/{field}")).unwrap().is_empty());
    }
    let path = string(&made, "/metadata/selfLink").unwrap();
    assert_eq!(path, format!("{SERVICES}/web"));
    let read = cluster.api.get(&path).unwrap();
    assert_eq!(read.etag.as_ref(), Some(&etag));
    assert_eq!(read.json()["spec"], made["spec"]);
    assert_eq!(read.json()["metadata"], made["metadata"]);

    let mut changed = made.clone();
    changed["metadata"]["labels"] = json!({"tier": "front"});
    changed.as_object_mut().unwrap().remove("status");
    let put = |if_match: &[(&str, &str)], body: &Value| {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(if_match);
        cluster.api.send("PUT", &path, &headers, body.to_string()).unwrap()
    };
    assert_eq!(put(&[], &changed).status, 428, "If-Match is demanded");
    let newer = put(&[("if-match", &etag)], &changed).expect(200).unwrap();
    let number =
        |object: &Value| string(object, "/metadata/resourceVersion").unwrap().parse::<u64>().unwrap();
    assert!(number(&newer) > number(&made), "resourceVersion rises");
    assert_eq!(put(&[("if-match", &etag)], &changed).status, 412, "the ETag is stale");
    let conflict = put(&[("if-match", "*")], &changed).expect(409).unwrap();
    assert_eq!(conflict["code"], "Conflict", "the body's resourceVersion is stale: {conflict:#}");
    assert_eq!(
        cluster.api.get(&path).unwrap().json()["metadata"],
        newer["metadata"],
        "refusals changed nothing"
    );
}

/// F012: applying the same file a second time creates no further revision.
#[test]
fn f012_applying_the_same_file_twice_makes_one_revision() {
    const FILE: &str = "
apiVersion: tidegate/v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: tidegate/v1
kind: Workload
metadata: {name: web-1, labels: {app: web}}
spec: {addresses: [10.1.1.2]}
";
    let cluster = control();
    let first = cluster.apply(FILE).unwrap();
    let second = cluster.apply(FILE).unwrap();
    assert_eq!(first["revision"], second["revision"]);
    let actions = |answer: &Value| -> Vec<String> {
        answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| string(result, "/action").unwrap())
            .collect()
    };
    assert_eq!(actions(&first), ["created", "created"]);
    assert_eq!(actions(&second), ["unchanged", "unchanged"]);
}

/// F025, F031: an address of one kind, such as a cluster IP, is rejected in a field for another kind. F029:
/// invalid combinations are rejected with the path of the invalid field.
#[test]
fn f025_f029_f031_addresses_of_one_kind_are_refused_as_another_and_bad_fields_are_named() {
    let cluster = control();
    let node = |name: &str, spec: Value| json!([{"apiVersion": "tidegate/v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}]);
    let workload = |addresses: Value| json!([{"apiVersion": "tidegate/v1", "kind": "Workload", "metadata": {"name": "w"}, "spec": {"addresses": addresses}}]);
    let apply = |objects: &Value| cluster.api.send_json("POST", "/v1/apply", objects).unwrap();
    let before = cluster.api.get_json("/v1/status").unwrap()["position"].clone();
    let overlapping =
        refused(apply(&node("n", json!({"addresses": ["172.17.8.101"], "workloadCIDRs": ["10.96.0.0/25"]}))));
    assert!(
        overlapping.iter().all(|pointer| pointer.starts_with("/items/0/spec/workloadCIDRs")),
        "F031: {overlapping:?}"
    );
    for bad in [
        "127.0.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "10.96.0.7",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "ff02::1",
        "fd00:96::7",
    ] {
        let pointers = refused(apply(&workload(json!([bad]))));
        assert_eq!(pointers, BTreeSet::from(["/items/0/spec/addresses/0".to_owned()]), "F025: {bad}");
    }
    for (pointer, spec) in [
        ("/spec/ports", json!({"ports": []})),
        ("/spec/ports/1/name", json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]})),
        ("/spec/clusterIP", json!({"clusterIP": "10.1.0.1", "ports": [{"port": 80}]})),
        ("/spec/ports/0/nodePort", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]})),
        ("/spec/externalIPs/0", json!({"externalIPs": ["10.96.0.9"], "ports": [{"port": 80}]})),
    ] {
        let pointers = refused(create(&cluster, "bad", spec));
        assert!(
            pointers.iter().any(|named| named.starts_with(pointer)),
            "F029: expected {pointer}, got {pointers:?}"
        );
    }
    for (field, spec) in [("portz", json!({"portz": []})), ("port", json!({"ports": [{"port": 0}]}))] {
        let answer = create(&cluster, "bad", spec);
        assert!(
            (400..=422).contains(&answer.status) && answer.text.contains(field),
            "{}: {}",
            answer.status,
            answer.text
        );
    }
    let after = cluster.api.get_json("/v1/status").unwrap()["position"].clone();
    assert_eq!(after, before, "refusals change nothing");
}

/// F034, F036: a Service keeps its address. A requested address or port is allocated if it is free, else the
/// request is rejected with the name of the current holder.
#[test]
fn f034_f036_requested_addresses_and_ports_are_honoured_kept_or_refused_with_the_holder() {
    let cluster = control();
    let spec =
        json!({"type": "NodePort", "clusterIP": "10.96.0.77", "ports": [{"port": 80, "nodePort": 30802}]});
    let made = create(&cluster, "first", spec.clone()).expect(201).unwrap();
    assert_eq!(made["spec"]["clusterIP"], "10.96.0.77");
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30802);
    cluster.patch("namespaces/default/services/first", &json!({"spec": {"ports": [{"port": 81}]}})).unwrap();
    assert_eq!(
        cluster.service("default/first").unwrap()["spec"]["clusterIP"],
        "10.96.0.77",
        "an update keeps it"
    );

    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.77", "ports": [{"port": 80}]});
    let answer = create(&cluster, "second", spec.clone());
    assert!(answer.text.contains("first"), "the holder is named: {}", answer.text);
    assert!(refused(answer).iter().any(|pointer| pointer.starts_with("/spec/clusterIP")));
    cluster.delete("namespaces/default/services/first").unwrap();
    create(&cluster, "second", spec).expect(201).unwrap();
}

/// If eight writers race for one node port, and eight for one address, exactly one of each succeeds, in each
/// of ten rounds.
#[test]
fn of_writers_racing_for_one_node_port_or_address_exactly_one_wins() {
    let cluster = control();
    for round in 1..=10 {
        for what in ["port", "address"] {
            let start = Barrier::new(8);
            // Nothing is allocated automatically, which could by chance use the contested value.
            let spec = |writer: usize| match what {
                "port" => {
                    json!({"type": "NodePort", "clusterIP": format!("10.96.{round}.{writer}"), "ports": [{"port": 80, "nodePort": 31000 + round}]})
                }
                _ => json!({"clusterIP": format!("10.96.100.{round}"), "ports": [{"port": 80}]}),
            };
            let race = |writer: usize| {
                start.wait();
                create(&cluster, &format!("{what}-{round}-{writer}"), spec(writer)).status
            };
            let statuses: Vec<u16> = thread::scope(|scope| {
                let race = &race;
                let writers: Vec<_> = (1..=8).map(|writer| scope.spawn(move || race(writer))).collect();
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            let won = statuses.iter().filter(|&&status| status == 201).count();
            let lost = statuses.iter().filter(|&&status| status == 422).count();
            assert_eq!((won, lost), (1, 7), "{what}, round {round}: {statuses:?}");
        }
    }
}

/// After kills (SIGKILL) of the control server while clients write, all acknowledged writes exist.
#[test]
fn a_write_that_was_answered_survives_kill_9() {
    let mut cluster = control();
    for round in 0..3 {
        let api = cluster.api.clone();
        let answered = thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut answered = Vec::new();
                for number in 0.. {
                    let name = format!("kept-{round}-{number}");
                    match api.send_json("POST", SERVICES, &service(&name, json!({"clusterIP": "None"}))) {
                        Ok(answer) if answer.status == 201 => answered.push(name),
                        Ok(answer) => panic!("{}: {}", answer.status, answer.text),
                        Err(_) => break,
                    }
                }
                answered
            });
            let api = cluster.api.clone();
            let some = format!("{SERVICES}/kept-{round}-5");
            lab::host::wait::until_true("some writes", || {
                api.get(&some).is_ok_and(|answer| answer.status == 200)
            })
            .unwrap();
            cluster.server.kill();
            writer.join().unwrap()
        });
        cluster.start_control_again().unwrap();
        assert!(answered.len() > 5);
        for name in answered {
            assert_eq!(
                cluster.api.get(&format!("{SERVICES}/{name}")).unwrap().status,
                200,
                "{name} was answered"
            );
        }
    }
}

/// F003: after an interruption, a watch resumes and delivers all missed events in order. A resume token of a
/// different epoch is rejected with status 410.
#[test]
fn f003_a_watch_resumes_in_order_and_a_foreign_token_is_gone() {
    let cluster = control();
    create(&cluster, "one", json!({"ports": [{"port": 80}]})).expect(201).unwrap();
    let position = string(&cluster.api.get_json("/v1/services").unwrap(), "/metadata/position").unwrap();
    create(&cluster, "two", json!({"ports": [{"port": 80}]})).expect(201).unwrap();
    cluster.patch("namespaces/default/services/one", &json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    cluster.delete("namespaces/default/services/two").unwrap();
    let url = format!("{}/v1/watch?kinds=Service&resume={position}", cluster.api.url());
    // The stream is endless: `curl` reads it for a while, and its timeout status is accepted.
    let script = format!("curl -sN --max-time 3 '{url}' || test $? = 28");
    let stream = cluster.place("control").unwrap().run("sh", &["-c", &script]).unwrap();
    let events: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = events
        .iter()
        .filter(|event| event["object"].is_object())
        .map(|event| (event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [("ADDED", "two"), ("MODIFIED", "one"), ("DELETED", "two")]);
    let answer = cluster.api.get("/v1/watch?resume=1-1").unwrap();
    assert_eq!(answer.expect(410).unwrap()["code"], "ResumeExpired");
}
