//! Tests of the BGP plan that concern peers: blocks of workload networks that they receive, and peers that leave.

use super::*;

/// F155: a block of a workload network is announced with the attributes and to the peers of its Advertisements,
/// also while the node is drained, and is withdrawn with its Advertisement.
#[test]
fn f155_blocks_are_announced_to_the_peers_of_their_advertisements_also_during_a_drain() {
    let block: IpNet = "10.64.0.64/26".parse().unwrap();
    let with = |by: &[&str], is_draining: bool| {
        let by: BTreeSet<Name> = by.iter().copied().map(name).collect();
        let blocks = if by.is_empty() { BTreeMap::new() } else { [(block, by)].into() };
        Some(Arc::new(BgpState { blocks, is_draining, ..bgp() }))
    };
    let mut plan = Plan::default();
    assert_eq!(after(&mut plan, |plan| plan.set_bgp(with(&["only-a"], false))), ["+a 10.64.0.64/26"]);
    assert_eq!(after(&mut plan, |plan| plan.set_bgp(with(&["only-a", "all"], false))), ["+b 10.64.0.64/26"]);
    assert_eq!(after(&mut plan, |plan| plan.set_bgp(with(&["all"], true))), [""; 0]);
    let changes = after(&mut plan, |plan| plan.set_bgp(with(&[], false)));
    assert_eq!(changes, ["-a 10.64.0.64/26", "-b 10.64.0.64/26"]);
    assert_eq!(say(&plan, "10.64.0.64/26"), "unknown");
}

/// If a peer is removed and added again, the plan lists the withdrawal and the announcement of its routes.
/// Both are needed, because the speaker may process the removal and the addition together.
#[test]
fn what_a_peer_that_goes_knows_is_taken_back() {
    let mut plan = plan(bgp());
    set(&mut plan, address("192.0.2.10", &[1], &["all"]));
    let mut without_b = bgp();
    without_b.peers.remove(&name("b"));
    let changes = after(&mut plan, |plan| plan.set_bgp(Some(Arc::new(without_b))));
    assert_eq!(changes, ["-b 192.0.2.10/32"]);
    assert_eq!(after(&mut plan, |plan| plan.set_bgp(Some(Arc::new(bgp())))), ["+b 192.0.2.10/32"]);
    let changes = after(&mut plan, |plan| plan.set_bgp(None));
    assert_eq!(changes, ["-a 192.0.2.10/32", "-b 192.0.2.10/32"]);
}
