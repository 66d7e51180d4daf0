//! Tests of the limits of running checks.

use std::collections::BTreeSet;

use model::primitives::quantity::Port;

use super::*;

fn service(text: &str) -> ServiceKey {
    serde_json::from_value(text.into()).unwrap()
}

fn key(number: u32) -> CheckKey {
    CheckKey { address: std::net::IpAddr::V4(number.into()), port: Port::new(80).unwrap() }
}

fn ask(slots: &mut Slots, service: &ServiceKey, checks: std::ops::Range<u32>) {
    checks.for_each(|number| slots.ask(service, key(number)));
}

/// Starts all checks that may start and returns the number of them.
fn fill(slots: &mut Slots, now: Instant) -> usize {
    std::iter::from_fn(|| slots.next(now)).count()
}

#[test]
fn a_service_with_many_checks_leaves_room_for_others() {
    let (many, few) = (service("default/many"), service("default/few"));
    let now = Instant::now();
    let mut slots = Slots::default();
    ask(&mut slots, &many, 0..2000);
    assert_eq!((fill(&mut slots, now), slots.waiting()), (CHECKS_IN_FLIGHT_PER_SERVICE_MAX, 1744));
    slots.ask(&few, key(1));
    assert_eq!(slots.next(now), Some((few.clone(), key(1))));
    assert_eq!(slots.next(now), None);
    slots.leave(&few, key(1));
    slots.leave(&many, key(7));
    slots.leave(&many, key(7));
    // The oldest waiting check.
    assert_eq!(slots.next(now), Some((many, key(256))));
    assert_eq!(slots.next(now), None);
}

#[test]
fn a_namespace_with_many_services_leaves_room_for_others() {
    let now = Instant::now();
    let mut slots = Slots::default();
    for number in 0..4 {
        ask(&mut slots, &service(&format!("greedy/s{number}")), 0..256);
    }
    assert_eq!(fill(&mut slots, now), CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX);
    ask(&mut slots, &service("prod/shop"), 0..100);
    assert_eq!(fill(&mut slots, now), 100);
}

#[test]
fn a_namespace_with_few_checks_gets_a_slot_of_one_with_many_when_none_is_free() {
    let now = Instant::now();
    let later = now + EVICTION_AGE;
    let (first, second, prod) = (service("a/x"), service("b/x"), service("prod/shop"));
    let mut slots = Slots::default();
    ask(&mut slots, &first, 0..1000);
    assert_eq!(fill(&mut slots, now), 256);
    ask(&mut slots, &second, 0..1000);
    assert_eq!(fill(&mut slots, now + EVICTION_AGE / 2), 256);
    assert_eq!(slots.next_eviction(), None, "both have as many");
    ask(&mut slots, &prod, 0..3);
    assert_eq!((slots.next(later), slots.next_eviction()), (None, Some(now + EVICTION_AGE * 3 / 2)));
    assert_eq!(slots.evict(later), None, "no check of the last of the largest namespaces is old enough");
    let now = now + EVICTION_AGE * 3 / 2;
    let mut started = Vec::new();
    while started.iter().filter(|(service, _)| *service == prod).count() < 3 {
        let (service, _) = slots.evict(now).unwrap();
        assert!(service == first || service == second);
        started.extend(std::iter::from_fn(|| slots.next(now)));
        assert!(started.len() <= 9, "the namespaces take turns: {started:?}");
    }
    assert_eq!(slots.running, CHECKS_IN_FLIGHT_MAX);
}

#[test]
fn a_service_with_few_checks_gets_a_slot_of_one_with_many_in_a_full_namespace() {
    let now = Instant::now();
    let later = now + EVICTION_AGE;
    let mut slots = Slots::default();
    ask(&mut slots, &service("default/x"), 0..256);
    ask(&mut slots, &service("default/y"), 0..256);
    assert_eq!(fill(&mut slots, now), CHECKS_IN_FLIGHT_PER_NAMESPACE_MAX);
    assert_eq!(slots.next_eviction(), None, "both have as many");
    let web = service("default/web");
    slots.ask(&web, key(1));
    assert_eq!((slots.next(now), slots.next_eviction()), (None, Some(later)));
    let mut evicted = BTreeSet::new();
    let started = std::iter::from_fn(|| {
        evicted.insert(slots.evict(later)?);
        slots.next(later)
    });
    let started: Vec<_> = started.take_while(|(service, _)| *service != web).collect();
    assert!(started.len() <= 2 && evicted.len() <= 3, "{started:?} {evicted:?}");
    assert_eq!(slots.next_eviction(), None, "all have their share");
}

#[test]
fn services_take_turns_and_nothing_stays_behind() {
    let services: Vec<_> = (0..6).map(|number| service(&format!("n{}/s{number}", number % 2))).collect();
    let now = Instant::now();
    let mut slots = Slots::default();
    for service in &services {
        ask(&mut slots, service, 0..400);
    }
    let mut running = Vec::new();
    let mut done = 0;
    loop {
        running.extend(std::iter::from_fn(|| slots.next(now)));
        assert!(running.len() <= CHECKS_IN_FLIGHT_MAX);
        let counts = services.iter().map(|one| running.iter().filter(|(other, _)| other == one).count());
        assert!(done > 0 || counts.max() <= Some(86));
        let Some((service, key)) = running.pop() else { break };
        slots.leave(&service, key);
        done += 1;
    }
    assert_eq!((done, slots.waiting(), slots.running), (2400, 0, 0));
    assert!(slots.lanes.is_empty() && slots.turns.is_empty());
}

#[test]
fn what_is_withdrawn_does_not_run() {
    let web = service("default/web");
    let now = Instant::now();
    let mut slots = Slots::default();
    slots.ask(&web, key(1));
    slots.ask(&web, key(2));
    slots.withdraw(&web, key(1));
    assert_eq!((slots.next(now), slots.next(now)), (Some((web.clone(), key(2))), None));
    slots.ask(&web, key(3));
    slots.withdraw(&web, key(3));
    slots.leave(&web, key(2));
    assert_eq!(slots.next(now), None);
    assert!(slots.lanes.is_empty());
}
