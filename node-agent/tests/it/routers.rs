//! Tests of the helpers for third-party routers in the BGP interoperability tests: the table parsed from one
//! router must match the announcements of another.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use std::collections::BTreeMap;

use crate::support::{
    bfd::{Pair, V4, V6, eventually},
    interop::Kind,
    speakers::{Bird, ExaBgp, Frr, GoBgp, Kept, Peer, Peering, Route, Router, Settings},
};

const VIP_V4: &str = "198.51.100.7/32";
const VIP_V6: &str = "2001:db8:7::7/128";
const OUR_ASN: u32 = 4_200_000_001;
const THEIR_ASN: u32 = 4_200_000_002;

/// Configuration of BIRD as the announcing router, with two prefixes.
const SOURCE: &str = "log stderr all;
router id 192.0.2.1;
protocol device {}
protocol static { ipv4; route 198.51.100.7/32 blackhole; }
protocol static { ipv6; route 2001:db8:7::7/128 blackhole; }
filter tell {
  bgp_path.prepend(4200000001);
  bgp_med = 50;
  bgp_community.add((65000,100));
  bgp_large_community.add((65000,1,2));
  bgp_ext_community.add((rt,65000,100));
  accept;
}
protocol bgp {
  local 192.0.2.1 as 4200000001; neighbor 192.0.2.2 as 4200000002; direct;
  connect delay time 1; connect retry time 1; error wait time 1, 2;
  ipv4 { import none; export filter tell; next hop self; };
  ipv6 { import none; export filter tell; next hop self; };
}
";

fn settings() -> Settings {
    let peerings = vec![Peering::new(V4.1, V4.0, OUR_ASN)];
    Settings { asn: THEIR_ASN, router_id: "192.0.2.2".to_owned(), peerings }
}

fn expected() -> BTreeMap<String, Route> {
    let route = |next_hop: &str| Route {
        origin: "igp".to_owned(),
        as_path: vec![OUR_ASN; 2],
        next_hops: vec![next_hop.to_owned()],
        med: Some(50),
        local_pref: None,
        communities: ["65000:100", "large:65000:1:2", "rt:65000:100"].map(str::to_owned).into(),
        is_atomic_aggregate: false,
    };
    [(VIP_V4.to_owned(), route(V4.0)), (VIP_V6.to_owned(), route(V6.0))].into()
}

/// Returns the routes of a router, without the attributes that the router itself adds.
fn seen(router: &dyn Router) -> BTreeMap<String, Route> {
    let mut table = router.table();
    for route in table.values_mut() {
        // On one link, a link-local next hop may accompany the global one (RFC 2545 §3), and ExaBGP shows only the second.
        route.next_hops.truncate(1);
        if route.next_hops[0].starts_with("fe80:") {
            route.next_hops = vec![V6.0.to_owned()];
        }
        route.local_pref = None;
    }
    table
}

/// Checks a router that receives routes from `bird`, the announcing router: its table and its sessions, which
/// it must lose when BIRD ends. `asks_again` is true if the router can request a route refresh.
fn follow(router: &dyn Router, asks_again: bool, bird: Bird) {
    let shown = || format!("{:#?}\n{}\n{}", seen(router), router.session(V4.0).whole, router.log());
    eventually("established", || router.session(V4.0).is_established(), shown);
    eventually("the routes", || seen(router) == expected(), shown);
    let kept = router.prefixes();
    assert!(kept.len() == 2 && kept.values().all(|kept| *kept == Kept::Announced), "{kept:?}");
    let before = router.session(V4.0);
    assert!(before.updates >= 2, "{}", before.whole);
    if asks_again {
        router.ask_again(V4.0);
        eventually("both once more", || router.session(V4.0).updates >= before.updates + 2, shown);
        assert_eq!(router.session(V4.0).incarnation, before.incarnation);
    }
    bird.birdc(&["disable", "bgp1"]);
    eventually("lost", || !router.session(V4.0).is_established(), shown);
    eventually("no routes", || router.prefixes().is_empty(), shown);
    bird.birdc(&["enable", "bgp1"]);
    eventually("established again", || router.session(V4.0).is_established(), shown);
    assert_ne!(router.session(V4.0).incarnation, before.incarnation);
}

#[test]
fn frr_shows_what_bird_announces() {
    let pair = Pair::new("rt-frr");
    let frr = Frr::bgpd(pair.theirs.name(), &settings());
    follow(&frr, true, Bird::start(pair.ours.name(), SOURCE));
}

#[test]
fn gobgp_shows_what_bird_announces() {
    let pair = Pair::new("rt-gobgp");
    let gobgp = GoBgp::start(pair.theirs.name(), &settings());
    follow(&gobgp, false, Bird::start(pair.ours.name(), SOURCE));
}

#[test]
fn exabgp_shows_what_bird_announces() {
    let pair = Pair::new("rt-exabgp");
    let exabgp = ExaBgp::start(pair.theirs.name(), &settings());
    follow(&exabgp, true, Bird::start(pair.ours.name(), SOURCE));
}

#[test]
fn bird_shows_what_frr_announces() {
    let pair = Pair::new("rt-bird");
    let ours = Settings {
        asn: OUR_ASN,
        router_id: "192.0.2.1".to_owned(),
        peerings: vec![Peering::new(V4.0, V4.1, THEIR_ASN)],
    };
    let frr = Frr::bgpd(pair.ours.name(), &ours);
    frr.configure(&[
        "route-map tell permit 10",
        "set metric 50",
        "set community 65000:100",
        "set large-community 65000:1:2",
        "set extcommunity rt 65000:100",
        "set as-path prepend 4200000001",
        "exit",
        "router bgp 4200000001",
        "no bgp network import-check",
        "address-family ipv4 unicast",
        &format!("network {VIP_V4}"),
        "neighbor 192.0.2.2 route-map tell out",
        "exit-address-family",
        "address-family ipv6 unicast",
        &format!("network {VIP_V6}"),
        "neighbor 192.0.2.2 route-map tell out",
    ]);
    let bird = Bird::bgp(pair.theirs.name(), &settings());
    let shown = || format!("{:#?}\n{}\n{}", seen(&bird), bird.session(V4.0).whole, bird.log());
    eventually("the routes", || seen(&bird) == expected(), shown);
    let before = bird.session(V4.0);
    assert!(before.is_established() && before.updates >= 2, "{before:#?}");
    bird.ask_again(V4.0);
    eventually("both once more", || bird.session(V4.0).updates >= before.updates + 2, shown);
    frr.configure(&["router bgp 4200000001", "neighbor 192.0.2.2 shutdown"]);
    eventually("no routes", || bird.table().is_empty() && !bird.session(V4.0).is_established(), shown);
    frr.configure(&["router bgp 4200000001", "no neighbor 192.0.2.2 shutdown"]);
    eventually("established again", || bird.session(V4.0).is_established(), shown);
    assert_ne!(bird.session(V4.0).incarnation, before.incarnation);
}

/// FRR and each other router establish a session if both sides have the same setting, such as a password, and
/// if one side only accepts connections.
#[test]
fn settings_mean_the_same_to_all_routers() {
    type Change = fn(&mut Peering);
    let all = [Kind::Frr, Kind::Bird, Kind::GoBgp, Kind::ExaBgp];
    let with_bfd = [Kind::Frr, Kind::Bird];
    let with_guests = [Kind::Frr, Kind::Bird, Kind::GoBgp];
    let settings: [(&str, &[Kind], Change); 7] = [
        ("key", &all, |peering| peering.password = Some("open-sesame".to_owned())),
        ("near", &all, |peering| peering.has_gtsm = true),
        ("far", &all, |peering| peering.hops = Some(5)),
        ("wait", &all, |peering| peering.is_passive = true),
        ("keep", &all, |peering| peering.keeps_routes = true),
        ("bfd", &with_bfd, |peering| peering.bfd = Some(300)),
        ("range", &with_guests, |peering| peering.peer = Peer::Network("192.0.2.0/24".to_owned())),
    ];
    for (setting, kinds, change) in settings {
        for kind in kinds {
            let pair = Pair::new(&format!("rs-{}{setting}", kind.word()));
            let mut ours = Peering::new(V4.0, V4.1, THEIR_ASN);
            let mut theirs = Peering::new(V4.1, V4.0, OUR_ASN);
            change(&mut theirs);
            // Only one side may be passive.
            if !["wait", "range"].contains(&setting) {
                change(&mut ours);
            }
            let ours = Settings { asn: OUR_ASN, router_id: "192.0.2.1".to_owned(), peerings: vec![ours] };
            let frr = Frr::bgpd(pair.ours.name(), &ours);
            let router = kind.start(&pair.theirs, THEIR_ASN, vec![theirs]);
            let what = format!("{setting}: FRR and {kind:?}");
            let shown = || format!("{}\n{}\n{}", frr.session(V4.1).whole, frr.log(), router.log());
            let is_up = || frr.session(V4.1).is_established() && router.session(V4.0).is_established();
            eventually(&what, is_up, shown);
            if setting == "bfd" {
                eventually(&what, || frr.bfd_peer(V4.1)["status"] == "up", || frr.bfd_peer(V4.1).to_string());
            }
        }
    }
}
