//! Overview of the cluster: the impact of deviations on users, the order of problems, and the last write
//! before each problem.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use model::{
    cluster::history::Maker,
    compile::compile,
    kinds::resource::{Kind, ObjectKey, Spec},
    observed::rollup::{NodeView, NodeViews, ServiceObservations, node_status, service_status},
    primitives::{
        name::Name,
        quantity::{Epoch, Position, Revision, Timestamp},
    },
    views::overview::{
        Impact, NodeRow, ServiceRow, ServiceState,
        affects::Forms,
        memory::{Basis, StatusFinding},
        nodes::{self, NodeInput, two_digits},
        preceding::{Write, Writes},
        problems::{problems, worst_by_object},
        services::{self, ServiceInput},
    },
    wire::report::Report,
};
use serde_json::{Value, json};

use crate::support::{self, Cluster, key, of_kind, service};

fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), found, "{}", path.display());
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(seconds)
}

fn report(more: &Value) -> Report {
    let mut json = json!({
        "bootId": "a", "agentVersion": "0", "mode": "nftables", "received": "1-90", "applied": "1-90", "verified": "1-90",
    });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json).unwrap()
}

fn endpoint(address: &str, more: &Value) -> Value {
    let mut json = json!({ "address": address });
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json
}

/// Returns the overview row and the findings of Service `web` with the given spec, endpoints and node reports.
fn judge_service(spec: &Value, endpoints: &[Value], reports: &[Value]) -> (ServiceRow, Vec<StatusFinding>) {
    judge_observed(spec, endpoints, reports, ServiceObservations::default())
}

fn judge_observed(
    spec: &Value,
    endpoints: &[Value],
    reports: &[Value],
    observed: ServiceObservations,
) -> (ServiceRow, Vec<StatusFinding>) {
    let mut cluster = Cluster::new();
    let mut whole = json!({ "ports": [{ "port": 80 }] });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    cluster.apply(&service("web", whole)).unwrap();
    if !endpoints.is_empty() {
        let spec = json!({ "service": "web", "endpoints": endpoints });
        cluster.apply(&of_kind("EndpointSet", "web", json!({}), spec)).unwrap();
    }
    let names: Vec<_> = (1..=reports.len()).map(|n| Name::parse(&format!("n{n}")).unwrap()).collect();
    let reports: Vec<_> = reports.iter().map(report).collect();
    let views: Vec<_> = names.iter().zip(&reports).map(|(name, report)| view(name, Some(report))).collect();
    let (key, compiled) = (key("web"), compile(&cluster.snapshot, &key("web")));
    let object = cluster.snapshot.service(&key).unwrap();
    let spec = object.as_service().unwrap();
    let nodes = NodeViews::new(views);
    let status = service_status(&cluster.snapshot, &key, spec, compiled.as_ref(), Epoch(1), &nodes, observed);
    let view = ServiceInput {
        key: &key,
        object,
        spec,
        status: &status,
        compiled: compiled.as_ref(),
        health: None,
        announced: 0,
    };
    let mut findings = Vec::new();
    let mut row = services::judge(&view, &|_| false, &mut findings);
    let worst = worst_by_object(&findings);
    if let Some(worst) = worst.values().next() {
        services::explain(&mut row, worst);
    }
    (row, findings)
}

fn view<'a>(name: &'a Name, report: Option<&'a Report>) -> NodeView<'a> {
    NodeView {
        name,
        is_connected: report.is_some(),
        has_left: false,
        is_contested: false,
        is_lost: false,
        last_report: report.is_none().then(|| at(940)),
        report,
    }
}

#[test]
fn the_findings_of_a_service_have_their_impact_on_users() {
    let fine = [json!({}), json!({})];
    let failed = json!({ "failures": { "default/web": { "revision": 90, "reason": "KernelRefused", "message": "EINVAL" } }, "failuresTotal": 1 });
    let (up, down) = (json!({}), json!({ "conditions": { "ready": false } }));
    let drained = json!({ "maintenance": { "mode": "Drain" } });
    let two = [endpoint("10.1.1.1", &up), endpoint("10.1.1.2", &up)];
    let cases: Vec<(&str, Value, Vec<Value>, Vec<Value>)> = vec![
        ("all is well", json!({}), two.to_vec(), fine.to_vec()),
        ("one endpoint by design", json!({}), vec![two[0].clone()], fine.to_vec()),
        ("no endpoints", json!({}), vec![], fine.to_vec()),
        ("none is ready", json!({}), vec![endpoint("10.1.1.1", &down)], fine.to_vec()),
        (
            "one of two is not ready",
            json!({}),
            vec![two[0].clone(), endpoint("10.1.1.2", &down)],
            fine.to_vec(),
        ),
        (
            "one is left, the other drains",
            json!({}),
            vec![two[0].clone(), endpoint("10.1.1.2", &drained)],
            fine.to_vec(),
        ),
        ("all drain", json!({}), vec![endpoint("10.1.1.2", &drained)], fine.to_vec()),
        ("disabled", json!({ "disabled": true }), vec![], fine.to_vec()),
        ("headless without endpoints", json!({ "clusterIP": "None" }), vec![], fine.to_vec()),
        ("no nodes", json!({}), two.to_vec(), vec![]),
        ("failed on one of two nodes", json!({}), two.to_vec(), vec![json!({}), failed.clone()]),
        ("failed on all nodes", json!({}), two.to_vec(), vec![failed.clone(), failed]),
        ("no address to have", json!({ "type": "LoadBalancer" }), two.to_vec(), fine.to_vec()),
    ];
    let mut text = String::new();
    for (name, spec, endpoints, reports) in cases {
        let (row, findings) = judge_service(&spec, &endpoints, &reports);
        writeln!(text, "{name}: {:?} {}", row.state, row.reason.as_deref().unwrap_or("-")).unwrap();
        for one in findings {
            let StatusFinding { aspect, impact, reason, message, basis, is_passing, .. } = one;
            let passing = if is_passing { ", passing" } else { "" };
            writeln!(text, "    {impact:?} {aspect}: {reason} ({basis:?}{passing}): {message}").unwrap();
        }
    }
    check("overview_services.txt", &text);
}

/// F146: a host name that a DnsZone contains and the Service does not get is a problem; a name without a DnsZone is none, because other name
/// servers may have it.
#[test]
fn f146_refused_host_names_are_problems() {
    let up = [endpoint("10.1.1.1", &json!({}))];
    let judge = |reason: &str| {
        let resolvable =
            json!({ "type": "Resolvable", "status": "False", "reason": reason, "message": "the reason" });
        let resolvable = Some(serde_json::from_value(resolvable).unwrap());
        let observed = ServiceObservations { resolvable, ..ServiceObservations::default() };
        let (row, _) = judge_observed(&json!({}), &up, &[json!({})], observed);
        (row.state, row.reason)
    };
    for reason in ["NamespaceNotAllowed", "NameTaken", "NameReserved"] {
        assert_eq!(judge(reason), (ServiceState::Degraded, Some(reason.to_owned())));
    }
    for reason in ["NoDnsZone", "NoAddressInService"] {
        assert_eq!(judge(reason), (ServiceState::Ok, None), "{reason}");
    }
}

fn judge_node(report: Option<&Value>, lag_millis: Option<u64>) -> (NodeRow, Vec<StatusFinding>) {
    let name = Name::parse("n1").unwrap();
    let report = report.map(self::report);
    let view = view(&name, report.as_ref());
    let head = Position { epoch: Epoch(1), revision: Revision(90) };
    let Spec::Node(spec) = support::object(&of_kind("Node", "n1", json!({}), json!({}))).spec else {
        panic!("a Node")
    };
    let status = node_status(&spec, &view, head);
    let forms = || (1..=12).map(|n| (Revision(80 + n), key(&format!("s{n}")))).collect();
    let forms = Forms::new(Epoch(1), &forms);
    let sight =
        NodeInput { view: &view, status: &status, zone: Some("a"), lag_millis, addresses: 2, sessions: None };
    let mut findings = Vec::new();
    let row = nodes::judge(&sight, &forms, at(1000), &mut findings);
    (row, findings)
}

#[test]
fn the_findings_of_a_node_have_state_and_affected_services() {
    let behind = json!({ "received": "1-85", "applied": "1-85", "verified": "1-85" });
    let drift = |time: i64| json!({ "events": [{ "time": at(time), "reason": "DriftRepaired", "message": "a map was gone", "count": 1 }] });
    let failure = json!({ "revision": 90, "reason": "KernelRefused", "message": "EINVAL" });
    let few = json!({ "failures": { "default/s1": failure }, "failuresTotal": 1 });
    let many = json!({ "failures": { "default/s1": failure, "default/s2": failure }, "failuresTotal": 40 });
    let cases = [
        ("all is well", Some(json!({})), None),
        ("gets it at this moment", Some(behind.clone()), Some(150)),
        ("is behind", Some(behind.clone()), Some(65_432)),
        ("is behind what is not remembered", Some(behind), None),
        ("is silent", None, Some(3_000)),
        ("has drifted lately", Some(drift(900)), None),
        ("has drifted long ago", Some(drift(-900)), None),
        ("one Service failed", Some(few), None),
        ("many Services failed", Some(many), None),
        ("F156: the kernel has no IPIP", Some(json!({ "networkFailure": "no IPIP" })), None),
    ];
    let mut text = String::new();
    for (name, report, lag) in cases {
        let (row, findings) = judge_node(report.as_ref(), lag);
        let NodeRow { state, lag_millis, verified, .. } = row;
        let verified = verified.map(|at| at.to_string()).unwrap_or_default();
        writeln!(text, "{name}: {state:?}, lag {lag_millis:?} {verified}").unwrap();
        for one in findings {
            let StatusFinding { aspect, impact, reason, message, since, affects, affects_more, .. } = one;
            let affects: Vec<_> = affects.iter().map(|one| one.name.as_str()).collect();
            writeln!(
                text,
                "    {impact:?} {aspect}: {reason} since {since:?}: {message}; {affects:?} and {affects_more}"
            )
            .unwrap();
        }
    }
    check("overview_nodes.txt", &text);
}

fn finding(name: &str, impact: Impact, since: Option<i64>) -> StatusFinding {
    let about = key(name).object_key();
    let found = StatusFinding::new(about, "Ready", impact, "Because", String::new());
    StatusFinding { since: since.map(at), basis: Basis::Intent, ..found }
}

#[test]
fn problems_are_ordered_by_impact_then_age_with_the_preceding_write() {
    let mut writes = Writes::default();
    for (revision, time, name) in [(5, 100, "old"), (6, 200, "web"), (7, 300, "web"), (8, 310, "other")] {
        let touches: BTreeSet<ObjectKey> = BTreeSet::from([key(name).object_key()]);
        let author = format!("who wrote {revision}");
        let (revision, maker) = (Revision(revision), Maker::Client);
        writes.push(Write { revision, at: at(time), maker, author, message: None, touches });
    }
    let mut pool = finding("p", Impact::Risk, Some(320));
    pool.about =
        ObjectKey { kind: Kind::AddressPool, namespace: None, name: Name::parse("p").unwrap() }.into();
    pool.concerns.kinds = &[Kind::Service];
    let findings = [
        finding("calm", Impact::Notice, Some(1)),
        finding("young", Impact::Degraded, Some(400)),
        finding("unknown", Impact::Degraded, None),
        finding("web", Impact::Degraded, Some(305)),
        finding("web", Impact::Risk, Some(305)),
        pool,
        finding("old", Impact::Unreachable, Some(900)),
    ];
    let (listed, total) = problems(&findings, &writes);
    let mut text = format!("{total} problems\n");
    for one in listed {
        let change = one.change.map(|change| format!("revision {}", change.revision));
        writeln!(
            text,
            "{:?} {} since {:?}: {change:?}",
            one.impact,
            one.id,
            one.since.map(Timestamp::unix_seconds)
        )
        .unwrap();
    }
    check("overview_problems.txt", &text);
}

#[test]
fn a_growing_lag_rarely_changes_the_row() {
    let numbers = [0, 9, 99, 100, 1234, 65_999, 65_000_999];
    assert_eq!(numbers.map(two_digits), [0, 9, 99, 100, 1200, 65_000, 65_000_000]);
}
