//! Tests of ping replies (ICMP echo) for load balancer addresses.

use std::net::IpAddr;

use lab::{
    cluster::deployment::{Cluster, Options},
    host::{kernel, modes, wait},
};
use serde_json::json;

use super::{
    pinger::Pinger,
    stage::{add_web, advertisement, stage_with, wait_moved, wait_owner, wait_reached},
};

/// Name of the nftables table that answers ping requests.
const TABLE: &str = "tidegate-announce";

fn is_answered(cluster: &Cluster, from: &str, address: IpAddr) -> bool {
    cluster.place(from).unwrap().inside(|| Pinger::new(address)).asks()
}

fn wait_answered(cluster: &Cluster, from: &str, address: IpAddr) {
    wait::until_true(&format!("{address} to answer to {from}"), || is_answered(cluster, from, address))
        .unwrap();
}

/// Returns the rules of the nftables table with which a node replies to pings, or an empty string if there is
/// no such table.
fn table(cluster: &Cluster, node: &str) -> String {
    let ruleset = kernel::ruleset(cluster.place(node).unwrap()).unwrap();
    if ruleset.contains(TABLE) { ruleset } else { String::new() }
}

/// F124, F125: an announced address replies to pings in every mode, from outside and from a workload, also
/// after a change of its owner. With `answerPing: false` it does not reply. After the address is deleted, no
/// rule is left.
#[test]
fn f124_f125_announced_addresses_answer_to_ping_in_every_mode() {
    let modes = modes::NATIVE.to_vec();
    let mut cluster = stage_with(&Options { nodes: 3, modes, ..Options::default() });
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    for vip in vips {
        for drained in 0..3 {
            let owner = wait_owner(&cluster, vip);
            for from in ["client", "web-node1", "web-node2"] {
                wait_answered(&cluster, from, vip);
            }
            assert!(table(&cluster, &owner).contains(&vip.to_string()), "{owner}");
            if drained < 2 {
                cluster.patch(&format!("nodes/{owner}"), &json!({"spec": {"unschedulable": true}})).unwrap();
                wait_moved(&cluster, &[vip], &owner);
                wait::until_true("the former owner to answer for nothing", || {
                    !table(&cluster, &owner).contains(&vip.to_string())
                })
                .unwrap();
            }
        }
        for node in ["node1", "node2", "node3"] {
            cluster.patch(&format!("nodes/{node}"), &json!({"spec": {"unschedulable": false}})).unwrap();
        }
    }
    cluster.apply_objects(&[advertisement("lan", &json!({"answerPing": false}))]).unwrap();
    for vip in vips {
        wait::until_true("silence", || !is_answered(&cluster, "client", vip)).unwrap();
        wait_reached(&cluster, &[vip]);
        assert!(!is_answered(&cluster, "client", vip));
    }
    cluster.delete("namespaces/default/services/web").unwrap();
    for node in ["node1", "node2", "node3"] {
        wait::until_true("nothing to be left", || table(&cluster, node).is_empty()).unwrap();
    }
}

/// F124, F125: an agent that hands its addresses over when it stops removes the nftables table for ping
/// replies. An agent that keeps its addresses leaves the table in the kernel, and continues to use it after a
/// restart.
#[test]
fn f124_f125_a_restart_with_keep_goes_on_answering_to_ping() {
    for (on_exit, is_kept) in [("--on-exit=keep", true), ("--on-exit=handover", false)] {
        let agent_arguments = vec![on_exit.to_owned()];
        let mut cluster = stage_with(&Options { nodes: 1, agent_arguments, ..Options::default() });
        let vips = add_web(&mut cluster, &["node1"], &json!({}));
        // The table is complete once both addresses are announced.
        vips.iter().for_each(|vip| wait_answered(&cluster, "client", *vip));
        let [vip, _] = vips;
        let before = table(&cluster, "node1");
        cluster.agents.get_mut("node1").unwrap().terminate().unwrap();
        assert_eq!(table(&cluster, "node1"), if is_kept { before } else { String::new() });
        assert!(!is_kept || is_answered(&cluster, "client", vip), "the client knows where it is");
        cluster.start_agent_again("node1").unwrap();
        wait_owner(&cluster, vip);
        wait_answered(&cluster, "client", vip);
    }
}
