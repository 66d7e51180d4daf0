//! Tests of health checks on real nodes: endpoints that fail and recover, many failures at once, and loss of
//! the node that checks.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(clippy::print_stdout, reason = "how long it takes is printed, never asserted")]

mod answering;
mod clients;
mod failing;
mod flapping;
mod stage;

use failing::break_and_come_back;
use flapping::flap_and_stay;
use lab::{
    fixtures::scene::BACKEND_PORT,
    host::{guest, modes},
    network::client::at,
};
use serde_json::json;
use stage::{Stage, endpoints, wait_for};

/// F061, F148: failing endpoints leave service and come back, on three nodes in nftables, iptables and userspace
/// mode.
#[test]
fn f061_f148_endpoints_that_break_leave_service_in_every_mode_and_come_back() {
    break_and_come_back(&modes::NATIVE);
}

/// F148: failing endpoints leave service and come back in ipvs mode, in the guest VM whose kernel has IPVS.
#[test]
fn f148_endpoints_that_break_leave_service_in_ipvs_mode_and_come_back() {
    guest::run("health::f148_endpoints_that_break_leave_service_in_ipvs_mode_and_come_back", || {
        break_and_come_back(&modes::GUEST)
    });
}

/// F148: a flapping endpoint keeps its state, on three nodes in nftables, iptables and userspace mode.
#[test]
fn f148_an_endpoint_that_flaps_stays_as_it_is_in_every_mode() {
    flap_and_stay(&modes::NATIVE);
}

/// F148: a flapping endpoint keeps its state in ipvs mode, in the guest VM whose kernel has IPVS.
#[test]
fn f148_an_endpoint_that_flaps_stays_as_it_is_in_ipvs_mode() {
    guest::run("health::f148_an_endpoint_that_flaps_stays_as_it_is_in_ipvs_mode", || {
        flap_and_stay(&modes::GUEST)
    });
}

/// F148: when the node that checks two endpoints is lost, their health is reported as unknown, and each stays in
/// or out of service as before. The check results of the node count again when it is back.
#[test]
fn f148_what_was_decided_holds_when_the_checker_is_lost() {
    let Stage { mut cluster, workloads, .. } = Stage::new(&["nftables", "nftables"], 2);
    let of_node2 = &workloads[1];
    cluster.topology.serve(&of_node2.name, BACKEND_PORT).unwrap();
    let [living, dead] = [BACKEND_PORT, BACKEND_PORT + 1];
    let check = json!({ "type": "Tcp", "intervalMs": 500, "timeoutMs": 500, "fall": 2, "rise": 2 });
    let objects = [
        stage::service("web", &check),
        endpoints("living", "web", &workloads[1..2], living),
        endpoints("dead", "web", &workloads[1..2], dead),
    ];
    cluster.apply_objects(&objects).unwrap();
    let web = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    let [living, dead] = [living, dead].map(|port| at(of_node2.address, port));
    wait_for(&cluster, "web", living, "Healthy", 100);
    wait_for(&cluster, "web", dead, "Unhealthy", 0);
    cluster.wait_verified("default/web").unwrap();
    cluster.agents.get_mut("node2").unwrap().kill();
    wait_for(&cluster, "web", living, "Unknown", 100);
    wait_for(&cluster, "web", dead, "Unknown", 0);
    let compiled = cluster.object("namespaces/default/endpoints/web").unwrap();
    let ready = |port: u16| {
        let all = compiled["ports"][0]["endpoints"].as_array().unwrap();
        all.iter().find(|one| one["port"] == port).unwrap()["ready"].as_bool().unwrap()
    };
    assert_eq!([ready(living.port()), ready(dead.port())], [true, false], "{compiled:#}");
    cluster.expect_backends("inside-1", web, &["web-2"]).unwrap();
    cluster.start_agent_again("node2").unwrap();
    wait_for(&cluster, "web", living, "Healthy", 100);
    wait_for(&cluster, "web", dead, "Unhealthy", 0);
}
