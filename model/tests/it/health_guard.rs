//! Properties of the health guard: the budgets of namespaces and of the cluster, with random losses.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    kinds::{endpoint_health::CheckKey, resource::ServiceKey},
    observed::health::{GUARD_ENDPOINTS_MIN, GUARD_WINDOW_SECS, Guard},
    primitives::quantity::{Port, Timestamp},
};
use proptest::prelude::*;

const PERCENT: u8 = 33;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_771_000_000 + secs)
}

fn service(namespace: &str) -> ServiceKey {
    ServiceKey::try_from(format!("{namespace}/web")).unwrap()
}

fn endpoints(numbers: std::ops::Range<usize>) -> BTreeSet<CheckKey> {
    let key = |number: usize| {
        let address = std::net::Ipv4Addr::from(0x0A00_0000 + u32::try_from(number).unwrap()).into();
        CheckKey { address, port: Port::new(80).unwrap() }
    };
    numbers.map(key).collect()
}

/// Removes the first `lost` endpoints of a namespace. Returns the number of held ones.
fn lose(guard: &mut Guard, namespace: &str, lost: usize, secs: i64) -> usize {
    let leaving: BTreeMap<_, _> =
        endpoints(0..lost).into_iter().map(|key| (key, "refused".to_owned())).collect();
    guard.weigh(&service(namespace), leaving, at(secs)).len()
}

/// Creates a guard with one Service in each namespace, whose endpoints have passed a check.
fn guard(namespaces: &[(&str, usize)]) -> Guard {
    let mut guard = Guard::new(PERCENT);
    for (namespace, checked) in namespaces {
        guard.record_checked(&service(namespace), endpoints(0..*checked), &endpoints(0..*checked));
    }
    guard
}

const fn budget(endpoints: usize) -> usize {
    endpoints * PERCENT as usize / 100
}

/// F148: dead endpoints of one namespace do not keep the failing endpoint of another one in service, neither if
/// they never passed a check nor if they failed after they had passed.
#[test]
fn f148_dead_endpoints_of_one_namespace_hold_no_endpoint_of_another() {
    let mut unproven = guard(&[("prod", 3)]);
    unproven.record_checked(&service("evil"), endpoints(0..12), &BTreeSet::new());
    assert_eq!(lose(&mut unproven, "evil", 12, 0), 0, "they never served");
    assert_eq!((unproven.left_lately(at(0)), unproven.checked()), (0, 15));
    assert_eq!(lose(&mut unproven, "prod", 1, 1), 0);
    let mut failed = guard(&[("prod", 3), ("evil", 12)]);
    assert_eq!(lose(&mut failed, "evil", 12, 0), 12);
    assert_eq!(lose(&mut failed, "prod", 1, 1), 0);
    assert_eq!(lose(&mut failed, "prod", 2, 2), 0);
    assert_eq!(lose(&mut failed, "evil", 12, 100 * GUARD_WINDOW_SECS), 12, "they are held for long");
    assert_eq!(lose(&mut failed, "prod", 2, 100 * GUARD_WINDOW_SECS), 0);
}

/// F148: an endpoint counts from its first passed check on.
#[test]
fn f148_an_endpoint_counts_after_its_first_passed_check() {
    let mut guard = guard(&[]);
    guard.record_checked(&service("team"), endpoints(0..6), &BTreeSet::new());
    guard.record_passed(&service("team"), endpoints(0..4));
    guard.record_passed(&service("other"), endpoints(0..4));
    assert_eq!(lose(&mut guard, "team", 6, 0), 4, "the other two never served");
    guard.record_checked(&service("team"), endpoints(0..5), &BTreeSet::new());
    assert_eq!(lose(&mut guard, "team", 5, 1), 4, "a change of the Service does not reset the others");
    guard.record_checked(&service("team"), endpoints(2..5), &BTreeSet::new());
    guard.forget(&service("team"));
    assert_eq!((guard.checked(), guard.held_count(), guard.left_lately(at(1))), (0, 0, 0));
}

/// F148: the endpoints of a deleted Service no longer count for the share of its namespace.
#[test]
fn f148_a_deleted_service_leaves_the_share_of_its_namespace() {
    for (lost, held) in [(budget(30), 0), (budget(30) + 1, budget(30) + 1)] {
        let mut guard = guard(&[("team", 30)]);
        let deleted = ServiceKey::try_from("team/deleted".to_owned()).unwrap();
        guard.record_checked(&deleted, endpoints(0..6), &endpoints(0..6));
        guard.forget(&deleted);
        assert_eq!(lose(&mut guard, "team", lost, 0), held, "{lost} lost");
    }
}

/// F148: many small namespaces that fail together exceed the cluster's budget.
#[test]
fn f148_a_failure_of_many_small_namespaces_is_held() {
    let names: Vec<_> = (0..60).map(|number| format!("team-{number}")).collect();
    let namespaces: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut guard = guard(&namespaces);
    let held: usize = names.iter().map(|name| lose(&mut guard, name, 1, 0)).sum();
    assert_eq!(held, 60 - budget(60));
}

/// Sizes of namespaces, with the number of endpoints that each loses and the second of the loss.
fn some_losses() -> impl Strategy<Value = Vec<(usize, usize, i64)>> {
    let one = (1_usize..40, 0_usize..=100, 0_i64..GUARD_WINDOW_SECS);
    let lost = |(size, percent, secs): (usize, usize, i64)| (size, size * percent / 100, secs);
    prop::collection::vec(one.prop_map(lost), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A namespace always loses its own share, whatever the other namespaces lose.
    #[test]
    fn f148_a_namespace_can_always_lose_its_share(others in some_losses(), size in 2_usize..60) {
        let names: Vec<_> = (0..others.len()).map(|number| format!("other-{number}")).collect();
        let mut namespaces: Vec<_> = names.iter().zip(&others).map(|(name, (size, ..))| (name.as_str(), *size)).collect();
        namespaces.push(("prod", size));
        let mut guard = guard(&namespaces);
        for (name, (_, lost, secs)) in names.iter().zip(&others) {
            lose(&mut guard, name, *lost, *secs);
        }
        prop_assert_eq!(lose(&mut guard, "prod", budget(size).max(1), GUARD_WINDOW_SECS), 0);
    }

    /// One other namespace leaves at least half of the cluster's budget to a namespace, however much it loses.
    #[test]
    fn f148_one_namespace_uses_half_of_the_budget_at_most(
        (other, lost) in (1_usize..400).prop_flat_map(|other| (Just(other), 0..=other)), size in 2_usize..60,
    ) {
        let mut guard = guard(&[("evil", other), ("prod", size)]);
        lose(&mut guard, "evil", lost, 0);
        let part = size.min(budget(other + size) / 2);
        prop_assert_eq!(lose(&mut guard, "prod", part, 1), 0);
    }

    /// In a cluster with one namespace, the whole budget is its share.
    #[test]
    fn f148_a_single_namespace_is_the_cluster(
        (size, lost) in (1_usize..200).prop_flat_map(|size| (Just(size), 0..=size)),
    ) {
        let is_held = lose(&mut guard(&[("default", size)]), "default", lost, 0) > 0;
        prop_assert_eq!(is_held, lost >= GUARD_ENDPOINTS_MIN && lost > budget(size));
    }

    /// All namespaces together lose at most their shares and the cluster's budget within the window.
    #[test]
    fn f148_the_losses_of_the_cluster_are_bounded(losses in some_losses()) {
        let names: Vec<_> = (0..losses.len()).map(|number| format!("team-{number}")).collect();
        let namespaces: Vec<_> = names.iter().zip(&losses).map(|(name, (size, ..))| (name.as_str(), *size)).collect();
        let mut guard = guard(&namespaces);
        for (name, (_, lost, secs)) in names.iter().zip(&losses) {
            lose(&mut guard, name, *lost, *secs);
        }
        let shares: usize = losses.iter().map(|(size, ..)| budget(*size).max(1)).sum();
        let total = losses.iter().map(|(size, ..)| size).sum();
        let limit = shares + budget(total).max(GUARD_ENDPOINTS_MIN);
        prop_assert!(guard.left_lately(at(GUARD_WINDOW_SECS - 1)) <= limit);
    }
}
