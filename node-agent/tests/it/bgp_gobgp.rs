//! Interoperability tests of Tidegate's BGP with `GoBGP`, in network namespaces; assertions use the routes
//! and sessions as reported by `GoBGP`. The features of each router are listed in `bgp_frr.rs`.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test's helpers are tests")]

use crate::support::interop::{Kind, restarts, routes, sessions};

const KIND: Kind = Kind::GoBgp;

#[test]
fn f126_gobgp_of_another_as_has_the_routes_with_their_attributes_and_loses_withdrawn_ones() {
    routes::attributes(KIND, false);
}

#[test]
fn f126_gobgp_of_our_as_has_the_routes_with_their_attributes_and_loses_withdrawn_ones() {
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
fn gobgp_is_taken_as_a_dynamic_neighbour() {
    sessions::guests(KIND);
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
fn gobgp_takes_us_as_a_dynamic_neighbour() {
    sessions::as_guest(KIND);
}

#[test]
fn of_two_connections_made_at_once_one_is_left() {
    sessions::collision(KIND);
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
