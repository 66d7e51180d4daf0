//! The roll-up of Services and Nodes: what a person reads about addresses, announcements, modes and failures.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use model::{
    compile::compile,
    name::Name,
    node::NodeSpec,
    quantity::{Epoch, Position, Revision},
    report::Report,
    rollup::{NodeView, NodeViews, node_status, service_status},
    status::{Condition, ConditionStatus, ConditionType, NodeStatus, ServiceStatus},
};
use serde_json::{Value, json};
use support::{Cluster, key, of_kind, service};

/// The status of Service `web`, as reports of these nodes make it.
fn status(cluster: &Cluster, reports: &[(&str, Report)]) -> ServiceStatus {
    let names: Vec<Name> = reports.iter().map(|(name, _)| Name::parse(name).unwrap()).collect();
    let views = names.iter().zip(reports).map(|(name, (_, report))| view(name, report)).collect();
    let compiled = compile(&cluster.snapshot, &key("web")).unwrap();
    service_status(
        &cluster.snapshot,
        &key("web"),
        cluster.service("web"),
        Some(&compiled),
        Epoch(1),
        &NodeViews::new(views),
        None,
    )
}

fn view<'a>(name: &'a Name, report: &'a Report) -> NodeView<'a> {
    NodeView {
        name,
        is_connected: true,
        is_contested: false,
        is_lost: false,
        last_report: None,
        report: Some(report),
    }
}

fn report(mode: &str, more: Value) -> Report {
    let mut json = json!({
        "bootId": "a", "agentVersion": "0", "mode": mode, "received": "1-9", "applied": "1-9", "verified": "1-9",
    });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn condition(conditions: &[Condition], wanted: ConditionType) -> &Condition {
    conditions.iter().find(|condition| condition.condition_type == wanted).unwrap()
}

fn line(condition: &Condition) -> String {
    format!("{:?} {}", condition.status, condition.reason)
}

fn balancer(load_balancer: Value) -> Cluster {
    let mut cluster = Cluster::new();
    let spec = json!({ "type": "LoadBalancer", "loadBalancer": load_balancer, "ports": [{ "port": 80 }] });
    cluster.apply(&service("web", spec)).unwrap();
    let set = json!({ "service": "web", "endpoints": [{ "address": "10.2.0.1" }] });
    cluster.apply(&of_kind("EndpointSet", "s", json!({}), set)).unwrap();
    cluster
}

/// F050: addresses that are asked for are in the status, and leave it with the request; that nothing announces them is
/// said.
#[test]
fn f050_requested_load_balancer_addresses_are_assigned_and_not_announced() {
    let cluster = balancer(json!({ "addresses": ["192.0.2.7", "2001:db8:e::7"] }));
    let status = |cluster: &Cluster| status(cluster, &[("n1", report("nftables", json!({})))]);
    assert_eq!(status(&balancer(json!({}))).load_balancer.ingress, []);
    let status = status(&cluster);
    let ingress: Vec<_> = status.load_balancer.ingress.iter().map(|one| one.ip.to_string()).collect();
    assert_eq!(ingress, ["192.0.2.7", "2001:db8:e::7"]);
    assert_eq!(line(condition(&status.conditions, ConditionType::AddressAssigned)), "True AsRequested");
    assert_eq!(line(condition(&status.conditions, ConditionType::Programmed)), "True VerifiedOnAllNodes");
    let announced = condition(&status.conditions, ConditionType::Announced);
    assert_eq!(line(announced), "False NoAnnouncer");
    assert!(announced.message.contains("192.0.2.7, 2001:db8:e::7"), "{announced:?}");
}

/// Without an address the Service is pending, and says why and what to do.
#[test]
fn a_load_balancer_without_addresses_is_pending_with_a_reason() {
    let cluster = balancer(json!({ "pool": "blue", "sharingKey": "k" }));
    let status = status(&cluster, &[]);
    assert_eq!(status.load_balancer.ingress, []);
    let assigned = condition(&status.conditions, ConditionType::AddressAssigned);
    assert_eq!(line(assigned), "False NoPools");
    assert!(assigned.hint.as_ref().unwrap().contains("create an AddressPool"), "{assigned:?}");
    assert_eq!(status.unsupported, []);
}

/// A mode that lacks a setting fails that Service on its nodes only, and the remedy is named.
#[test]
fn a_setting_that_one_mode_lacks_is_told_from_a_failure() {
    let cluster = balancer(json!({ "addresses": ["192.0.2.7"] }));
    let failing = |reason: &str| {
        let failure =
            json!({ "revision": 9, "reason": reason, "message": "mode nftables has no scheduler `sh`" });
        report("nftables", json!({ "failures": { "default/web": failure }, "failuresTotal": 1 }))
    };
    let fine = || report("ipvs", json!({}));
    let lacking = status(&cluster, &[("n1", failing("Unsupported")), ("n2", fine())]);
    let programmed = condition(&lacking.conditions, ConditionType::Programmed);
    assert_eq!(line(programmed), "False UnsupportedOnNodes");
    assert_eq!(programmed.message, "verified on 1 of 2 nodes; n1: mode nftables has no scheduler `sh`");
    assert!(programmed.hint.as_ref().unwrap().contains("spec.mode"), "{programmed:?}");
    let broken = status(&cluster, &[("n1", failing("Unsupported")), ("n2", failing("KernelRefused"))]);
    assert_eq!(line(condition(&broken.conditions, ConditionType::Programmed)), "False FailedOnNodes");
}

/// F053: a Node shows the mode that carries the traffic beside the one asked for, and is not converged while they differ.
#[test]
fn f053_a_node_converges_when_the_mode_asked_for_carries_the_traffic() {
    let name = Name::parse("n1").unwrap();
    let head = Position { epoch: Epoch(1), revision: Revision(9) };
    let of = |spec: Value, report: &Report| -> NodeStatus {
        let spec: NodeSpec = serde_json::from_value(spec).unwrap();
        node_status(&spec, &view(&name, report), head)
    };
    let event = json!({ "time": "2026-11-21T09:00:00Z", "reason": "ModeChangeFailed", "message": "no ip_vs", "count": 2 });
    let running = report("iptables", json!({ "warnings": ["mode ipvs: no ip_vs"], "events": [event] }));
    let waiting = of(json!({ "mode": "ipvs" }), &running);
    let converged = condition(&waiting.conditions, ConditionType::Converged);
    assert_eq!(line(converged), "False OtherMode");
    assert_eq!(converged.message, "traffic goes by mode iptables, not by ipvs as asked");
    assert_eq!((waiting.mode, &waiting.warnings), (Some(running.mode), &running.warnings));
    assert_eq!(waiting.events, running.events);
    for spec in [json!({}), json!({ "mode": "iptables" })] {
        let status = of(spec, &running);
        assert_eq!(condition(&status.conditions, ConditionType::Converged).status, ConditionStatus::True);
    }
}
