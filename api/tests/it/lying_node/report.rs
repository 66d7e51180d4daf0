//! False reports: a row with lies for each field of the report.

use serde_json::{Value, json};

use super::{
    assert_complete, properties,
    world::{ADDRESS, SINCE, STRANGER, World, assert_same, checked, public_key},
};
use crate::support::START;

/// Returns the lies about a field of the report. Each is sent alone, in an otherwise honest report.
fn lies(field: &str) -> Vec<Value> {
    let future = [format!("{START}-99999999"), "99999999999-1".to_owned(), "1-1".to_owned()];
    let claim = |epoch: u64| {
        json!({ ADDRESS: {
            "role": "Owner", "epoch": epoch, "since": SINCE, "reason": "took over", "interfaces": ["eth0"],
            "replies": u64::MAX, "gratuitous": u64::MAX, "lastGratuitous": SINCE,
            "conflict": { "mac": "02:00:00:00:00:01", "interface": "eth0", "at": SINCE },
        } })
    };
    let traffic = |port: Value| {
        json!({ "default/web": [{
        "protocol": "TCP", "address": "10.1.1.1", "port": port, "connections": u64::MAX, "active": u64::MAX,
    }] })
    };
    let route = |peer: &str| {
        json!({ "198.51.100.100/32": {
        "addresses": [ADDRESS], "peers": { peer: { "since": SINCE, "text": "announced" } },
    } })
    };
    let session = |peer: &str| {
        json!({
            "asn": 64512, "routerId": "198.51.100.1", "sessions": [{
                "peer": peer, "address": "198.51.100.254", "state": "Established", "since": SINCE, "reason": "Established",
                "localASN": 64512, "remoteASN": 65001, "remoteRouterId": "198.51.100.254",
            }],
        })
    };
    let stolen_key = |host: u8| {
        json!({
            "addresses": ["198.51.100.9"], "subnets": { "eth0": ["198.51.100.0/24"] },
            "peerPublicKey": public_key(host),
        })
    };
    let down = |address: &str| checked(address, "Unhealthy");
    match field {
        "bootId" => vec![json!("boot-n1"), json!("")],
        "agentVersion" | "networkFailure" => vec![json!("99.0.0")],
        "mode" => vec![json!("userspace"), json!("ipvs")],
        "received" | "applied" | "verified" | "trafficAt" => future.map(Value::from).to_vec(),
        "held" => ["MuchLost", "ControlBehind"]
            .map(|reason| {
                json!({
                    "offered": future[1], "inForce": future[0], "reason": reason, "since": SINCE,
                    "vips": { "lost": 99, "total": 100 }, "endpoints": { "lost": 99, "total": 100 },
                })
            })
            .to_vec(),
        "failures" => vec![json!({
            "default/web": { "revision": 1, "reason": "KernelRefused", "message": "no" },
            "default/none": { "revision": 99999999, "reason": "Unsupported", "message": "no" },
        })],
        "failuresTotal" => vec![json!(u64::MAX)],
        // The networks of the node make it a candidate behind the node that announces the address.
        "facts" => vec![
            json!({ "addresses": ["198.51.100.1", "198.51.100.2", ADDRESS, "10.96.0.1"], "subnets": {} }),
            json!({ "addresses": ["198.51.100.1"], "subnets": { "eth0": ["198.51.100.0/24", "0.0.0.0/0", "::/0"] } }),
            json!({ "addresses": ["198.51.100.9"], "subnets": { "eth0": ["198.51.100.0/24"] } }),
            json!({ "addresses": [], "kernel": "0.0.1", "capabilities": [] }),
            // The link-layer address of another machine, as if it were one of its own.
            json!({ "addresses": ["198.51.100.9"], "linkLayerAddresses": { "eth0": "02:00:00:00:00:01", "eth1": "ff:ff:ff:ff:ff:ff" } }),
            // The public key of another node (see `honest_report`), and one with which everybody agrees on the same key.
            stolen_key(1),
            stolen_key(0),
            // The link-layer address of the stranger of whom the owner warns.
            json!({ "addresses": ["198.51.100.9"], "linkLayerAddresses": { "eth0": STRANGER } }),
        ],
        "counters" => vec![json!({ "driftRepairs": u64::MAX, "passes": u64::MAX, "feedBytes": u64::MAX })],
        "warnings" => vec![json!(["n1 is down", "everything is down"])],
        "events" => vec![json!([
            { "time": SINCE, "reason": "BgpSessionDown", "message": "of-n1", "count": u64::MAX },
            { "time": SINCE, "reason": "StateReleased", "message": "all", "count": 1 },
        ])],
        "traffic" => vec![traffic(json!(80)), traffic(Value::Null), json!({ "default/web": [] })],
        // The claim of a node that is no candidate. The claim of a candidate needs the confirmation of another
        // one, which `addresses.rs` covers.
        "announcements" => vec![claim(1), claim(u64::MAX)],
        "announcementsGone" => vec![json!([ADDRESS])],
        "announcementChanges" => vec![false_changes()],
        "peers" => ["Down", "AdminDown"]
            .map(|state| {
                json!([
                    { "node": "n1", "address": "198.51.100.1", "state": state, "since": SINCE },
                    { "node": "n2", "address": "198.51.100.2", "state": state, "since": SINCE },
                ])
            })
            .to_vec(),
        "bgp" => vec![session("of-n1"), session("of-n9"), Value::Null],
        "bgpRoutes" => vec![route("of-n1"), route("of-n9"), route("none")],
        "bgpRoutesGone" => vec![json!(["198.51.100.100/32"])],
        // The endpoints of other nodes, an endpoint that three nodes check, and endpoints that do not exist.
        "health" => vec![
            json!({ "default/web": [down("10.1.1.1"), down("10.1.2.1"), down("10.1.0.1")] }),
            json!({ "default/none": [down("10.1.1.1")], "default/pods": [down("10.1.1.2")] }),
            json!({ "default/web": [] }),
        ],
        "policy" => ["Failed", "Full"].map(|enforcement| json!({ "enforcement": enforcement })).to_vec(),
        "announcementsComplete" | "bgpRoutesComplete" | "healthComplete" => vec![json!(true), json!(false)],
        _ => panic!("the field {field} of the report needs lies here"),
    }
}

/// Returns changes of announcements that never happened.
fn false_changes() -> Value {
    json!([
        { "number": u64::MAX, "time": SINCE, "address": ADDRESS, "announces": true, "reason": "took over" },
        { "number": 1, "time": SINCE, "address": "10.96.0.1", "announces": false, "reason": "gave up" },
    ])
}

/// False reports of one node change nothing of other nodes, in no field.
#[tokio::test]
async fn a_false_report_concerns_the_node_alone() {
    let world = World::new().await;
    let before = world.look().await;
    let has_alarm = before.iter().any(|line| line.contains("\"announced\":\"Conflict\""));
    assert!(has_alarm, "{before:#?}");
    let fields = properties("Report");
    let mut count = 0;
    for field in &fields {
        for lie in lies(field) {
            world.report("n9", json!({ field: lie })).await;
            count += 1;
        }
        world.pass_tasks().await;
        assert_same(&format!("the field {field} of a report"), &before, &world.look().await);
        // The next row starts from the truth, as after a restart of the agent.
        let truth = json!({ "announcementsComplete": true, "bgpRoutesComplete": true });
        world.report("n9", truth).await;
        world.pass_tasks().await;
    }
    println!("lying node: {count} false reports in {} fields", fields.len());
}

/// The lies about the machine contain each of its facts.
#[test]
fn each_fact_is_lied_about() {
    let lies = lies("facts");
    let fields = lies.iter().flat_map(|lie| lie.as_object().unwrap().keys().cloned());
    assert_complete("Facts", fields);
}

/// A report in the name of another node is refused.
#[tokio::test]
async fn a_report_for_another_node_is_refused() {
    let world = World::new().await;
    let report = super::world::honest_report("n1");
    let (status, answer) = world.call("n9", "PUT", "/v1/nodes/n1/report", Some(report)).await;
    assert_eq!(status, 403, "{answer:#}");
}
