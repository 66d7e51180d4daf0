//! Tests of addresses that no node has announced yet: they may be in use by another machine.

use model::{
    primitives::quantity::Timestamp,
    wire::report::{AddressConflict, AnnouncementRole, Report},
};
use serde_json::json;

use super::{World, host, ip, name, report};

/// The first owner of an address probes before it announces the address; a later one does not.
#[test]
fn f117_a_new_address_is_probed_until_a_node_has_announced_it() {
    let mut world = World::new(&["a", "b"], 1);
    world.silent.insert(name("b"));
    world.settle(101);
    assert!(world.announcement(101).probe_first);
    world.silent.clear();
    assert!(world.settle(101), "another candidate");
    assert!(world.announcement(101).probe_first, "nobody has announced it");
    let owner = world.order(101)[0].clone();
    world.say(&owner, 101, AnnouncementRole::Owner, 2);
    assert!(!world.settle(101), "the end of the probe is no reason for a new order");
    world.lost.insert(name(&owner));
    assert!(world.settle(101));
    assert!(!world.announcement(101).probe_first);
    world.say(&owner, 101, AnnouncementRole::Standby, 2);
    world.lost.clear();
    assert!(world.settle(101));
    assert!(!world.announcement(101).probe_first, "once announced is enough");
}

/// Returns a report of a node that has the load balancer address on its interface, and no other address in this
/// network unless `has_other` is set.
fn on_interface(node: &str, mode: &str, has_other: bool) -> Report {
    let other = has_other.then(|| ip(host(&name(node))));
    let addresses: Vec<_> = other.into_iter().chain([ip(101)]).collect();
    let facts = json!({
        "addresses": addresses, "subnets": { "eth0": ["192.0.2.0/24"] },
        "linkLayerAddresses": { "eth0": "02:00:00:00:00:0b" },
    });
    report(host(&name(node)), json!({ "mode": mode, "facts": facts }))
}

/// A node with the address on an interface is no candidate, and the status of the address and its pool name it. In
/// ipvs mode the virtual addresses are on an interface. An owner that finds the address in use by this node reports
/// a conflict.
#[test]
fn an_address_on_an_interface_of_a_node_is_recognized() {
    for has_other in [false, true] {
        let mut world = World::new(&["a", "b"], 1);
        world.reports.insert(name("b"), on_interface("b", "nftables", has_other));
        world.settle(101);
        assert_eq!(world.order(101), ["a"]);
        let why = "192.0.2.101 is configured on one of its interfaces; remove it there, or exclude it from the pool";
        assert_eq!(world.not_candidates(101)[&name("b")], why);
        let pool = world.pool_condition("192.0.2.100-192.0.2.110");
        assert_eq!(pool.message, "192.0.2.101 is configured on an interface of node b");
        assert!(world.pool_condition("192.0.2.102-192.0.2.110").message.is_empty());

        let at = Timestamp::from_unix_seconds(1_771_000_000);
        let mac = "02:00:00:00:00:0b".to_owned();
        let heard = AddressConflict { mac, interface: "eth0".to_owned(), at, node: None };
        world.say_with("a", 101, AnnouncementRole::Held, 1, Some(heard));
        let shown = world.announced(1);
        assert!(shown.starts_with("False Conflict"), "{shown}");
        assert!(shown.ends_with("; the address is configured on an interface of node b"), "{shown}");
    }
    let mut world = World::new(&["a", "b"], 1);
    world.reports.insert(name("b"), on_interface("b", "ipvs", true));
    world.settle(101);
    assert_eq!(world.order(101).len(), 2, "a virtual address");
    world.reports.insert(name("b"), on_interface("b", "nftables", true));
    assert!(!world.settle(101), "a candidate may have left ipvs mode");
}
