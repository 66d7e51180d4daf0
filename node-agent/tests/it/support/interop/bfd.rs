//! Interoperability scenarios in which BFD monitors the path to a router.

use model::{
    bgp::report::BgpSessionState,
    kinds::bfd_profile::{BFD_MINIMUM_TTL_DEFAULT, BfdProfileSpec},
};

use super::{
    Kind, OUR_ASN, Ours, Stage, THEIR_ASN, VIP_V4, VIP_V6, neighbour, route,
    stage::{FAR_V4, FAR_V6},
    wait_established, wait_lost, wait_prefixes,
};
use crate::support::{
    bfd::{V4, V6},
    speakers::Peering,
};

/// Builds a BFD profile with an interval of 200 ms and Detect Mult ten, so that a busy machine causes no
/// failure. For BIRD, the minimum TTL is lower, because BIRD sends multihop packets with the default TTL.
fn profile(kind: Kind) -> BfdProfileSpec {
    BfdProfileSpec {
        receive_interval: 200,
        transmit_interval: 200,
        detect_multiplier: 10,
        minimum_ttl: if kind == Kind::Bird { 60 } else { BFD_MINIMUM_TTL_DEFAULT },
        ..BfdProfileSpec::default()
    }
}

/// BGP hold time in seconds, so long that only BFD can detect a failure during the test.
const HOLD_TIME: u16 = 600;

/// Checks that BFD ends the BGP session in two cases. If the router process is frozen, Tidegate reports the
/// reason, and the BFD and BGP sessions come up again when the router continues. If all packets are dropped,
/// the router ends its session and removes the routes. `is_far` selects a path with a hop in between.
pub fn failing(kind: Kind, is_far: bool) {
    let (v4, v6) = if is_far { (FAR_V4, FAR_V6) } else { (V4, V6) };
    for (addresses, test) in [(v4, "bfd4"), (v6, "bfd6")] {
        let test = format!("{test}{}", u8::from(is_far));
        let stage = if is_far { Stage::routed(kind, &test) } else { Stage::direct(kind, &test) };
        let peering = Peering {
            bfd: Some(700),
            hold_time: HOLD_TIME,
            hops: is_far.then_some(5),
            ..Peering::new(addresses.1, addresses.0, OUR_ASN)
        };
        let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
        let mut how = neighbour(addresses.1, THEIR_ASN);
        how.bfd = Some(profile(kind));
        how.hold_time = HOLD_TIME;
        if is_far {
            how.ttl = 5;
        }
        let ours = Ours::start(&stage.ours, &[("tor", how)]);
        ours.announce(&[VIP_V4, VIP_V6], &route(&[]));
        wait_prefixes(&router, &[VIP_V4, VIP_V6]);
        let is_up = |text: &String| text.to_lowercase().contains("up");
        ours.wait("tor", "BFD up", |session| session.bfd.as_ref().is_some_and(is_up));

        router.freeze();
        let fallen = ours.wait("tor", "down", |session| session.state != BgpSessionState::Established);
        assert!(fallen.reason.contains("BFD"), "{fallen:#?}");
        router.thaw();
        ours.wait_established("tor");
        wait_established(&router, addresses.0);
        wait_prefixes(&router, &[VIP_V4, VIP_V6]);
        ours.wait("tor", "BFD up again", |session| session.bfd.as_ref().is_some_and(is_up));

        // All links stay up: only BFD can detect the failure.
        stage.cut(true);
        wait_lost(&router, addresses.0);
        wait_prefixes(&router, &[]);
        stage.cut(false);
        wait_established(&router, addresses.0);
        wait_prefixes(&router, &[VIP_V4, VIP_V6]);
    }
}
