//! Packet programs (frontends with their verdicts) of a Service on each node, compared with text files;
//! `UPDATE_GOLDEN=1 cargo test -p model` rewrites the files.
//!
//! Each file shows one Service on three nodes; nodes with equal programs are grouped. Each frontend has one
//! line, followed by the targets for each class of sources (workloads, the node, all others); `×3` is a
//! weight.

use std::{fmt::Write, fs, path::PathBuf};

use model::{
    compile::compile,
    kinds::service::Protocol,
    primitives::{
        name::{Label, Name},
        quantity::Weight,
    },
    program::{Destination, Masquerade, NodeLocation, Program, Removal, Route, Target, Verdict, program},
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

/// Nodes in the test data with their zones: two in zone a, one in zone b.
const NODES: [(&str, Option<&str>); 3] = [("n1", Some("a")), ("n2", Some("a")), ("n3", Some("b"))];

fn place((node, zone): (&str, Option<&str>)) -> NodeLocation {
    NodeLocation { node: Name::parse(node).unwrap(), zone: zone.map(|zone| Label::parse(zone).unwrap()) }
}

/// Creates Service `web` with the given spec and endpoints.
fn cluster(spec: Value, endpoints: Value) -> Cluster {
    let mut all = json!({ "clusterIP": "10.96.0.10", "ports": [{ "port": 80, "targetPort": 8080 }] });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut cluster = Cluster::new();
    cluster.apply(&service("web", all)).unwrap();
    let set = json!({ "service": "web", "endpoints": endpoints });
    cluster.apply(&of_kind("EndpointSet", "web", json!({}), set)).unwrap();
    cluster
}

fn check(name: &str, cluster: &Cluster) {
    let compiled = compile(&cluster.snapshot, &key("web")).unwrap();
    let shown = NODES.map(|node| {
        let name = format!("{} in zone {}", node.0, node.1.unwrap_or("?"));
        (name, show(&program(&compiled, &place(node)).unwrap()))
    });
    let alike = shown.chunk_by(|(_, a), (_, b)| a == b);
    let parts = alike.map(|nodes| {
        let names: Vec<_> = nodes.iter().map(|(name, _)| name.as_str()).collect();
        format!("== {}\n{}", names.join(", "), nodes[0].1)
    });
    let actual = parts.collect::<Vec<_>>().join("\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/program_{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name} differs; it would be:\n{actual}\nUPDATE_GOLDEN=1 rewrites it");
}

fn show(program: &Program) -> String {
    let mut text = String::new();
    for (frontend, route) in &program.frontends {
        let destination = match frontend.destination {
            Destination::Address(address) => address.to_string(),
            Destination::AnyLocal(family) => format!("any own {}", family.as_str()),
        };
        let (ports, protocol) = (frontend.ports, frontend.protocol.as_str());
        writeln!(text, "{destination} {ports}/{protocol}, {:?}{}", route.role, show_settings(route)).unwrap();
        match route.uniform() {
            Some(verdict) => writeln!(text, "    everybody: {}", show_verdict(verdict)).unwrap(),
            None => {
                let [workloads, node, elsewhere] = route.verdicts().map(show_verdict);
                writeln!(
                    text,
                    "    workloads: {workloads}\n    node:      {node}\n    elsewhere: {elsewhere}"
                )
                .unwrap();
            }
        }
    }
    for (title, addresses) in [("owned", &program.virtual_addresses), ("hairpins", &program.hairpins)] {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        writeln!(
            text,
            "{title}: {}",
            if addresses.is_empty() { "-".to_owned() } else { addresses.join(" ") }
        )
        .unwrap();
    }
    if let Some(health) = program.health_check {
        writeln!(text, "health check at {}: {} local endpoints", health.port, health.local_endpoints)
            .unwrap();
    }
    text
}

fn show_settings(route: &Route) -> String {
    let Route {
        role: _,
        port_name,
        allowed_sources,
        from_workloads: _,
        from_node: _,
        from_elsewhere: _,
        affinity_seconds,
        scheduler,
        scheduler_flags,
        proxy_protocol,
        removal,
        leaving,
        fails_over,
        owners,
    } = route;
    let mut text = String::new();
    if let Some(name) = port_name {
        write!(text, ", named {name}").unwrap();
    }
    if let Some(sources) = allowed_sources {
        let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
        write!(text, ", only from [{}]", sources.join(" ")).unwrap();
    }
    if let Some(seconds) = affinity_seconds {
        write!(text, ", sticky for {seconds} s").unwrap();
    }
    if let Some(scheduler) = scheduler {
        write!(text, ", by {} {scheduler_flags:?}", scheduler.0).unwrap();
    }
    if let Some(version) = proxy_protocol {
        write!(text, ", PROXY {version:?}").unwrap();
    }
    if *removal != Removal::Keep {
        write!(text, ", removal {removal:?}").unwrap();
    }
    if *fails_over {
        text.push_str(", fails over");
    }
    for (address, hop) in owners.iter().flat_map(|owners| owners.0.iter()) {
        write!(text, ", {address} by {hop}").unwrap();
    }
    for (Target { address, .. }, until) in &**leaving {
        let until = until.map_or_else(|| "their end".to_owned(), |until| until.to_string());
        write!(text, ", {address} drains until {until}").unwrap();
    }
    text
}

fn show_verdict(verdict: &Verdict) -> String {
    let Verdict::Forward { masquerade, targets } = verdict else {
        return format!("{verdict:?}").to_lowercase();
    };
    let target = |(Target { address, port }, Weight(weight)): (&Target, &Weight)| {
        let port = port.map_or_else(|| "same".to_owned(), |port| port.to_string());
        let weight = if *weight == 1 { String::new() } else { format!("×{weight}") };
        format!("{address}:{port}{weight}")
    };
    let how = match masquerade {
        Masquerade::Never => "as they are",
        Masquerade::OffCluster => "masqueraded if off-cluster",
        Masquerade::Always => "masqueraded",
    };
    let targets: Vec<_> = targets.iter().map(target).collect();
    format!("to {}, {how}", targets.join(" "))
}

fn endpoint(address: &str, node: &str) -> Value {
    json!({ "address": address, "node": node })
}

fn with(mut endpoint: Value, fields: Value) -> Value {
    endpoint.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    endpoint
}

fn terminating(endpoint: Value, serving: bool) -> Value {
    with(endpoint, json!({ "conditions": { "ready": false, "serving": serving, "terminating": true } }))
}

/// F048: with external policy Local, outside sources reach only endpoints of the node, and are dropped if only
/// other nodes have endpoints. Inside sources reach all endpoints. The health check node port counts the endpoints
/// of the node.
#[test]
fn f048_external_policy_local() {
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999,
        "loadBalancer": { "addresses": ["192.0.2.7"] }, "externalIPs": ["192.0.2.9"],
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    });
    let endpoints = json!([
        endpoint("10.1.1.1", "n1"),
        endpoint("10.1.1.2", "n1"),
        terminating(endpoint("10.1.2.1", "n2"), true),
    ]);
    check("external_local", &cluster(spec.clone(), endpoints));
    check("external_local_without_endpoints", &cluster(spec, json!([])));
}

/// F039: for the health check node port, a workload with an address of each IP family counts as one endpoint. A
/// workload without an address in the first family of the Service does not count, because the node would drop its
/// connections.
#[test]
fn f039_the_health_check_counts_endpoints_of_the_node_port() {
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999,
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    });
    let endpoints =
        json!([endpoint("10.1.1.1", "n1"), endpoint("fd00:1::1", "n1"), endpoint("fd00:1::2", "n2"),]);
    let count = |spec: &Value, node| {
        let compiled = compile(&cluster(spec.clone(), endpoints.clone()).snapshot, &key("web")).unwrap();
        program(&compiled, &place((node, None))).unwrap().health_check.unwrap().local_endpoints
    };
    assert_eq!(["n1", "n2", "n3"].map(|node| count(&spec, node)), [1, 0, 0]);
    let mut both = spec;
    both["ipFamilyPolicy"] = json!("RequireDualStack");
    both["clusterIPs"] = json!(["10.96.0.10", "fd00:96::10"]);
    assert_eq!(
        ["n1", "n2", "n3"].map(|node| count(&both, node)),
        [1, 0, 0],
        "both families: the first counts"
    );
    both["clusterIPs"] = json!(["fd00:96::10", "10.96.0.10"]);
    both["clusterIP"] = json!("fd00:96::10");
    assert_eq!(["n1", "n2", "n3"].map(|node| count(&both, node)), [1, 1, 0]);
}

/// With internal policy Local, inside sources reach only endpoints of the node, including terminating ones, and
/// are dropped if only other nodes have endpoints.
#[test]
fn internal_policy_local_is_for_the_cluster_ip_alone() {
    let spec = json!({
        "type": "NodePort", "internalTrafficPolicy": "Local",
        "ports": [{ "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    });
    let endpoints = json!([endpoint("10.1.1.1", "n1"), terminating(endpoint("10.1.2.1", "n2"), true)]);
    check("internal_local", &cluster(spec, endpoints));
}

/// For each IP family, ready endpoints are used; without any, terminating endpoints that still serve; without
/// those, connections are rejected.
#[test]
fn each_family_falls_back_to_terminating_endpoints_independently() {
    let spec = json!({ "ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.96.0.10", "fd00:96::10"] });
    let endpoints = json!([
        with(endpoint("10.1.1.1", "n1"), json!({ "weight": 3 })),
        terminating(endpoint("10.1.1.2", "n1"), true),
        with(endpoint("10.1.1.3", "n1"), json!({ "weight": 0 })),
        with(endpoint("10.1.1.4", "n1"), json!({ "drain": true })),
        terminating(endpoint("fd00:1::1", "n1"), true),
        terminating(endpoint("fd00:1::2", "n2"), false),
    ]);
    check("fallback", &cluster(spec.clone(), endpoints));
    let nothing = json!([with(endpoint("10.1.1.1", "n1"), json!({ "conditions": { "ready": false } }))]);
    check("fallback_to_nothing", &cluster(spec, nothing));
}

/// With `publishNotReadyAddresses`, endpoints that are not ready receive connections and count as ready.
#[test]
fn published_endpoints_that_are_not_ready_are_served() {
    let not_ready =
        with(endpoint("10.1.1.1", "n1"), json!({ "conditions": { "ready": false, "serving": false } }));
    let spec = json!({ "publishNotReadyAddresses": true });
    check("publish_not_ready", &cluster(spec, json!([not_ready, endpoint("10.1.2.1", "n2")])));
}

/// Traffic distribution prefers the endpoints of the node, then those of the zone, then all (KEP-3015). The
/// preference applies to ready endpoints only.
#[test]
fn traffic_distribution_prefers_near_endpoints_and_falls_back() {
    let near = |address: &str, node: &str, zone: &str| with(endpoint(address, node), json!({ "zone": zone }));
    let endpoints =
        || json!([near("10.1.1.1", "n1", "a"), near("10.1.2.1", "n2", "a"), near("10.1.9.1", "n9", "c")]);
    for (name, preference) in [("zone", "PreferSameZone"), ("node", "PreferSameNode")] {
        let cluster = cluster(json!({ "trafficDistribution": preference }), endpoints());
        check(&format!("distribution_{name}"), &cluster);
    }
    let far = json!([
        terminating(near("10.1.1.1", "n1", "a"), true),
        terminating(near("10.1.9.1", "n9", "c"), true)
    ]);
    check("distribution_fallback", &cluster(json!({ "trafficDistribution": "PreferSameNode" }), far));
}

/// Refused datagrams are repeated at another endpoint if a health check removes the one that refused them, also if the node
/// prefers its own endpoint; not with a single endpoint, without a usable one, without a health check, or with policy Local, where
/// no other endpoint takes its place. The answer is the same before and after the removal of one of two endpoints: datagrams
/// that still reach the removed one must not be refused.
#[test]
fn datagrams_fail_over_if_a_health_check_leaves_another_endpoint() {
    let fails_over = |spec: Value, endpoints: Value| {
        let mut all = json!({
            "trafficDistribution": "PreferSameNode",
            "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53 }],
            "healthCheck": { "type": "Tcp", "port": 53 },
        });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let compiled = compile(&cluster(all, endpoints).snapshot, &key("web")).unwrap();
        let program = program(&compiled, &place(NODES[0])).unwrap();
        let of_protocol = |protocol| {
            let mut frontends = program.frontends.iter();
            frontends.any(|(frontend, route)| frontend.protocol == protocol && route.fails_over)
        };
        assert!(!of_protocol(Protocol::Tcp), "TCP connections are refused");
        of_protocol(Protocol::Udp)
    };
    let unready = |address, node| with(endpoint(address, node), json!({ "conditions": { "ready": false } }));
    let second = unready("10.1.2.1", "n2");
    let other_family = endpoint("fd00:1::1", "n2");
    let two = || json!([endpoint("10.1.1.1", "n1"), endpoint("10.1.2.1", "n2")]);
    assert!(fails_over(json!({}), two()));
    assert!(!fails_over(json!({ "healthCheck": null }), two()));
    assert!(!fails_over(json!({ "internalTrafficPolicy": "Local" }), two()));
    assert!(!fails_over(json!({}), json!([endpoint("10.1.1.1", "n1")])));
    assert!(fails_over(json!({}), json!([endpoint("10.1.1.1", "n1"), second])));
    assert!(!fails_over(json!({}), json!([unready("10.1.1.1", "n1"), second])));
    assert!(!fails_over(json!({}), json!([endpoint("10.1.1.1", "n1"), other_family])));
}

/// A port range keeps the destination port of the client and has no node port. Source ranges restrict the
/// frontends for outside clients, separately for each IP family.
#[test]
fn port_ranges_and_source_ranges() {
    let spec = json!({
        "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.96.0.10", "fd00:96::10"],
        "loadBalancer": { "addresses": ["192.0.2.7", "2001:db8:e::7"] },
        "loadBalancerSourceRanges": ["198.51.100.0/24", "203.0.113.0/25"],
        "ports": [
            { "name": "all", "port": 1, "endPort": 65535, "protocol": "UDP" },
            { "name": "web", "port": 80, "targetPort": 8080, "nodePort": 30080 },
        ],
    });
    let both = || json!([endpoint("10.1.1.1", "n1"), endpoint("fd00:1::1", "n1")]);
    check("ranges", &cluster(spec, both()));
    let open = json!({ "type": "NodePort", "loadBalancerSourceRanges": ["198.51.100.0/24", "0.0.0.0/0"], "ports": [{ "port": 80, "nodePort": 30080 }] });
    check("ranges_open", &cluster(open, both()));
}

/// The route of every frontend contains the delivery settings of the Service: affinity, scheduler, PROXY protocol
/// and removal policy.
#[test]
fn settings_of_delivery_are_carried_to_every_frontend() {
    let spec = json!({
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
        "scheduler": "mh", "schedulerFlags": ["port"], "proxyProtocol": "v2", "removalPolicy": "drain",
        "externalIPs": ["192.0.2.9"], "ports": [{ "name": "web", "port": 80 }],
    });
    check("delivery", &cluster(spec, json!([{ "address": "10.1.1.1" }])));
}
