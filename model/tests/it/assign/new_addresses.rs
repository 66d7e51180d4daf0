//! Tests of addresses that no node has announced yet: they may be in use by another machine or a node.

use model::wire::report::AnnouncementRole;
use serde_json::json;

use super::{World, ip, name, report};

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

/// An address on an interface of a node is not announced. A report takes no address away that has candidates.
#[test]
fn f117_an_address_of_a_node_is_not_announced() {
    let mut world = World::new(&["a", "b"], 1);
    let with_address = |prefix: u8| {
        let subnets = json!({ "eth0": ["192.0.2.0/24"], "eth1": [format!("192.0.2.101/{prefix}")] });
        report(2, json!({ "facts": { "addresses": [ip(2), ip(101)], "subnets": subnets } }))
    };
    world.reports.insert(name("b"), with_address(24));
    world.settle(101);
    assert_eq!(world.order(101), [""; 0]);
    assert_eq!(world.announced(1), "False Conflict b has 192.0.2.101 on an interface of its own");
    world.reports.insert(name("b"), with_address(32));
    assert!(world.settle(101), "the virtual address itself, in ipvs mode");
    world.reports.insert(name("b"), with_address(24));
    assert!(!world.settle(101), "a later report");
}
