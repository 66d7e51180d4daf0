//! Interoperability tests of Tidegate's BGP with FRR's `bgpd`, in network namespaces; assertions use the
//! routes and sessions as reported by FRR.
//!
//! Features that the tests of each router cover; `no` means that the router lacks the feature.
//!
//! | scenario | FRR 8.4 | BIRD 2.0 | `GoBGP` 3.10 | `ExaBGP` 4.2 |
//! |---|---|---|---|---|
//! | routes, attributes, password, passive, collision, multihop | yes | yes | yes | yes |
//! | router requests a route refresh | yes | yes | no: reuses its stored routes | yes |
//! | GTSM | yes | yes | yes | yes |
//! | router keeps routes during a Graceful Restart | yes | yes | yes | no: has no routing table |
//! | BFD, single hop and multihop | yes | yes (multihop needs `minimumTtl` below 64) | no | no |
//! | router accepts Tidegate as a dynamic neighbor | yes | yes | yes | no |
//! | unnumbered session | yes | no | not tested | no |

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use model::bgp::report::BgpSessionState;

use crate::support::{
    self,
    bfd::{V4, eventually},
    interop::{
        Kind, OUR_ASN, Ours, Stage, THEIR_ASN, VIP_V4, bfd, neighbour, restarts, route, routes, sessions,
        wait_established, wait_prefixes,
    },
    speakers::{Frr, Peering, Router, Settings},
};

const KIND: Kind = Kind::Frr;

#[test]
fn f126_frr_of_another_as_has_the_routes_with_their_attributes_and_loses_withdrawn_ones() {
    routes::attributes(KIND, false);
}

#[test]
fn f126_frr_of_our_as_has_the_routes_with_their_attributes_and_loses_withdrawn_ones() {
    routes::attributes(KIND, true);
}

#[test]
fn prefixes_of_every_length_arrive() {
    routes::lengths(KIND);
}

#[test]
fn thousands_of_prefixes_arrive_in_few_messages() {
    routes::many(KIND);
}

#[test]
fn a_refresh_brings_everything_again_on_the_same_session() {
    routes::refresh(KIND);
}

#[test]
fn only_the_right_password_gets_through_and_a_wrong_one_is_hinted_at() {
    sessions::passwords(KIND);
}

#[test]
fn either_side_may_wait_for_the_other() {
    sessions::passive(KIND);
}

#[test]
fn a_session_over_several_hops_carries_routes() {
    sessions::far_away(KIND);
}

#[test]
fn gtsm_is_kept_on_both_sides() {
    sessions::near_only(KIND);
}

#[test]
fn frr_is_taken_as_a_dynamic_neighbour() {
    sessions::guests(KIND);
}

#[test]
fn frr_takes_us_as_a_dynamic_neighbour() {
    sessions::as_guest(KIND);
}

#[test]
fn of_two_connections_made_at_once_one_is_left() {
    assert_eq!(sessions::collision(KIND), 3, "FRR accepts a second connection");
}

#[test]
fn a_silent_router_is_given_up_after_the_hold_time_and_taken_back() {
    sessions::silence(KIND);
}

#[test]
fn another_as_than_expected_is_named() {
    sessions::wrong_as(KIND);
}

#[test]
fn a_restart_loses_no_route() {
    restarts::graceful(KIND);
}

#[test]
fn leaving_for_good_takes_the_routes_along_at_once() {
    restarts::shutdown(KIND);
}

#[test]
fn without_graceful_restart_routes_go_with_the_session() {
    restarts::ungraceful(KIND);
}

#[test]
fn bfd_ends_sessions_over_one_link_on_both_sides() {
    bfd::failing(KIND, false);
}

#[test]
fn bfd_ends_sessions_over_a_hop_on_both_sides() {
    bfd::failing(KIND, true);
}

/// Both sides receive the shutdown message and the host name of the other side.
#[test]
fn words_and_names_go_both_ways() {
    let stage = Stage::direct(KIND, "words");
    let settings = Settings {
        asn: THEIR_ASN,
        router_id: "192.0.2.2".to_owned(),
        peerings: vec![Peering::new(V4.1, V4.0, OUR_ASN)],
    };
    let frr = Frr::bgpd(stage.theirs.name(), &settings);
    let ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
    ours.announce(&[VIP_V4], &route(&[]));
    let session = ours.wait_established("tor");
    assert!(session.host_name.is_some(), "{session:#?}");
    let shows = || frr.session(V4.0).whole.contains("node1");
    eventually("our name", shows, || frr.session(V4.0).whole);

    let router = format!("router bgp {THEIR_ASN}");
    let shut = format!("neighbor {} shutdown message line card is swapped", V4.0);
    frr.configure(&[&router, &shut]);
    let fallen = ours.wait("tor", "their words", |session| {
        let said = session.last_received.as_ref();
        session.state != BgpSessionState::Established
            && said.is_some_and(|error| error.message.contains("line card is swapped"))
    });
    assert!(
        fallen.reason.contains("line card is swapped") || fallen.reason.contains("refused"),
        "{fallen:#?}"
    );
    frr.configure(&[&router, &format!("no neighbor {} shutdown", V4.0)]);
    ours.wait_established("tor");
}

/// FRR in the provider role accepts Tidegate as a customer. If both sides are providers, each side rejects
/// the session (RFC 9234).
#[test]
fn roles_must_fit() {
    use model::kinds::bgp_peer::BgpRole;
    let stage = Stage::direct(KIND, "roles");
    let settings = Settings {
        asn: THEIR_ASN,
        router_id: "192.0.2.2".to_owned(),
        peerings: vec![Peering::new(V4.1, V4.0, OUR_ASN)],
    };
    let frr = Frr::bgpd(stage.theirs.name(), &settings);
    frr.configure(&[
        &format!("router bgp {THEIR_ASN}"),
        &format!("neighbor {} local-role provider strict-mode", V4.0),
    ]);
    let mut how = neighbour(V4.1, THEIR_ASN);
    how.role = Some(BgpRole::Provider);
    let mut ours = Ours::start(&stage.ours, &[("tor", how)]);
    ours.announce(&[VIP_V4], &route(&[]));
    ours.wait("tor", "a role that does not fit", |session| {
        let errors = [&session.last_sent, &session.last_received];
        let is_mismatch = errors.into_iter().flatten().any(|error| (error.code, error.subcode) == (2, 11));
        session.state != BgpSessionState::Established && is_mismatch
    });
    ours.change("tor", |how| how.role = Some(BgpRole::Customer));
    ours.wait_established("tor");
    let shows = || frr.session(V4.0).is_established() && frr.table().contains_key(VIP_V4);
    eventually("the route", shows, || frr.session(V4.0).whole);
    let whole = frr.session(V4.0).whole;
    assert!(whole.contains("\"remoteRole\":\"customer\""), "{whole}");
}

/// On a link that has only link-local addresses, both sides discover each other by Router Advertisements, and
/// IPv4 routes have IPv6 next hops.
#[test]
fn an_unnumbered_link_carries_routes_of_both_families() {
    use model::bgp::settings::BgpRemote;
    use support::{interop::VIP_V6, speakers::Peer};
    let stage = Stage::unnumbered(KIND, "unnum");
    let peering = Peering {
        peer: Peer::Interface("eth0".to_owned()),
        has_extended_next_hop: true,
        ..Peering::new("", "", OUR_ASN)
    };
    let router = KIND.start(&stage.theirs, THEIR_ASN, vec![peering]);
    let mut how = neighbour(V4.1, THEIR_ASN);
    how.remote = BgpRemote::Interface("eth0".to_owned().try_into().unwrap());
    let ours = Ours::start(&stage.ours, &[("tor", how)]);
    ours.announce(&[VIP_V4, VIP_V6], &route(&[]));
    ours.wait_established("tor");
    wait_established(&router, "eth0");
    wait_prefixes(&router, &[VIP_V4, VIP_V6]);
    let table = router.table();
    for prefix in [VIP_V4, VIP_V6] {
        assert!(table[prefix].next_hops.iter().all(|hop| hop.starts_with("fe80:")), "{table:#?}");
    }
}
