//! Tests of addresses that no node has announced yet: they may be in use by another machine.

use model::wire::report::AnnouncementRole;

use super::{World, name};

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
