//! Tests of the owner of an address (the node that announces it) after a crash, a partition, a return and an
//! orderly shutdown.

use std::{collections::BTreeSet, net::IpAddr};

use anyhow::ensure;
use lab::{
    cluster::deployment::Options,
    host::wait,
    network::{client::at, steady_client::SteadyClient},
};
use serde_json::{Value, json};

use super::stage::{
    add_web, answerers, cut_off, order, roles, stage, stage_with, wait_first, wait_moved, wait_owner,
    wait_reached,
};

fn only(node: &str) -> BTreeSet<String> {
    BTreeSet::from([node.to_owned()])
}

/// F117, F132: if the owner's agent is killed, another node takes over the address, the control server
/// records the new owner with a higher epoch, and the old owner does not take the address back when it
/// returns. The nodes monitor each other with a key for each pair of them, also after the return.
#[test]
fn f117_f132_an_owner_that_dies_is_replaced_and_steals_nothing_when_it_returns() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    for vip in vips {
        let first = wait_owner(&cluster, vip);
        let epoch = wait_first(&cluster, vip, &first);
        cluster.agents.get_mut(&first).unwrap().kill();
        let second = wait_moved(&cluster, &[vip], &first);
        wait_reached(&cluster, &vips);
        assert!(wait_first(&cluster, vip, &second) > epoch);
        cluster.start_agent_again(&first).unwrap();
        cluster.wait_converged().unwrap();
        wait::until_true("the node that returned to stand by", || {
            roles(&cluster, vip).get(&first).is_some_and(|(role, _)| role == "Standby")
        })
        .unwrap();
        assert_eq!(wait_owner(&cluster, vip), second, "nothing is stolen");
        assert_eq!(answerers(&cluster, vip), only(&second));
        let record = cluster.address(vip).unwrap();
        let candidates = record["spec"]["announcement"]["candidates"].as_array().unwrap();
        let keys: BTreeSet<_> = candidates.iter().filter_map(|one| one["peerPublicKey"].as_str()).collect();
        assert_eq!(keys.len(), 3, "{record:#}");
    }
    for agent in cluster.agents.values() {
        assert!(!agent.log().contains("by the key of all nodes, because"), "{}", agent.log_tail());
    }
}

/// F117, F132: if the owner dies while the control server is down, another node takes over the address, and
/// the old owner does not take it back when it returns. The control server records the actual owner when it
/// is back.
#[test]
fn f132_failover_needs_no_control_and_control_adopts_it_later() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    let [vip, _] = vips;
    let first = wait_owner(&cluster, vip);
    cluster.server.kill();
    cluster.agents.get_mut(&first).unwrap().kill();
    wait_moved(&cluster, &vips, &first);
    let second = wait_owner(&cluster, vip);
    wait_reached(&cluster, &vips);

    cluster.start_agent_again(&first).unwrap();
    wait::until_true("the node that returned to leave it where it is", || {
        roles(&cluster, vip)
            .get(&first)
            .is_some_and(|(role, reason)| role == "Standby" && reason.contains(&second))
    })
    .unwrap();
    assert_eq!(answerers(&cluster, vip), only(&second));

    cluster.start_control_again().unwrap();
    wait_first(&cluster, vip, &second);
    assert_eq!(wait_owner(&cluster, vip), second);
    assert_eq!(answerers(&cluster, vip), only(&second));
    wait_reached(&cluster, &vips);
    wait::until("the takeover without control among the events", || {
        let path = format!("/v1/addresses/events?address={vip}&node={second}");
        let events = cluster.api.get_json(&path)?["items"].as_array().cloned().unwrap_or_default();
        let is_takeover = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "Announced" && message.contains("fell silent")
        };
        ensure!(events.iter().any(is_takeover), "{events:?}");
        Ok(())
    })
    .unwrap();
}

/// F117: an owner whose link is cut reports the loss and withdraws, and another node takes over. After the link is
/// back, only the new owner replies for the address.
#[test]
fn f117_an_owner_without_a_link_withdraws_and_another_takes_over() {
    let mut cluster = stage(2);
    let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
    wait_reached(&cluster, &vips);
    let [vip, _] = vips;
    let first = wait_owner(&cluster, vip);
    let port = format!("port{}", 100 + u16::from(cluster.topology.nodes[&first].index));
    cluster.place("fabric").unwrap().ip(&[format!("link set {port} down")]).unwrap();
    let second = wait_moved(&cluster, &[vip], &first);
    wait_reached(&cluster, &[vip]);
    let (role, reason) = roles(&cluster, vip)[&first].clone();
    assert!(role != "Owner" && reason.contains("eth0"), "{role}: {reason}");

    cluster.place("fabric").unwrap().ip(&[format!("link set {port} up")]).unwrap();
    cluster.wait_converged().unwrap();
    wait_first(&cluster, vip, &second);
    assert_eq!(wait_owner(&cluster, vip), second);
    assert_eq!(answerers(&cluster, vip), only(&second));
}

/// F117: while the network is partitioned, the address has an owner in each part. After the partition ends,
/// the address has one owner, with and without a running control server.
#[test]
fn f117_a_healed_partition_has_one_owner() {
    for has_control in [true, false] {
        let mut cluster = stage(2);
        let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
        wait_reached(&cluster, &vips);
        let [vip, _] = vips;
        let first = wait_owner(&cluster, vip);
        if !has_control {
            cluster.server.kill();
        }
        cut_off(&cluster, &first, true);
        let second = if first == "node1" { "node2" } else { "node1" };
        wait::until_true("the other part to have an owner", || {
            roles(&cluster, vip).get(second).is_some_and(|(role, _)| role == "Owner")
        })
        .unwrap();
        wait_reached(&cluster, &vips);
        assert_eq!(roles(&cluster, vip)[&first].0, "Owner", "its own part is served as well");
        assert_eq!(answerers(&cluster, vip), only(second));

        cut_off(&cluster, &first, false);
        wait_owner(&cluster, vip);
        if has_control {
            let owner = wait::until("the order of control to be followed", || {
                let first = order(&cluster, vip).1[0].clone();
                anyhow::ensure!(super::stage::owner(&cluster, vip)? == first, "first is {first}");
                Ok(first)
            });
            assert_eq!(answerers(&cluster, vip), only(&owner.unwrap()));
        } else {
            // Each of two isolated nodes leaves the address to the other one if that one answers first.
            wait::until("only the owner to answer", || {
                let owner = super::stage::owner(&cluster, vip)?;
                anyhow::ensure!(answerers(&cluster, vip) == only(&owner), "owner {owner}");
                Ok(())
            })
            .unwrap();
        }
        wait_reached(&cluster, &vips);
    }
}

/// F117: while the owner's Node is drained or its agent is terminated, clients that connect get a reply. Only a
/// connection in progress at the moment of a move may be reset.
#[test]
fn f117_a_drain_and_a_hand_over_reset_only_connections_in_progress() {
    let mut cluster = stage(3);
    let vips = add_web(&mut cluster, &["node1", "node2", "node3"], &json!({}));
    wait_reached(&cluster, &vips);
    let [vip, _] = vips;
    let first = wait_owner(&cluster, vip);
    let traffic = SteadyClient::start(cluster.place("client").unwrap(), at(vip, 80));
    traffic.wait(20).unwrap();
    cluster.patch(&format!("nodes/{first}"), &json!({"spec": {"unschedulable": true}})).unwrap();
    wait_moved(&cluster, &vips, &first);
    traffic.wait(20).unwrap();
    // The other nodes may have taken over before control has written the order.
    wait::until_true("control to leave out the drained node", || !order(&cluster, vip).1.contains(&first))
        .unwrap();

    // The agent ends; the kernel state that it programmed stays.
    let second = wait_owner(&cluster, vip);
    cluster.agents.get_mut(&second).unwrap().terminate().unwrap();
    let third = wait_moved(&cluster, &[vip], &second);
    traffic.wait(20).unwrap();
    traffic.end(2).unwrap();
    let (_, reason) = roles(&cluster, vip)[&third].clone();
    assert!(reason.contains("handed over") || reason.contains("first"), "{reason}");
}

/// F117: a restart of the owner's agent with `--on-exit keep` moves no address to another node.
#[test]
fn f117_an_agent_that_restarts_with_keep_keeps_its_addresses() {
    let keep = vec!["--on-exit=keep".to_owned()];
    let mut cluster = stage_with(&Options { nodes: 2, agent_arguments: keep, ..Options::default() });
    let vips = add_web(&mut cluster, &["node1", "node2"], &json!({}));
    wait_reached(&cluster, &vips);
    let [vip, _] = vips;
    let first = wait_owner(&cluster, vip);
    let epoch = wait_first(&cluster, vip, &first);
    cluster.agents.get_mut(&first).unwrap().terminate().unwrap();
    cluster.start_agent_again(&first).unwrap();
    assert_eq!(wait_owner(&cluster, vip), first);
    cluster.wait_converged().unwrap();
    assert_eq!(order(&cluster, vip).0, epoch, "nobody has taken over meanwhile");
    assert_eq!(answerers(&cluster, vip), only(&first));
    wait_reached(&cluster, &vips);
}

/// F117, F132: when the owner of many addresses dies, each of its addresses moves to exactly one other node,
/// and addresses of other owners do not move.
#[test]
fn f132_a_thousand_addresses_move_when_their_owner_dies() {
    const SERVICES: usize = 1000;
    let mut cluster = stage(3);
    cluster.add_backend("web-node3", "node3", 11, "web").unwrap();
    let big = super::stage::pool("big", &["172.17.8.0/30", "10.77.0.0/16"]);
    // All of them are on-link, as in a flat data center network.
    for index in 1..=3u8 {
        let place = cluster.place(&format!("node{index}")).unwrap();
        place.ip(&[format!("addr add 10.77.255.{index}/16 dev eth0")]).unwrap();
    }
    cluster.apply_objects(&[big]).unwrap();
    let service = |number: usize| {
        json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": format!("s{number}")}, "spec": {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "loadBalancer": {"pool": "big", "addresses": [format!("10.77.{}.{}", number / 200, 1 + number % 200)]},
            "ports": [{"port": 80, "targetPort": 8080}],
        }})
    };
    let all: Vec<_> = (0..SERVICES).map(service).collect();
    for some in all.chunks(100) {
        cluster.apply_objects(some).unwrap();
    }
    let owned = |cluster: &lab::cluster::deployment::Cluster| -> Vec<(String, usize)> {
        let count = |node: &String| {
            let all = cluster.agent(node).ok()?.get_json("/v1/announcements").ok()?;
            let all = all.as_object()?.values().filter(|part| part["role"] == "Owner").count();
            Some((node.clone(), all))
        };
        cluster.agents.keys().filter_map(count).collect()
    };
    let total = |owned: &[(String, usize)]| owned.iter().map(|(_, count)| count).sum::<usize>();
    wait::until("every address to have an owner", || {
        let owned = owned(&cluster);
        anyhow::ensure!(total(&owned) == SERVICES, "{owned:?}");
        Ok(())
    })
    .unwrap();
    let sample: IpAddr = "10.77.2.7".parse().unwrap();
    let place = cluster.place("client").unwrap();
    place.ip(&["addr add 10.77.255.200/16 dev eth0"]).unwrap();
    let first = wait_owner(&cluster, sample);
    wait_reached(&cluster, &[sample]);
    cluster.agents.get_mut(&first).unwrap().kill();
    wait::until("every address to have an owner again", || {
        let owned = owned(&cluster);
        anyhow::ensure!(total(&owned) == SERVICES, "{owned:?}");
        Ok(())
    })
    .unwrap();
    assert_ne!(wait_owner(&cluster, sample), first);
    wait_reached(&cluster, &[sample]);
}
