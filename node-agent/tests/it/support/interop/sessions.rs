//! Interoperability scenarios about sessions with a router: how they are established, and the reported
//! reasons if they are not.

use std::{thread, time::Duration};

use model::{
    bgp::{report::BgpSessionState, settings::BgpRemote},
    kinds::bgp_peer::PeerAsn,
};

use super::{
    Kind, OUR_ASN, Ours, Stage, THEIR_ASN, VIP_V4, VIP_V6, linger, neighbour,
    ours::secret,
    route,
    stage::{FAR_V4, FAR_V6},
    wait_established, wait_prefixes,
};
use crate::support::{
    bfd::{V4, V6},
    speakers::{Peer, Peering},
};

/// Checks MD5 passwords. If they differ, no packet is accepted, and the reported reason names the probable
/// cause. If they are equal, the session is established.
pub fn passwords(kind: Kind) {
    for (addresses, test) in [(V4, "md4"), (V6, "md6")] {
        let stage = Stage::direct(kind, test);
        let peering = Peering {
            password: Some("open-sesame".to_owned()),
            ..Peering::new(addresses.1, addresses.0, OUR_ASN)
        };
        let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
        let mut how = neighbour(addresses.1, THEIR_ASN);
        how.password = secret("open-barley");
        let mut ours = Ours::start(&stage.ours, &[("tor", how)]);
        ours.announce(&[VIP_V4], &route(&[]));
        ours.wait("tor", "a hint at the password", |session| {
            session.state != BgpSessionState::Established && session.reason.contains("password mismatch?")
        });
        assert!(!router.session(addresses.0).is_established());
        ours.change("tor", |how| how.password = secret("open-sesame"));
        ours.wait_established("tor");
        wait_established(&router, addresses.0);
        wait_prefixes(&router, &[VIP_V4]);
    }
}

/// Checks that a session is established if one side is passive and the other side connects, with either side
/// as the passive one.
pub fn passive(kind: Kind) {
    for is_ours in [true, false] {
        let stage = Stage::direct(kind, if is_ours { "pas-o" } else { "pas-t" });
        let peering = Peering { is_passive: !is_ours, ..Peering::new(V4.1, V4.0, OUR_ASN) };
        let mut how = neighbour(V4.1, THEIR_ASN);
        how.passive = is_ours;
        let ours = Ours::start(&stage.ours, &[("tor", how)]);
        if is_ours {
            ours.wait("tor", "waiting", |session| session.reason.contains("passive"));
        }
        let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
        ours.announce(&[VIP_V4], &route(&[]));
        wait_established(&router, V4.0);
        wait_prefixes(&router, &[VIP_V4]);
        // The passive side has port 179.
        let connections = stage.connections();
        let [connection] = &connections[..] else { panic!("one connection: {connections:?}") };
        let waits = if is_ours { V4.0 } else { V4.1 };
        assert!(connection.contains(&format!("{waits}:179")), "{connection}");
    }
}

/// Checks that a session over several hops is established, over IPv4 and over IPv6.
pub fn far_away(kind: Kind) {
    for (addresses, test) in [(FAR_V4, "far4"), (FAR_V6, "far6")] {
        let stage = Stage::routed(kind, test);
        let peering = Peering { hops: Some(5), ..Peering::new(addresses.1, addresses.0, OUR_ASN) };
        let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
        let mut how = neighbour(addresses.1, THEIR_ASN);
        how.ttl = 5;
        let ours = Ours::start(&stage.ours, &[("core", how)]);
        ours.announce(&[VIP_V4, VIP_V6], &route(&[]));
        wait_established(&router, addresses.0);
        wait_prefixes(&router, &[VIP_V4, VIP_V6]);
        let next_hops = |prefix: &str| router.table()[prefix].next_hops[0].clone();
        // If both support it, IPv4 routes have IPv6 next hops (RFC 8950).
        let is_extended = kind == Kind::GoBgp && addresses == FAR_V6;
        let v4 = if is_extended { FAR_V6.0 } else { FAR_V4.0 };
        assert_eq!([next_hops(VIP_V4), next_hops(VIP_V6)], [v4, FAR_V6.0]);
    }
}

/// Checks GTSM (RFC 5082). If both sides use it, the session is established. If only Tidegate uses it,
/// packets from the router are dropped until GTSM is disabled.
pub fn near_only(kind: Kind) {
    let stage = Stage::direct(kind, "gtsm");
    let peering = Peering { has_gtsm: true, ..Peering::new(V4.1, V4.0, OUR_ASN) };
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
    let mut how = neighbour(V4.1, THEIR_ASN);
    how.ttl_security = Some(1);
    let ours = Ours::start(&stage.ours, &[("tor", how.clone())]);
    ours.announce(&[VIP_V4], &route(&[]));
    wait_established(&router, V4.0);
    wait_prefixes(&router, &[VIP_V4]);

    let stage = Stage::direct(kind, "gtsm-o");
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![Peering::new(V4.1, V4.0, OUR_ASN)]);
    let mut ours = Ours::start(&stage.ours, &[("tor", how)]);
    ours.announce(&[VIP_V4], &route(&[]));
    linger();
    let sessions = ours.sessions("tor");
    assert!(sessions.iter().all(|session| session.established == 0), "{sessions:#?}");
    assert!(!router.session(V4.0).is_established());
    // The same router without it on our side. A new process: others wait for minutes for a response on a
    // half-established connection.
    drop(router);
    ours.change("tor", |how| how.ttl_security = None);
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![Peering::new(V4.1, V4.0, OUR_ASN)]);
    ours.wait_established("tor");
    wait_established(&router, V4.0);
    wait_prefixes(&router, &[VIP_V4]);
}

/// Checks that Tidegate accepts dynamic neighbors from a network, all with the same password.
pub fn guests(kind: Kind) {
    let stage = Stage::direct(kind, "guest");
    let mut how = neighbour(V4.1, THEIR_ASN);
    how.remote = BgpRemote::Network { network: "192.0.2.0/24".parse().unwrap(), limit: 4 };
    how.peer_asn = PeerAsn::External;
    how.password = secret("open-sesame");
    how.passive = true;
    let ours = Ours::start(&stage.ours, &[("racks", how)]);
    ours.announce(&[VIP_V4, VIP_V6], &route(&[]));
    let peering = Peering { password: Some("open-sesame".to_owned()), ..Peering::new(V4.1, V4.0, OUR_ASN) };
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
    wait_established(&router, V4.0);
    wait_prefixes(&router, &[VIP_V4, VIP_V6]);
    let session = ours.wait_established("racks");
    assert_eq!((session.address, session.remote_asn), (Some(V4.1.parse().unwrap()), Some(THEIR_ASN)));
    // Its routes change like those of other neighbors.
    ours.withdraw(&[VIP_V4]);
    wait_prefixes(&router, &[VIP_V6]);
}

/// Checks that the router accepts Tidegate as a dynamic neighbor.
pub fn as_guest(kind: Kind) {
    let stage = Stage::direct(kind, "range");
    let peering = Peering {
        peer: Peer::Network("192.0.2.0/24".to_owned()),
        is_passive: true,
        ..Peering::new(V4.1, V4.0, OUR_ASN)
    };
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
    let ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
    ours.announce(&[VIP_V4], &route(&[]));
    wait_established(&router, V4.0);
    wait_prefixes(&router, &[VIP_V4]);
}

/// Checks a connection collision: if both sides connect before either receives an OPEN, one of the two
/// connections is kept, and the session stays established. Returns the number of rounds in which there were
/// two connections.
pub fn collision(kind: Kind) -> usize {
    let mut collisions = 0;
    for round in 0..3u8 {
        let stage = Stage::direct(kind, &format!("coll{round}"));
        stage.hush(true);
        let router = kind.start(&stage.theirs, THEIR_ASN, vec![Peering::new(V4.1, V4.0, OUR_ASN)]);
        let ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
        ours.announce(&[VIP_V4], &route(&[]));
        // Not every router accepts a connection while it waits for a response on its own one.
        let looks = (0..250).map(|_| {
            thread::sleep(Duration::from_millis(20));
            stage.connections().len()
        });
        collisions += usize::from(looks.into_iter().any(|count| count == 2));
        stage.hush(false);
        let before = wait_established(&router, V4.0);
        ours.wait_established("tor");
        wait_prefixes(&router, &[VIP_V4]);
        linger();
        assert_eq!(router.session(V4.0).incarnation, before.incarnation, "round {round}: the session stays");
        let connections = stage.connections();
        assert_eq!(connections.len(), 1, "round {round}: {connections:?}");
    }
    collisions
}

/// Checks that the Hold Timer ends the session when the router is frozen, and that the session is established
/// again when the router continues.
pub fn silence(kind: Kind) {
    let stage = Stage::direct(kind, "mute");
    let peering = Peering { hold_time: 3, ..Peering::new(V4.1, V4.0, OUR_ASN) };
    let router = kind.start(&stage.theirs, THEIR_ASN, vec![peering]);
    let ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
    ours.announce(&[VIP_V4], &route(&[]));
    wait_established(&router, V4.0);
    let negotiated = ours.wait_established("tor").negotiated.unwrap();
    assert_eq!((negotiated.hold_time, negotiated.keepalive_time), (3, 1), "the smaller of both");
    wait_prefixes(&router, &[VIP_V4]);
    router.freeze();
    ours.wait("tor", "the end of the hold time", |session| {
        let sent = session.last_sent.as_ref().map(|error| (error.code, error.subcode));
        session.state != BgpSessionState::Established && sent == Some((4, 0))
    });
    router.thaw();
    ours.wait_established("tor");
    wait_established(&router, V4.0);
    wait_prefixes(&router, &[VIP_V4]);
}

/// Checks that the reported reason contains both AS numbers if the router's AS number is not the configured
/// one.
pub fn wrong_as(kind: Kind) {
    let stage = Stage::direct(kind, "as");
    let router = kind.start(&stage.theirs, THEIR_ASN + 1, vec![Peering::new(V4.1, V4.0, OUR_ASN)]);
    let mut ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
    ours.wait("tor", "the two AS numbers", |session| {
        let names = |asn: u32| session.reason.contains(&asn.to_string());
        session.state != BgpSessionState::Established && names(THEIR_ASN) && names(THEIR_ASN + 1)
    });
    ours.change("tor", |how| how.peer_asn = PeerAsn::External);
    ours.wait_established("tor");
    wait_established(&router, V4.0);
}
