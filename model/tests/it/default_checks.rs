//! Health checks by default: endpoints that nobody else checks are checked by a TCP connection.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    cluster::{
        compiled::DefaultCheck,
        default_checks::DefaultChecks,
        quota::{QuotaSetting, Quotas},
    },
    kinds::condition_reason::ConditionReason,
    observed::{
        health::{
            Guard, HealthSource, addresses_not_checked, check_of, checks, default_check, health_source,
            not_checked, with_default_check,
        },
        rollup::{add_not_checked, service_health},
    },
    wire::report::CheckState::{Healthy, Unhealthy},
};
use serde_json::{Value, json};

use crate::{
    support::{of_kind, service},
    suspicion::{Scene, check_key},
};

/// Creates Service `web` with the fields of `spec` and three Workloads, on a server with checks by default.
fn scene(spec: Value) -> Scene {
    let mut scene = Scene::new(spec, &["a", "b", "c"]);
    set(&mut scene, DefaultChecks::new(true, Quotas::default()));
    scene
}

fn set(scene: &mut Scene, checks: DefaultChecks) {
    scene.cluster.snapshot = scene.cluster.snapshot.clone().with_default_checks(checks);
}

fn one_port() -> Value {
    json!({ "ports": [{ "port": 80 }] })
}

fn is_checked(scene: &Scene) -> bool {
    let form = scene.compiled("web");
    assert_eq!(check_of(&form).is_some(), !checks(&form).is_empty());
    !checks(&form).is_empty()
}

/// Returns the first message about an endpoint that nobody checks.
fn why_not_checked(scene: &Scene) -> String {
    let form = scene.compiled("web");
    let mut health = scene.with_inputs(&BTreeSet::new(), |inputs| {
        service_health(&scene.cluster.snapshot, &form, inputs, &Guard::new(33))
    });
    add_not_checked(&mut health, &form);
    health.endpoints.remove(0).message
}

/// A dead endpoint leaves service and returns after one success. The health guard counts it.
#[test]
fn endpoints_that_nobody_checks_are_checked_and_leave_service() {
    let mut scene = scene(one_port());
    let form = scene.compiled("web");
    assert_eq!((form.default_check, checks(&form).len(), not_checked(&form).len()), (DefaultCheck::On, 3, 0));
    assert_eq!(check_of(&form).as_deref(), Some(&default_check()));
    let (port, endpoint) = (&form.ports[0], &form.ports[0].endpoints[0]);
    assert_eq!(health_source(&form, port, endpoint), HealthSource::DefaultCheck);
    assert_eq!((scene.decide(&["web"]), scene.ready("web", 0)), (0, vec![1, 2, 3]), "no result yet");
    scene.say("a", "web", &[(check_key(1, 80), Unhealthy, "connection refused")]);
    assert_eq!((scene.decide(&["web"]), scene.ready("web", 0)), (1, vec![2, 3]));
    assert_eq!(checks(&scene.compiled("web")).len(), 3, "it is checked further");
    scene.say("a", "web", &[(check_key(1, 80), Healthy, "connected")]);
    assert_eq!((scene.decide(&["web"]), scene.ready("web", 0)), (0, vec![1, 2, 3]));
}

/// The check by default takes no Service out of service: the last endpoints stay, with the reason.
#[test]
fn the_last_endpoints_of_a_port_stay_in_service() {
    let mut scene = scene(one_port());
    for (node, host) in [("a", 1), ("b", 2)] {
        scene.say(node, "web", &[(check_key(host, 80), Unhealthy, "connection refused")]);
    }
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [3]);
    scene.say("c", "web", &[(check_key(3, 80), Unhealthy, "connection refused")]);
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [1, 2, 3]);
    let available = scene.available("web");
    assert_eq!(available.reason, ConditionReason::LastEndpointsKept, "{available:?}");
    assert!(available.message.contains("do not answer the check by default"), "{available:?}");
}

/// A TCP connection shows nothing about a UDP port with the same number.
#[test]
fn a_failed_connection_has_no_effect_on_udp_ports() {
    let ports =
        json!({ "ports": [{ "name": "tcp", "port": 53 }, { "name": "udp", "port": 53, "protocol": "UDP" }] });
    let mut scene = scene(ports);
    scene.say("a", "web", &[(check_key(1, 53), Unhealthy, "connection refused")]);
    scene.decide(&["web"]);
    assert_eq!((scene.ready("web", 0), scene.ready("web", 1)), (vec![2, 3], vec![1, 2, 3]));
    let form = scene.compiled("web");
    assert_eq!((not_checked(&form).len(), addresses_not_checked(&form).len()), (3, 0), "only the UDP port");
}

/// Without the setting, with a health check of the Service, for other ports than single TCP ports, and for endpoints
/// whose source checks them, there is no check by default.
#[test]
fn only_single_tcp_ports_that_nobody_else_checks_are_checked() {
    assert!(is_checked(&scene(one_port())));
    let mut off = scene(one_port());
    set(&mut off, DefaultChecks::default());
    assert!(!is_checked(&off));
    let checked = json!({ "ports": [{ "port": 80 }], "healthCheck": { "type": "Tcp" } });
    let form = scene(checked).compiled("web");
    assert_eq!((form.default_check, check_of(&form).unwrap().interval_ms), (DefaultCheck::Off, 5000));
    for ports in [json!([{ "port": 80, "protocol": "UDP" }]), json!([{ "port": 80, "endPort": 90 }])] {
        assert!(!is_checked(&scene(json!({ "ports": ports }))), "{ports}");
    }
    let mut by_source = scene(one_port());
    for number in 1..=3 {
        let spec = json!({ "addresses": [format!("10.1.0.{number}")], "node": "a" });
        let mut workload = of_kind("Workload", &format!("w{number}"), json!({ "app": "web" }), spec);
        workload["metadata"]["annotations"] = json!({ "tidegate.io/checked-by": "kubernetes" });
        by_source.cluster.apply(&workload).unwrap();
    }
    assert!(!is_checked(&by_source));
}

/// An annotation, not-ready addresses that are published, a missing virtual address and a quota exempt a Service, and
/// its endpoints are shown as not checked for this reason.
#[test]
fn exempt_services_are_not_checked_and_say_so() {
    let mut annotated = service("web", json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] }));
    annotated["metadata"]["annotations"] = json!({ "tidegate.io/default-health-check": "none" });
    let mut exempt = vec![scene(one_port()), scene(one_port())];
    exempt[0].cluster.apply(&annotated).unwrap();
    let quota: QuotaSetting = "default/checked-endpoints=10".parse().unwrap();
    set(&mut exempt[1], DefaultChecks::new(true, Quotas::new([quota])));
    for more in [json!({ "publishNotReadyAddresses": true }), json!({ "clusterIP": "None" })] {
        let mut spec = one_port();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        exempt.push(scene(spec));
    }
    for scene in exempt {
        assert!(!is_checked(&scene));
        assert_eq!(scene.compiled("web").default_check, DefaultCheck::Exempt);
        assert!(why_not_checked(&scene).contains("exempt from checks by default"));
    }
}

/// The record of a failed check disappears when the Service becomes exempt, so that its endpoint is in service again.
#[test]
fn an_exempted_service_has_all_its_endpoints_again() {
    let mut scene = scene(one_port());
    scene.say("a", "web", &[(check_key(1, 80), Unhealthy, "connection refused")]);
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [2, 3]);
    let mut annotated = service("web", json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] }));
    annotated["metadata"]["annotations"] = json!({ "tidegate.io/default-health-check": "none" });
    scene.cluster.apply(&annotated).unwrap();
    assert_eq!(scene.ready("web", 0), [1, 2, 3]);
    assert!(scene.cluster.snapshot.endpoint_health(&crate::support::key("web")).is_none());
}

/// An agent follows the setting of the network state, because it may hold a form from before the setting changed.
#[test]
fn agents_follow_the_setting_and_not_the_form_that_they_hold() {
    let mut scene = scene(one_port());
    let on = Arc::new(scene.compiled("web"));
    set(&mut scene, DefaultChecks::default());
    let off = Arc::new(scene.compiled("web"));
    assert_eq!(off.default_check, DefaultCheck::Off);
    assert_eq!(with_default_check(Arc::clone(&off), true), on);
    assert_eq!(with_default_check(Arc::clone(&on), false), off);
    assert!(Arc::ptr_eq(&with_default_check(Arc::clone(&on), true), &on));
}
