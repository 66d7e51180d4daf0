//! Interoperability scenarios about routes that a router receives from Tidegate.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AnyRouter, Kind, OUR_ASN, Ours, Route, Stage, THEIR_ASN, VIP_V4, VIP_V6, linger, neighbour, route,
    wait_established, wait_prefixes, wait_table,
};
use crate::support::{
    bfd::{V4, V6, eventually},
    speakers::Peering,
};

/// Communities of every kind, except an unknown extended community, which not every router shows.
const COMMUNITIES: [&str; 9] = [
    "65000:100",
    "0:1",
    "no-export",
    "graceful-shutdown",
    "large:65000:1:2",
    "large:4200000001:4294967295:0",
    "rt:65000:100",
    "rt:192.0.2.9:7",
    "soo:4200000001:9",
];

/// Starts a router of this kind and Tidegate's speaker, with one session between `addresses`, Tidegate's and
/// the router's. `asn` is the AS number of the router.
pub fn meet(kind: Kind, stage: &Stage, addresses: (&str, &str), asn: u32) -> (AnyRouter, Ours) {
    let router = kind.start(&stage.theirs, asn, vec![Peering::new(addresses.1, addresses.0, OUR_ASN)]);
    let ours = Ours::start(&stage.ours, &[("tor", neighbour(addresses.1, asn))]);
    (router, ours)
}

/// Checks that the router has exactly the attributes of the announced routes, over IPv4 and over IPv6. A
/// change of a route takes one message, and withdrawn routes are removed. `is_internal` selects a router with
/// the same AS number (iBGP).
pub fn attributes(kind: Kind, is_internal: bool) {
    let asn = if is_internal { OUR_ASN } else { THEIR_ASN };
    for (addresses, test) in [(V4, "at4"), (V6, "at6")] {
        let stage = Stage::direct(kind, &format!("{test}{}", u8::from(is_internal)));
        let (router, ours) = meet(kind, &stage, addresses, asn);
        let full =
            bgp::export::Route { med: Some(50), local_pref: Some(300), prepend: 2, ..route(&COMMUNITIES) };
        ours.announce(&[VIP_V4, VIP_V6], &full);
        ours.announce(&["203.0.113.0/24"], &route(&[]));
        let before = wait_established(&router, addresses.0);
        // If both support it, IPv4 routes have IPv6 next hops over IPv6 (RFC 8950).
        let v4 = if kind == Kind::GoBgp && addresses == V6 { V6.0 } else { V4.0 };
        let seen_full = |next_hop: &str| Route {
            origin: "igp".to_owned(),
            as_path: if is_internal { vec![] } else { vec![OUR_ASN; 3] },
            next_hops: vec![next_hop.to_owned()],
            med: Some(50),
            local_pref: is_internal.then_some(300),
            communities: COMMUNITIES.map(str::to_owned).into(),
            is_atomic_aggregate: false,
        };
        let mut seen: BTreeMap<String, Route> = [
            (VIP_V4.to_owned(), seen_full(v4)),
            (VIP_V6.to_owned(), seen_full(V6.0)),
            (
                "203.0.113.0/24".to_owned(),
                Route {
                    as_path: if is_internal { vec![] } else { vec![OUR_ASN] },
                    med: None,
                    local_pref: is_internal.then_some(100),
                    communities: BTreeSet::new(),
                    ..seen_full(v4)
                },
            ),
        ]
        .into();
        wait_seen(kind, &router, is_internal, &seen);

        // One of them changes: one message on the same session. End-of-RIB markers count as messages too.
        assert_eq!(ours.told("tor").len(), 3, "{:?}", ours.told("tor"));
        linger();
        let updates = router.session(addresses.0).updates;
        ours.announce(&[VIP_V6], &bgp::export::Route { med: Some(7), ..full.clone() });
        seen.get_mut(VIP_V6).unwrap().med = Some(7);
        wait_seen(kind, &router, is_internal, &seen);
        let session = router.session(addresses.0);
        assert_eq!(session.updates, updates + 1, "{}", session.whole);

        // Unchanged routes are not announced again; withdrawn ones disappear one by one.
        ours.announce(&[VIP_V6], &bgp::export::Route { med: Some(7), ..full });
        for (gone, count) in [(VIP_V4, 2), ("203.0.113.0/24", 3), (VIP_V6, 4)] {
            ours.withdraw(&[gone]);
            seen.remove(gone);
            wait_seen(kind, &router, is_internal, &seen);
            assert_eq!(router.session(addresses.0).updates, updates + count);
        }
        assert_eq!(router.session(addresses.0).incarnation, before.incarnation, "no session was reset");
    }
}

/// Waits until the router has the routes `expected`, as [`wait_table`] does, but compares only the first next
/// hop of each route. Does not compare the local preference of routes from an external peer, because the
/// router chooses it.
fn wait_seen(kind: Kind, router: &AnyRouter, is_internal: bool, expected: &BTreeMap<String, Route>) {
    let seen = || {
        let mut table = router.table();
        for route in table.values_mut() {
            // On one link, a link-local next hop may accompany the global one (RFC 2545 §3).
            route.next_hops.truncate(1);
            // ExaBGP shows only the second of two.
            if kind == Kind::ExaBgp && route.next_hops[0].starts_with("fe80:") {
                route.next_hops = vec![V6.0.to_owned()];
            }
            if !is_internal {
                route.local_pref = None;
            }
        }
        table
    };
    let shown = || format!("expected {expected:#?}\nhas {:#?}\n{}", seen(), router.log());
    eventually("the routes", || seen() == *expected, shown);
}

/// Checks that a range of addresses is announced as one prefix, and that prefixes of every length arrive at
/// the router.
pub fn lengths(kind: Kind) {
    let stage = Stage::direct(kind, "len");
    let (router, ours) = meet(kind, &stage, V4, THEIR_ASN);
    let prefixes = [
        "198.51.100.0/22",
        "198.51.100.128/25",
        "198.51.101.0/24",
        "198.51.101.1/32",
        "11.0.0.0/8",
        "128.0.0.0/1",
        "2001:db8:a::/48",
        "2001:db8:b::/49",
        "2001:db8:c::/127",
        "2001:db8:d::1/128",
        "4000::/2",
    ];
    ours.announce(&prefixes, &route(&[]));
    wait_prefixes(&router, &prefixes);
}

/// Checks that five thousand prefixes arrive at the router in few messages, and that all of them are
/// withdrawn at once.
pub fn many(kind: Kind) {
    const COUNT: u32 = 5000;
    let stage = Stage::direct(kind, "many");
    let (router, ours) = meet(kind, &stage, V4, THEIR_ASN);
    let prefixes: Vec<_> =
        (0..COUNT).map(|number| format!("10.20.{}.{}/32", number / 250, number % 250)).collect();
    let prefixes: Vec<_> = prefixes.iter().map(String::as_str).collect();
    ours.announce(&prefixes, &route(&["65000:1"]));
    wait_prefixes(&router, &prefixes);
    if kind != Kind::Bird {
        let session = router.session(V4.0);
        assert!(session.updates <= 50, "few messages: {}", session.whole);
    }
    ours.withdraw(&prefixes);
    wait_prefixes(&router, &[]);
}

/// Checks that the router receives all routes again in the same session after it has sent a route refresh
/// request.
pub fn refresh(kind: Kind) {
    let stage = Stage::direct(kind, "ref");
    let (router, ours) = meet(kind, &stage, V4, THEIR_ASN);
    ours.announce(&[VIP_V4, VIP_V6], &route(&["65000:1"]));
    wait_prefixes(&router, &[VIP_V4, VIP_V6]);
    let before = router.session(V4.0);
    let table = router.table();
    router.ask_again(V4.0);
    let more = || router.session(V4.0).updates >= before.updates + 2;
    eventually("both routes once more", more, || format!("{}\n{}", router.session(V4.0).whole, router.log()));
    linger();
    assert_eq!(router.session(V4.0).incarnation, before.incarnation, "the session goes on");
    wait_table(&router, &table);
}
