//! Status of Services and Nodes: conditions and messages about addresses, announcements, proxy modes and failures.

use model::{
    compile::compile,
    kinds::{node::NodeSpec, resource::Spec},
    observed::{
        rollup::{
            NodeView, NodeViews, ServiceObservations, address_pool_status, node_status, service_status,
        },
        status::{Condition, ConditionStatus, ConditionType, NodeStatus, ServiceStatus},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision},
    },
    wire::report::Report,
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

/// Returns the status of Service `web` from the reports of the given nodes.
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
        ServiceObservations::default(),
    )
}

fn view<'a>(name: &'a Name, report: &'a Report) -> NodeView<'a> {
    NodeView {
        name,
        is_connected: true,
        has_left: false,
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

/// F050: the status lists the assigned load balancer addresses while the Service requests them, and reports that
/// they are not announced. After their release the list is empty.
#[test]
fn f050_requested_load_balancer_addresses_are_assigned_and_not_announced() {
    let mut cluster = balancer(json!({ "addresses": ["192.0.2.7", "2001:db8:e::7"] }));
    let status_of = |cluster: &Cluster| status(cluster, &[("n1", report("nftables", json!({})))]);
    assert_eq!(status_of(&balancer(json!({}))).load_balancer.ingress, []);
    let status = status_of(&cluster);
    let ingress: Vec<_> = status.load_balancer.ingress.iter().map(|one| one.ip.to_string()).collect();
    assert_eq!(ingress, ["192.0.2.7", "2001:db8:e::7"]);
    assert_eq!(line(condition(&status.conditions, ConditionType::AddressAssigned)), "True AsRequested");
    assert_eq!(line(condition(&status.conditions, ConditionType::Programmed)), "True VerifiedOnAllNodes");
    let announced = condition(&status.conditions, ConditionType::Announced);
    assert_eq!(line(announced), "False NoAnnouncer");
    assert!(announced.message.contains("192.0.2.7, 2001:db8:e::7"), "{announced:?}");
    cluster.apply(&service("web", json!({ "type": "ClusterIP", "ports": [{ "port": 80 }] }))).unwrap();
    assert_eq!(status_of(&cluster).load_balancer.ingress, [], "after the release");
}

/// A LoadBalancer Service without an address is pending, with a reason and a remedy.
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

/// F038: for each cause of a missing address, the condition has a different reason and its message names the
/// obstacle.
#[test]
fn f038_a_pending_service_reports_its_obstacle() {
    let pool = |name: &str, spec: Value| of_kind("AddressPool", name, json!({}), spec);
    let mut cluster = Cluster::new();
    let mut reason = |writes: &[Value], asked: Value| {
        for value in writes {
            cluster.apply(value).unwrap();
        }
        let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
        spec.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
        cluster.apply(&service("web", spec)).unwrap();
        let status = status(&cluster, &[]);
        let assigned = condition(&status.conditions, ConditionType::AddressAssigned);
        format!("{}: {}", line(assigned), assigned.message)
    };
    let one = |more: Value| {
        let mut spec = json!({ "addresses": ["198.51.100.1"] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pool("blue", spec)
    };
    let named = |pool: &str| json!({ "loadBalancer": { "pool": pool } });
    assert_eq!(reason(&[], json!({})), "False NoPools: there are no address pools");
    let by_hand = [one(json!({ "autoAssign": false }))];
    let unnamed =
        "False NoPoolMatches: no pool assigns addresses to this Service unless the Service names it";
    assert_eq!(reason(&by_hand, json!({})), unnamed);
    assert_eq!(reason(&[], named("red")), "False PoolNotFound: there is no AddressPool red");
    let other = [one(json!({ "namespaces": ["other"] }))];
    assert_eq!(reason(&other, named("blue")), "False NoPoolMatches: pool blue is not for this Service");
    let disabled = [one(json!({ "disabled": true }))];
    assert_eq!(
        reason(&disabled, json!({})),
        "False PoolDisabled: pool blue assigns no more addresses: it is disabled"
    );
    let holder = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    let full = [
        one(json!({ "disabled": true })),
        service("web", json!({ "ports": [{ "port": 80 }] })),
        one(json!({})),
        service("holder", holder),
    ];
    assert_eq!(reason(&full, json!({})), "False PoolFull: no IPv4 address is free in pool blue");
    let freed = [service("holder", json!({ "ports": [{ "port": 80 }] }))];
    let held_back =
        "False WaitingForQuarantine: no IPv4 address is free in pool blue; some are in quarantine";
    assert_eq!(reason(&freed, json!({})), held_back);
    let prefer = json!({ "ipFamilyPolicy": "PreferDualStack" });
    let second = [pool("red", json!({ "addresses": ["198.51.100.9"] }))];
    assert_eq!(reason(&second, prefer), "True Allocated: no IPv6 address is in pools blue, red");
    let require = json!({ "ipFamilyPolicy": "RequireDualStack" });
    assert_eq!(reason(&[], require), "False NoPoolOfFamily: no IPv6 address is in pools blue, red");
}

/// The status of a pool counts the total, assigned, quarantined and free addresses of each IP family, and reports
/// a full pool.
#[test]
fn the_status_of_a_pool_counts_addresses_by_family_and_reports_a_full_pool() {
    let mut cluster = Cluster::new();
    let spec = json!({ "addresses": ["198.51.100.1-198.51.100.3", "2001:db8:1::/64"], "reserved": ["198.51.100.2"] });
    cluster.apply(&of_kind("AddressPool", "blue", json!({}), spec)).unwrap();
    let usage = |cluster: &Cluster| {
        let Spec::AddressPool(spec) = &cluster.get("addresspools//blue").spec else { unreachable!() };
        let status = address_pool_status(&cluster.snapshot, &Name::parse("blue").unwrap(), spec);
        let v4 = status.v4;
        assert_eq!((status.v6.total, status.v6.available), (u64::MAX, u64::MAX - status.v6.assigned));
        (
            (v4.total, v4.assigned, v4.quarantined, v4.available),
            line(condition(&status.conditions, ConditionType::HasRoom)),
        )
    };
    assert_eq!(usage(&cluster), ((2, 0, 0, 2), "True Free".to_owned()));
    let balancer = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    cluster.apply(&service("a", balancer.clone())).unwrap();
    cluster.apply(&service("b", balancer)).unwrap();
    cluster.delete("services/default/a").unwrap();
    assert_eq!(usage(&cluster), ((2, 1, 1, 0), "False Full".to_owned()));
    cluster.now += 60;
    cluster.write(&Default::default()).unwrap();
    assert_eq!(usage(&cluster), ((2, 1, 0, 1), "True Free".to_owned()));
}

/// If some nodes do not support a setting in their proxy mode, the Service reports this with the remedy; a failure
/// on a node takes precedence.
#[test]
fn an_unsupported_setting_differs_from_a_failure() {
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
    let partly = status(&cluster, &[("n1", failing("PartlyUnsupported")), ("n2", failing("Unsupported"))]);
    assert_eq!(line(condition(&partly.conditions, ConditionType::Programmed)), "False UnsupportedOnNodes");
    let broken = status(&cluster, &[("n1", failing("Unsupported")), ("n2", failing("KernelRefused"))]);
    assert_eq!(line(condition(&broken.conditions, ConditionType::Programmed)), "False FailedOnNodes");
}

/// A Node that was created before its agent is installed does not make every Service of the cluster not ready. A Node
/// whose agent has reported to an earlier control server is counted.
#[test]
fn nodes_without_an_agent_are_not_counted() {
    let [here, later, silent] = ["n1", "n2", "n3"].map(|name| name.parse::<Name>().unwrap());
    let report = report("nftables", json!({}));
    let without = |name, last_report| NodeView {
        report: None,
        is_connected: false,
        last_report,
        ..view(name, &report)
    };
    let wanted = Position { epoch: Epoch(1), revision: Revision(4) };
    let count = |views| NodeViews::new(views).count(&key("web"), wanted);

    let counts = count(vec![view(&here, &report), without(&later, None)]);
    assert_eq!((counts.total, counts.verified, counts.not_verified.len()), (1, 1, 0));

    let counts = count(vec![
        view(&here, &report),
        without(&later, None),
        without(&silent, Some("2026-11-21T09:00:00Z".to_owned().try_into().unwrap())),
    ]);
    assert_eq!((counts.total, counts.verified), (2, 1));
    assert_eq!(counts.not_verified.keys().collect::<Vec<_>>(), [&silent]);

    assert_eq!(count(vec![without(&later, None)]).total, 0);
}

/// A Node that rejects the state, because it knows a newer one, has verified nothing of it: revisions of the newer state are
/// other changes.
#[test]
fn a_node_that_is_ahead_of_the_control_server_has_verified_nothing() {
    let cluster = balancer(json!({ "addresses": ["192.0.2.7"] }));
    let none = json!({ "lost": 0, "total": 0 });
    let held = json!({
        "offered": "1-3", "inForce": "1-9", "reason": "ControlBehind", "since": "2026-11-21T09:00:00Z", "vips": none,
        "endpoints": none,
    });
    let ahead = report("nftables", json!({ "held": held }));
    let lacking = status(&cluster, &[("n1", ahead), ("n2", report("nftables", json!({})))]);
    let programmed = condition(&lacking.conditions, ConditionType::Programmed);
    assert_eq!(
        (programmed.status, lacking.nodes.received, lacking.nodes.verified),
        (ConditionStatus::False, 1, 1)
    );
    assert!(
        programmed.message.contains("n1: since 2026-11-21T09:00:00Z the node rejects the state"),
        "{programmed:?}"
    );
}

/// F053: the status of a Node shows the proxy mode in use. The Node is not converged while this mode differs from
/// the one in its spec.
#[test]
fn f053_a_node_converges_when_the_configured_mode_is_active() {
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
    assert_eq!(converged.message, "traffic uses mode iptables instead of the requested ipvs");
    assert_eq!((waiting.mode, &waiting.warnings), (Some(running.mode), &running.warnings));
    assert_eq!(waiting.events, running.events);
    for spec in [json!({}), json!({ "mode": "iptables" })] {
        let status = of(spec, &running);
        assert_eq!(condition(&status.conditions, ConditionType::Converged).status, ConditionStatus::True);
    }
}

/// F156: a Node whose kernel lacks the tunnel of a WorkloadNetwork is not converged, with the reason and the remedy of its agent.
#[test]
fn f156_a_node_without_the_tunnel_of_a_network_is_not_converged() {
    let name = Name::parse("n1").unwrap();
    let head = Position { epoch: Epoch(1), revision: Revision(9) };
    let spec: NodeSpec = serde_json::from_value(json!({})).unwrap();
    let lacking = report("nftables", json!({ "networkFailure": "no IPIP. Run `modprobe ipip`" }));
    let status = node_status(&spec, &view(&name, &lacking), head);
    let converged = condition(&status.conditions, ConditionType::Converged);
    assert_eq!(line(converged), "False NetworkNotProgrammed");
    assert_eq!(converged.message, "workload network: no IPIP. Run `modprobe ipip`");
    assert!(converged.hint.is_some());
}
