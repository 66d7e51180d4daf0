//! Routes and the tunnel device in real kernels.

use std::{collections::BTreeMap, net::IpAddr, time::Instant};

use network::{
    desired::{DesiredNetwork, Encapsulation},
    plan::Unreachable,
    routes::keeper::{self, RouteKeeper, RoutePass, TunnelPermit},
};

use crate::support::{Namespace, Site, desired, name};

fn pass(node: &Namespace, own: &str, desired: &DesiredNetwork) -> RoutePass {
    node.inside(|| {
        let mut keeper = RouteKeeper::open(name(own)).unwrap();
        let observed = keeper.observe(desired, &BTreeMap::new()).unwrap();
        keeper.apply(observed, TunnelPermit::Allowed, Instant::now()).unwrap()
    })
}

/// A node has a route to each block: direct on the segment, through the tunnel to the other subnet. A new process has
/// nothing to write; routes of other programs stay, and cleanup leaves the machine as it was.
#[test]
fn a_node_has_routes_to_the_blocks_of_all_nodes_and_a_restart_writes_nothing() {
    let site = Site::new();
    site.a.ip("route add 10.9.2.0/26 via 192.0.2.254 proto 3 metric 9000");
    site.a.ip("route add blackhole 203.0.113.0/24 proto 80");
    let before = site.a.settled_listing();
    let mut state = desired(Encapsulation::CrossSubnet);
    let first = pass(&site.a, "a", &state);
    assert_eq!((first.rejected.len(), first.plan.unreachable.len()), (0, 0));
    let routes = site.a.ip("route show proto 116");
    for expected in [
        "blackhole 10.9.1.0/26 metric 7440",
        "10.9.2.0/26 via 192.0.2.2 dev eth0 metric 7440",
        "10.9.3.0/26  encap ip id 116 src 0.0.0.0 dst 198.51.100.3 ttl 0 tos 0 dev tg-vx scope link metric 7440",
    ] {
        assert!(routes.contains(expected), "{expected}: {routes}");
    }
    let routes = site.a.ip("-6 route show proto 116");
    for expected in
        ["blackhole fd09:1::/122", "fd09:2::/122  encap ip id 116", "fd09:3::/122  encap ip id 116"]
    {
        assert!(routes.contains(expected), "{expected}: {routes}");
    }
    assert!(site.a.ip("link show tg-vx").contains("mtu 1464"), "the tunnel leaves room for its headers");

    assert_eq!(pass(&site.a, "a", &state).writes, 0, "a new process recognizes its objects");

    // Routes that another program has removed or changed are repaired, each with one change.
    site.a.ip("route del 10.9.3.0/26 metric 7440");
    site.a.ip("route change blackhole 10.9.2.0/26 proto 116 metric 7440");
    site.a.ip("-6 route del fd09:2::/122 metric 7440");
    assert_eq!(pass(&site.a, "a", &state).writes, 3);
    site.a.ip("link set tg-vx down");
    assert!(pass(&site.a, "a", &state).writes > 0, "routes go with the device");
    assert_eq!(pass(&site.a, "a", &state).writes, 0);

    // A block moves from b to c, and the one of c goes: two changes in each family.
    for (moved, gone) in [("10.9.2.0/26", "10.9.3.0/26"), ("fd09:2::/122", "fd09:3::/122")] {
        state.blocks.get_mut(&moved.parse().unwrap()).unwrap().node = name("c");
        state.blocks.remove(&gone.parse().unwrap());
    }
    assert_eq!(pass(&site.a, "a", &state).writes, 4);
    assert!(site.a.ip("route show 10.9.2.0/26 proto 116").contains("dst 198.51.100.3"));

    assert!(site.a.inside(|| keeper::cleanup().unwrap()) >= 5);
    assert_eq!(site.a.settled_listing(), before);
}

/// Without encapsulation, a block in another subnet has no route of the agent, and the plan says so.
#[test]
fn without_encapsulation_a_node_in_another_subnet_is_left_to_the_routers() {
    let site = Site::new();
    let passed = pass(&site.a, "a", &desired(Encapsulation::None));
    let reason = |range: &str| passed.plan.unreachable.get(&range.parse().unwrap()).copied();
    assert_eq!(reason("10.9.3.0/26"), Some(Unreachable::OtherSubnet));
    assert_eq!(reason("fd09:3::/122"), Some(Unreachable::NoNodeAddress));
    assert_eq!(reason("10.9.2.0/26"), None);
    assert!(!site.a.ip("-o link").contains("tg-vx"));
}

/// A foreign route at the position of a route of the agent is reported, and not replaced.
#[test]
fn a_foreign_route_is_not_replaced() {
    let site = Site::new();
    site.a.ip("route add 10.9.2.0/26 via 192.0.2.254 proto 3 metric 7440");
    let passed = pass(&site.a, "a", &desired(Encapsulation::CrossSubnet));
    let rejected: Vec<_> = passed.rejected.into_iter().collect();
    assert_eq!(rejected, [("10.9.2.0/26".parse().unwrap(), nix::errno::Errno::EEXIST as i32)]);
    assert!(site.a.ip("route show 10.9.2.0/26").contains("via 192.0.2.254"));
    let lookup: IpAddr = "10.9.2.9".parse().unwrap();
    assert!(site.a.ip(&format!("route get {lookup}")).contains("via 192.0.2.254"));
}
