//! Addresses that other systems route to the nodes, without an Advertisement.

use model::{
    kinds::{address::AddressSpec, resource::Kind},
    observed::rollup::{AddressStanding, AnnouncementInputs, address_standing, pool_announced},
};
use serde_json::json;

use super::{World, ip, name};
use crate::support::{key, object, of_kind};

/// Addresses that no Advertisement covers are in order if their pool states that another system routes them, or if
/// they are outside of all pools. An Advertisement that covers them has precedence.
#[test]
fn f128_addresses_that_another_system_routes_are_in_order_without_an_advertisement() {
    let mut world = World::new(&["a"], 2);
    let pool = |routed: bool| {
        let spec = json!({ "addresses": ["192.0.2.101"], "routedExternally": routed });
        object(&of_kind("AddressPool", "pool", json!({}), spec))
    };
    let mut outside = AddressSpec::new(ip(102), None);
    outside.services.insert(key("s2"));
    world.record(outside);
    let of_pool = |world: &World| {
        let snapshot = world.snapshot();
        let spec = snapshot.pool(&name("pool")).unwrap().clone();
        let condition = world.with_scene(|scene| pool_announced(scene, &name("pool"), &spec));
        format!("{:?} {}", condition.status, condition.reason)
    };
    let standing = |world: &World, at: usize| {
        let snapshot = world.snapshot();
        let record = snapshot.address(ip(100 + at)).unwrap().as_address().unwrap().clone();
        world.with_scene(|scene| {
            let of = AnnouncementInputs { scene: *scene, book: &world.book, bgp: &world.bgp };
            address_standing(&of, &record).0
        })
    };
    world.put(pool(true));
    assert!(world.announced(1).starts_with("False NotYetAnnounced"), "{}", world.announced(1));
    assert_eq!(standing(&world, 1), AddressStanding::Waiting);
    world.objects.retain(|key, _| key.kind != Kind::Advertisement);
    assert_eq!(
        world.announced(1),
        "True RoutedExternally another system routes 192.0.2.101 to the nodes: AddressPool pool has routedExternally"
    );
    assert_eq!(of_pool(&world), "True RoutedExternally");
    assert!(world.announced(2).starts_with("True RoutedExternally"), "{}", world.announced(2));
    assert_eq!([1, 2].map(|at| standing(&world, at)), [AddressStanding::Announced; 2]);
    world.put(pool(false));
    assert!(world.announced(1).starts_with("False NoAdvertisement"), "{}", world.announced(1));
    assert_eq!(of_pool(&world), "False NoAdvertisement");
    assert_eq!(standing(&world, 1), AddressStanding::Waiting);
}
