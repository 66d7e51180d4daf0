//! Table of all operations: first call, repeated, without a network namespace, without the result of ADD, after a restart of the
//! machine, at the same time, and without an agent.

use std::thread;

use serde_json::json;

use crate::{
    runner::{Call, Runner},
    support::{Namespace, Node},
};

#[test]
fn operations_can_be_repeated_and_need_neither_namespace_nor_result_nor_control_server() {
    let mut node = Node::start();
    let mut runner = Runner::new(&node.socket(), "1.1.0");
    let pod = Namespace::new("pod");
    let path = pod.path();
    let call = Call { args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1", ..Call::of("c1", &path) };

    // Before the first state: not available, and ADD can be tried again.
    assert_eq!(runner.status().unwrap_err().0, 50);
    assert_eq!(runner.add(call).unwrap_err().0, 11);
    assert_eq!(runner.del(call), Ok(()));
    node.give_blocks();
    let before = node.namespace.ip("-o link");
    assert_eq!(runner.status(), Ok(()));
    assert_eq!(runner.version()["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));

    let result = runner.add(call).unwrap();
    assert_eq!(result["cniVersion"], "1.1.0");
    assert_eq!(result["ips"][0], json!({"address": "10.9.1.0/32", "gateway": "169.254.1.1", "interface": 1}));
    assert_eq!(result["ips"][1]["address"], "fd09:1::/128");
    assert_eq!(result["routes"][0], json!({"dst": "0.0.0.0/0", "gw": "169.254.1.1"}));
    assert_eq!(result["interfaces"][1]["name"], "eth0");
    assert_eq!(result["interfaces"][1]["sandbox"], path.as_str());
    assert_eq!(result["interfaces"][1]["mtu"], 1500);
    let host = result["interfaces"][0]["name"].as_str().unwrap().to_owned();
    assert!(node.namespace.ip("-o link").contains(&host));
    assert!(pod.ip("-o addr show eth0").contains("10.9.1.0/32"));
    // A runtime that lost the answer, such as after a timeout, gets the same one.
    assert_eq!(runner.add(call).unwrap(), result);
    assert_eq!(runner.check(call), Ok(()));
    assert_eq!(runner.check(Call { with_result: false, ..call }), Ok(()));
    // The runtime gets the settings of the resolver from the configuration, unless a plugin before has others.
    assert_eq!(result["dns"], json!({}));
    let dns =
        json!({"nameservers": ["10.96.0.10"], "search": ["shop.svc.cluster.local"], "options": ["ndots:5"]});
    assert_eq!(runner.add_with(call, json!({"dns": dns})).unwrap()["dns"], dns);
    let earlier =
        json!({"dns": dns, "prevResult": {"cniVersion": "1.1.0", "dns": {"nameservers": ["192.0.2.53"]}}});
    assert_eq!(runner.add_with(call, earlier).unwrap()["dns"]["nameservers"], json!(["192.0.2.53"]));

    // A network without a block on the node, and a runtime that gives no list of valid attachments.
    let (code, details) = runner.status_of(json!({"network": "vms"})).unwrap_err();
    assert!(code == 50 && details.contains("`vms`"), "{code} {details}");
    assert_eq!(runner.status_of(json!({"network": "pods"})), Ok(()));
    assert_eq!(runner.gc_with(json!({})), Ok(()));
    assert_eq!(runner.gc_with(json!({"cni.dev/valid-attachments": null})).unwrap_err().0, 7);
    assert_eq!(runner.check(call), Ok(()));

    // The agent is away: DEL and ADD can be tried again, and STATUS says so.
    node.stop();
    assert_eq!(runner.status().unwrap_err().0, 50);
    assert_eq!(runner.del(call).unwrap_err().0, 11);
    node.boot("boot");
    assert_eq!(runner.add(call).unwrap(), result);

    // The namespace is gone, and the runtime has lost the result.
    drop(pod);
    let gone = runner.check(call).unwrap_err();
    assert!(matches!(gone.0, 3 | 100), "{gone:?}");
    let bare = Call { netns: None, with_result: false, ..call };
    assert_eq!(runner.del(bare), Ok(()));
    assert_eq!(runner.del(bare), Ok(()));
    assert_eq!(runner.check(bare).unwrap_err().0, 3);
    assert_eq!(node.namespace.ip("-o link"), before);

    // After a restart of the machine the containers of the last boot are gone; their DEL still succeeds.
    let pod = Namespace::new("pod");
    let path = pod.path();
    runner.add(Call::of("c2", &path)).unwrap();
    node.boot("next boot");
    assert_eq!(node.namespace.ip("-o link"), before);
    assert_eq!(runner.del(Call::of("c2", "/run/netns/of-the-last-boot")), Ok(()));
    let again = runner.add(Call::of("c3", &path)).unwrap();
    assert_ne!(again["ips"], result["ips"]);
    let missing = runner.add(Call::of("c4", "/run/netns/does-not-exist")).unwrap_err();
    assert_eq!(missing.0, 3, "{missing:?}");
    runner.del(Call::of("c3", &path)).unwrap();
    assert_eq!(node.namespace.ip("-o link"), before);
}

/// Results of version 0.4.0 have the family of each address; ADD of many containers at the same time gives each another
/// address; GC removes those that the runtime does not know.
#[test]
fn fifty_containers_at_once_have_different_addresses_and_gc_removes_the_unknown_ones() {
    let node = Node::start();
    node.give_blocks();
    let before = node.namespace.ip("-o link");
    let pods: Vec<_> = (0..50).map(|number| Namespace::new(&number.to_string())).collect();
    let mut runner = Runner::new(&node.socket(), "0.4.0");
    let results: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(number, pod)| {
                let socket = node.socket();
                scope.spawn(move || {
                    let (id, path) = (format!("c{number}"), pod.path());
                    let begun = std::time::Instant::now();
                    let result = Runner::new(&socket, "0.4.0").add(Call::of(&id, &path)).unwrap();
                    (result, begun.elapsed())
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut addresses: Vec<_> =
        results.iter().map(|(result, _)| result["ips"][0]["address"].to_string()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 50);
    assert_eq!(results[0].0["ips"][0]["version"], "4");
    assert_eq!(results[0].0["ips"][1]["version"], "6");
    println!("longest of 50 at once: {} ms", results.iter().map(|(_, took)| took.as_millis()).max().unwrap());

    // The runtime knows two of them.
    for number in [3, 4] {
        runner.add(Call::of(&format!("c{number}"), &pods[number].path())).unwrap();
    }
    runner.gc().unwrap();
    let links = node.namespace.ip("-o link");
    assert_eq!(links.lines().count(), before.lines().count() + 2, "{links}");
    assert_eq!(runner.check(Call::of("c3", &pods[3].path())), Ok(()));
    runner.forget("c3");
    runner.forget("c4");
    runner.gc().unwrap();
    assert_eq!(node.namespace.ip("-o link"), before);
}
