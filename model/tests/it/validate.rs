//! Validation rules between the fields of one object: all violations are returned at once, with their JSON
//! pointers.

use model::{
    admission::decode::{Expect, decode},
    primitives::violation::{Violation, ViolationCode},
};
use serde_json::{Value, json};

fn violations(kind: &str, spec: &Value) -> Vec<Violation> {
    let object = json!({ "kind": kind, "metadata": { "name": "x" }, "spec": spec });
    decode(&object, &Expect::default()).err().unwrap_or_default()
}

/// Returns each violation as `pointer Code`, in the order in which they are found.
fn found(kind: &str, spec: &Value) -> Vec<String> {
    violations(kind, spec).iter().map(|one| format!("{} {:?}", one.pointer, one.code)).collect()
}

fn check(kind: &str, cases: &[(Value, &[&str])]) {
    for (spec, expected) in cases {
        assert_eq!(found(kind, spec), *expected, "{spec:#}");
    }
}

fn with_ports(ports: Value) -> Value {
    json!({ "type": "NodePort", "ports": ports })
}

/// A port range goes from `port` to a higher or equal `endPort`, has neither a target port nor a node port, and
/// must not overlap another port of its protocol.
#[test]
fn a_port_range_is_ordered_disjoint_and_without_target_and_node_port() {
    check(
        "Service",
        &[
            (with_ports(json!([{ "port": 1, "endPort": 65535 }])), &[]),
            (with_ports(json!([{ "port": 80, "endPort": 80 }])), &[]),
            (with_ports(json!([{ "port": 90, "endPort": 80 }])), &["/spec/ports/0/endPort Invalid"]),
            (
                with_ports(json!([{ "port": 80, "endPort": 90, "targetPort": 80, "nodePort": 30000 }])),
                &["/spec/ports/0/targetPort Conflict", "/spec/ports/0/nodePort Conflict"],
            ),
            (
                with_ports(json!([
                    { "name": "a", "port": 80, "endPort": 90 },
                    { "name": "b", "port": 85 },
                    { "name": "c", "port": 70, "endPort": 80 },
                    { "name": "d", "port": 80 },
                    { "name": "e", "port": 91, "endPort": 95 },
                    { "name": "f", "port": 85, "protocol": "UDP" },
                ])),
                &[
                    "/spec/ports/3/port Duplicate",
                    "/spec/ports/1/port Overlap",
                    "/spec/ports/2/endPort Overlap",
                    "/spec/ports/3/port Overlap",
                ],
            ),
        ],
    );
}

#[test]
fn a_scheduler_is_a_kernel_name_and_its_flags_fit_it_and_the_ports() {
    let with = |fields: Value| {
        let mut spec =
            json!({ "ports": [{ "name": "u", "port": 53, "protocol": "UDP" }, { "name": "t", "port": 53 }] });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    };
    check(
        "Service",
        &[
            (with(json!({ "scheduler": "mh", "schedulerFlags": ["fallback", "port"] })), &[]),
            (with(json!({ "scheduler": "a-module-of-mine" })), &["/spec/scheduler TooLong"]),
            (with(json!({ "scheduler": "WRR" })), &["/spec/scheduler Invalid"]),
            (with(json!({ "schedulerFlags": ["port"] })), &["/spec/schedulerFlags Conflict"]),
            (
                with(json!({ "scheduler": "rr", "schedulerFlags": ["fallback"] })),
                &["/spec/schedulerFlags Conflict"],
            ),
            (
                with(json!({ "scheduler": "rr", "schedulerFlags": ["onePacket"] })),
                &["/spec/schedulerFlags Conflict"],
            ),
            (
                with(json!({ "scheduler": "rr", "schedulerFlags": ["twice"] })),
                &["/spec/schedulerFlags/0 Invalid"],
            ),
        ],
    );
    let udp = json!({ "scheduler": "rr", "schedulerFlags": ["onePacket"], "ports": [{ "port": 53, "protocol": "UDP" }] });
    check("Service", &[(udp, &[])]);
}

#[test]
fn surviving_connections_exclude_settings_that_depend_on_one_node() {
    let with = |fields: Value| {
        let mut spec = json!({
            "type": "LoadBalancer", "ports": [{ "port": 80 }], "connections": { "survive": "Always" },
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    };
    let conflict = &["/spec/connections/survive Conflict"][..];
    check(
        "Service",
        &[
            (with(json!({})), &[]),
            (with(json!({ "scheduler": "mh", "connections": { "survive": "Always" } })), &[]),
            (with(json!({ "type": "ClusterIP" })), conflict),
            (with(json!({ "externalTrafficPolicy": "Local" })), conflict),
            (with(json!({ "sessionAffinity": "ClientIP" })), conflict),
            (with(json!({ "trafficDistribution": "PreferSameZone" })), conflict),
            (with(json!({ "proxyProtocol": "v2" })), conflict),
            (with(json!({ "scheduler": "rr" })), conflict),
            (with(json!({ "ports": [{ "port": 80, "protocol": "SCTP" }] })), conflict),
            (with(json!({ "ports": [{ "port": 80, "endPort": 90 }] })), conflict),
            (with(json!({ "externalTrafficPolicy": "Local", "connections": { "survive": "Never" } })), &[]),
            (
                with(json!({ "connections": { "survive": "Sometimes" } })),
                &["/spec/connections/survive Invalid"],
            ),
        ],
    );
}

#[test]
fn a_drain_time_needs_the_drain_policy_and_bounds() {
    let with = |policy: &str, seconds: u64| json!({ "removalPolicy": policy, "drainSeconds": seconds, "ports": [{ "port": 80 }] });
    check(
        "Service",
        &[
            (with("drain", 1), &[]),
            (with("drain", 86_400), &[]),
            (with("drain", 0), &["/spec/drainSeconds Invalid"]),
            (with("drain", 86_401), &["/spec/drainSeconds Invalid"]),
            (with("keep", 5), &["/spec/drainSeconds Conflict"]),
            (with("reset", 0), &["/spec/drainSeconds Conflict", "/spec/drainSeconds Invalid"]),
        ],
    );
}

#[test]
fn a_proxy_protocol_header_needs_a_protocol_that_carries_it() {
    let with = |version: &str, protocol: &str| json!({ "proxyProtocol": version, "ports": [{ "port": 80, "protocol": protocol }] });
    check(
        "Service",
        &[
            (with("v1", "TCP"), &[]),
            (with("v2", "UDP"), &[]),
            (with("v1", "UDP"), &["/spec/proxyProtocol Conflict"]),
            (with("v2", "SCTP"), &["/spec/proxyProtocol Conflict"]),
        ],
    );
}

/// Source ranges are only allowed on a Service with an address or port for outside clients, and must be distinct
/// networks without host bits.
#[test]
fn source_ranges_need_an_outside_frontend() {
    let with = |fields: Value| {
        let mut spec = json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"], "ports": [{ "port": 80 }] });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    };
    check(
        "Service",
        &[
            (with(json!({ "type": "LoadBalancer" })), &[]),
            (with(json!({ "type": "NodePort" })), &[]),
            (with(json!({ "externalIPs": ["192.0.2.9"] })), &[]),
            (with(json!({})), &["/spec/loadBalancerSourceRanges Conflict"]),
            (with(json!({ "type": "LoadBalancer", "sourceRangesScope": "LoadBalancerOnly" })), &[]),
            (
                with(json!({ "type": "NodePort", "sourceRangesScope": "LoadBalancerOnly" })),
                &["/spec/sourceRangesScope Conflict"],
            ),
            (
                with(
                    json!({ "type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.1/8", "::/0", "::/0"] }),
                ),
                &["/spec/loadBalancerSourceRanges/2 Duplicate", "/spec/loadBalancerSourceRanges/0 Invalid"],
            ),
        ],
    );
}

#[test]
fn policies_for_outside_traffic_need_an_outside_frontend() {
    let base = |fields: Value| {
        let mut spec = json!({ "ports": [{ "port": 80 }] });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec
    };
    check(
        "Service",
        &[
            (base(json!({ "externalTrafficPolicy": "Local" })), &["/spec/externalTrafficPolicy Conflict"]),
            (base(json!({ "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"] })), &[]),
            (
                base(
                    json!({ "type": "NodePort", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000 }),
                ),
                &["/spec/healthCheckNodePort Conflict"],
            ),
            (
                base(
                    json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000 }),
                ),
                &[],
            ),
            (
                base(json!({ "loadBalancer": { "addresses": ["192.0.2.9"] } })),
                &["/spec/loadBalancer Conflict"],
            ),
        ],
    );
}

#[test]
fn a_health_check_is_complete_in_range_and_uses_the_protocol_of_the_ports() {
    let with = |check: Value| json!({ "ports": [{ "port": 80 }], "healthCheck": check });
    let mixed = |check: Value| {
        let ports = json!([{ "name": "a", "port": 80 }, { "name": "b", "port": 53, "protocol": "UDP" }]);
        json!({ "ports": ports, "healthCheck": check })
    };
    let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    let https = |tls: Value| with(json!({ "type": "Https", "tls": tls }));
    check(
        "Service",
        &[
            (with(json!({ "type": "Tcp", "slowStartSeconds": 3600, "panicThreshold": 100 })), &[]),
            (
                with(
                    json!({ "type": "Tcp", "slowStartSeconds": 3601, "panicThreshold": 101, "startDelayMs": 3_600_001 }),
                ),
                &[
                    "/spec/healthCheck/startDelayMs Invalid",
                    "/spec/healthCheck/panicThreshold Invalid",
                    "/spec/healthCheck/slowStartSeconds Invalid",
                ],
            ),
            (
                with(json!({ "type": "Tcp", "intervalMs": 1000, "timeoutMs": 1001, "rise": 0, "fall": 101 })),
                &[
                    "/spec/healthCheck/timeoutMs Invalid",
                    "/spec/healthCheck/rise Invalid",
                    "/spec/healthCheck/fall Invalid",
                ],
            ),
            (
                with(json!({ "type": "Tcp", "http": {}, "tls": {}, "grpc": {}, "udp": { "send": "x" } })),
                &[
                    "/spec/healthCheck/http Conflict",
                    "/spec/healthCheck/tls Conflict",
                    "/spec/healthCheck/grpc Conflict",
                    "/spec/healthCheck/udp Conflict",
                ],
            ),
            (with(json!({ "type": "Http", "http": { "expectBody": "ok", "expectStatus": [200] } })), &[]),
            (
                with(
                    json!({ "type": "Http", "http": { "path": "x", "expectBody": "", "expectStatus": [99] } }),
                ),
                &[
                    "/spec/healthCheck/http/path Invalid",
                    "/spec/healthCheck/http/expectStatus Invalid",
                    "/spec/healthCheck/http/expectBody Invalid",
                ],
            ),
            (
                with(json!({ "type": "Http", "http": { "method": "HEAD", "expectBody": "ok" } })),
                &["/spec/healthCheck/http/expectBody Conflict"],
            ),
            (
                with(
                    json!({ "type": "Grpc", "grpc": { "tls": true }, "tls": { "serverName": "a.example" } }),
                ),
                &[],
            ),
            (with(json!({ "type": "Grpc", "tls": {} })), &["/spec/healthCheck/tls Conflict"]),
            (
                with(json!({ "type": "Grpc", "grpc": { "service": "" } })),
                &["/spec/healthCheck/grpc/service Invalid"],
            ),
            (https(json!({ "ca": pem })), &[]),
            (https(json!({ "ca": "MA==" })), &["/spec/healthCheck/tls/ca Invalid"]),
            (https(json!({ "ca": pem.repeat(2000) })), &["/spec/healthCheck/tls/ca TooLong"]),
            (https(json!({ "ca": pem, "insecureSkipVerify": true })), &["/spec/healthCheck/tls/ca Conflict"]),
            (with(json!({ "type": "Udp", "port": 53 })), &["/spec/healthCheck/udp Required"]),
            (
                with(json!({ "type": "Udp", "port": 53, "udp": { "send": "", "expect": "x".repeat(4097) } })),
                &["/spec/healthCheck/udp/send Invalid", "/spec/healthCheck/udp/expect TooLong"],
            ),
            (with(json!({ "type": "Udp", "udp": { "send": "x" } })), &["/spec/healthCheck/port Required"]),
            (mixed(json!({ "type": "Tcp" })), &["/spec/healthCheck/port Required"]),
            (mixed(json!({ "type": "Tcp", "port": 80 })), &[]),
            (
                json!({ "ports": [{ "port": 80, "protocol": "SCTP" }], "healthCheck": { "type": "Tcp" } }),
                &["/spec/healthCheck/port Required"],
            ),
            (
                json!({ "clusterIP": "None", "healthCheck": { "type": "Tcp" } }),
                &["/spec/healthCheck Conflict"],
            ),
            (
                json!({ "type": "ExternalName", "externalName": "a.example", "healthCheck": { "type": "Tcp" } }),
                &["/spec/healthCheck Conflict"],
            ),
        ],
    );
}

#[test]
fn a_nodes_proxy_options_are_networks_and_two_different_bits() {
    let with = |proxy: Value| json!({ "proxy": proxy });
    check(
        "Node",
        &[
            (with(json!({ "masqueradeBit": 0, "dropBit": 31 })), &[]),
            (with(json!({ "masqueradeBit": 32 })), &["/spec/proxy/masqueradeBit Invalid"]),
            (with(json!({ "masqueradeBit": 15 })), &["/spec/proxy/masqueradeBit Conflict"]),
            (with(json!({ "dropBit": 14 })), &["/spec/proxy/dropBit Conflict"]),
            (with(json!({ "masqueradeBit": 7, "dropBit": 7 })), &["/spec/proxy/dropBit Conflict"]),
            (with(json!({ "nodePortAddresses": ["0.0.0.0/0", "::/0", "192.0.2.0/24"] })), &[]),
            (
                with(
                    json!({ "nodePortAddresses": ["192.0.2.1/24", "127.0.0.0/8"], "clusterCIDRs": ["10.0.0.0/8", "10.0.0.0/8"] }),
                ),
                &[
                    "/spec/proxy/clusterCIDRs/1 Duplicate",
                    "/spec/proxy/nodePortAddresses/0 Invalid",
                    "/spec/proxy/nodePortAddresses/1 AddressNotAllowed",
                ],
            ),
            (with(json!({ "naming": "calico" })), &["/spec/proxy/naming Invalid"]),
        ],
    );
}

/// The message of each violation contains the requirement that the value violates, and the hint contains a remedy.
#[test]
fn violations_contain_requirement_and_remedy() {
    let spec = with_ports(json!([{ "port": 90, "endPort": 80, "nodePort": 30000 }]));
    let [order, node_port] = &violations("Service", &spec)[..] else { panic!("two violations expected") };
    assert_eq!(order.message, "must be at least `port`, 90, not 80");
    assert_eq!(node_port.code, ViolationCode::Conflict);
    assert!(node_port.hint.as_ref().unwrap().contains("cluster IP"), "{node_port:?}");
}

/// A maintenance deadline is only allowed with mode Drain; reason and requester must be one line of limited
/// length.
#[test]
fn maintenance_fields_are_valid() {
    let with = |maintenance: Value| json!({ "maintenance": maintenance });
    let long = "x".repeat(513);
    check(
        "Node",
        &[
            (with(json!({ "mode": "Drain", "deadline": "2026-01-02T03:04:05Z", "by": "ops" })), &[]),
            (with(json!({ "mode": "Maintenance", "reason": "a disk" })), &[]),
            (
                with(json!({ "mode": "Maintenance", "deadline": "2026-01-02T03:04:05Z" })),
                &["/spec/maintenance/deadline Conflict"],
            ),
            (with(json!({ "mode": "Drain", "reason": long })), &["/spec/maintenance/reason TooLong"]),
            (with(json!({ "mode": "Drain", "by": "a\nb" })), &["/spec/maintenance/by Invalid"]),
        ],
    );
}
