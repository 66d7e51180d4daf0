//! Test of ARP in ipvs mode, in which every node has each address on an interface, but only the owner may
//! reply.

use std::collections::BTreeSet;

use lab::{
    cluster::deployment::Options,
    host::{guest, modes},
};
use serde_json::json;

use super::stage::{
    add_web, answerers, asked_and_answered, stage_with, wait_moved, wait_owner, wait_reached,
};

/// F129: in ipvs mode, every node has the address and sets `arp_ignore=1` and `arp_announce=2`. Exactly one
/// node replies to each ARP request, also after a failover, and `cleanup` restores the previous settings.
/// Runs in the guest VM, because the kernel of the host may lack IPVS.
#[test]
fn f129_in_ipvs_mode_only_the_elected_node_answers() {
    guest::run("addresses::ipvs::f129_in_ipvs_mode_only_the_elected_node_answers", || {
        let mut cluster =
            stage_with(&Options { nodes: 2, modes: modes::GUEST.to_vec(), ..Options::default() });
        let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
        wait_reached(&cluster, &vips);
        let settings = ["net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"];
        let read = |cluster: &lab::cluster::deployment::Cluster, node: &str| {
            settings.map(|name| {
                cluster.place(node).unwrap().run("sysctl", &["-n", name]).unwrap().trim().to_owned()
            })
        };
        for node in ["node1", "node2"] {
            assert_eq!(read(&cluster, node), ["1", "2"]);
            let held = cluster.place(node).unwrap().run("ip", &["-o", "addr"]).unwrap();
            assert!(vips.iter().all(|vip| held.contains(&format!("{vip}/"))), "{node} holds them: {held}");
        }
        let [vip, vip_v6] = vips;
        let first = wait_owner(&cluster, vip);
        for vip in vips {
            assert_eq!(answerers(&cluster, vip), BTreeSet::from([wait_owner(&cluster, vip)]));
        }
        let (asked, answered) = asked_and_answered(&cluster, vip);
        // The last request may be unanswered at the deadline; replies of two nodes would be twice as many.
        assert!((asked - 1..=asked).contains(&answered), "{answered} answers to {asked} questions");

        cluster.agents.get_mut(&first).unwrap().kill();
        let second = wait_moved(&cluster, &[vip, vip_v6], &first);
        wait_reached(&cluster, &vips);
        assert_eq!(answerers(&cluster, vip), BTreeSet::from([second]), "a kernel without an agent is silent");

        let agent = lab::processes::binaries::find("tidegate-agent").unwrap();
        let state = format!("--state-dir={}", cluster.state_directory(&first).display());
        let place = cluster.place(&first).unwrap();
        place.run(agent.to_str().unwrap(), &["cleanup", "--mode=ipvs", "--node=node", &state]).unwrap();
        assert_eq!(read(&cluster, &first), ["0", "0"], "the settings are as they were");
    });
}
