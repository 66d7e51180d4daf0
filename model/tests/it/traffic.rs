//! Storage of traffic counters (`TrafficBook`): sums of the reported counters, in limited memory, that never
//! decrease.

use std::collections::BTreeMap;

use model::{
    kinds::resource::ServiceKey,
    observed::{
        rollup::NodeView,
        traffic::{REPEAT_WITHIN_SECS, ROWS_LISTED_MAX, ServiceTraffic, TARGETS_KEPT_MAX, TrafficBook},
    },
    primitives::{
        name::Name,
        quantity::{Port, Timestamp},
    },
    wire::{
        report::{Report, TargetTraffic},
        traffic_counts::Counts,
    },
};
use proptest::prelude::*;
use serde_json::json;

const NOW: i64 = 1_771_000_000;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(NOW + secs)
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn web() -> ServiceKey {
    ServiceKey::try_from("default/web".to_owned()).unwrap()
}

/// Returns the counters of endpoint `10.1.0.host:8080` as an agent reports them.
fn target(host: u8, connections: u64, packets: Option<u64>) -> TargetTraffic {
    serde_json::from_value(json!({
        "protocol": "TCP", "address": format!("10.1.0.{host}"), "port": 8080,
        "connections": connections, "packets": packets, "active": packets.map(|_| 1),
    }))
    .unwrap()
}

fn report(mode: &str) -> Report {
    serde_json::from_value(json!({
        "bootId": "a", "agentVersion": "0", "mode": mode, "received": "1-1", "applied": "1-1", "verified": "1-1",
    }))
    .unwrap()
}

fn say(book: &mut TrafficBook, node: &str, boot: &str, targets: Vec<TargetTraffic>) {
    book.apply(&name(node), boot, BTreeMap::from([(web(), targets)]), at(0));
}

fn shown(book: &TrafficBook) -> ServiceTraffic {
    let (nodes, report) = (["n1", "n2"].map(name), report("ipvs"));
    let view = |name| NodeView {
        name,
        is_connected: true,
        has_left: false,
        is_contested: false,
        is_lost: false,
        last_report: Some(at(-7)),
        report: Some(&report),
    };
    book.service(&web(), None, &nodes.iter().map(view).collect::<Vec<_>>(), at(0))
}

fn connections(book: &TrafficBook) -> u64 {
    book.totals().map(|totals| totals.counts.connections).sum()
}

/// F086: counters are available for each Service, node and endpoint. A counter that a proxy mode does not maintain
/// is absent instead of zero.
#[test]
fn f086_traffic_is_reported_by_node_and_endpoint_and_summed() {
    let mut book = TrafficBook::default();
    say(&mut book, "n1", "a", vec![target(1, 10, Some(100)), target(2, 5, Some(50))]);
    say(&mut book, "n2", "a", vec![target(1, 1, None)]);
    let traffic = shown(&book);
    assert_eq!((traffic.total.connections, traffic.total.packets), (16, Some(150)));
    let of = |traffic: &[model::observed::traffic::EndpointTraffic]| -> Vec<(String, u64, Option<u64>)> {
        let line = |one: &model::observed::traffic::EndpointTraffic| {
            (one.address.to_string(), one.counts.connections, one.counts.packets)
        };
        traffic.iter().map(line).collect()
    };
    assert_eq!(
        of(&traffic.endpoints),
        [("10.1.0.1".to_owned(), 11, Some(100)), ("10.1.0.2".to_owned(), 5, Some(50))]
    );
    assert_eq!(of(&traffic.nodes[&name("n2")].endpoints), [("10.1.0.1".to_owned(), 1, None)]);
    assert_eq!(traffic.nodes[&name("n1")].age_seconds, Some(7));
    assert_eq!(traffic.nodes[&name("n1")].total.active, Some(2), "F087");
    assert_eq!(traffic.nodes[&name("n2")].total, Counts { connections: 1, ..Counts::default() });

    say(&mut book, "n2", "a", Vec::new());
    assert_eq!(shown(&book).nodes.len(), 1, "an empty list ends what was said before");
}

/// Counters that a restarted agent does not report again are discarded after some time, but remain in the sums.
#[test]
fn targets_that_a_restarted_agent_does_not_repeat_are_forgotten() {
    let mut book = TrafficBook::default();
    say(&mut book, "n1", "a", vec![target(1, 10, None)]);
    book.apply(&name("n1"), "b", BTreeMap::new(), at(0));
    book.forget(|_| true, |_| true, at(REPEAT_WITHIN_SECS));
    assert_eq!(shown(&book).total.connections, 10);
    book.forget(|_| true, |_| true, at(REPEAT_WITHIN_SECS + 1));
    assert_eq!(shown(&book).nodes.len(), 0);
    assert_eq!(connections(&book), 10, "what went through did go through");
    say(&mut book, "n1", "b", vec![target(1, 3, None)]);
    book.forget(|_| true, |_| true, at(2 * REPEAT_WITHIN_SECS));
    assert_eq!((shown(&book).total.connections, connections(&book)), (3, 13));
    book.forget(|_| false, |_| true, at(0));
    assert_eq!((shown(&book).nodes.len(), connections(&book)), (0, 0));
}

/// A response has a limited number of endpoint rows. The nodes with the most connections are listed with all of
/// their rows, other nodes are omitted, and the sums include all nodes.
#[test]
fn a_response_lists_the_busiest_nodes_and_sums_all() {
    let mut book = TrafficBook::default();
    let many = |connections: u64| {
        let one = |port: usize| {
            let json =
                json!({ "protocol": "TCP", "address": "10.1.0.1", "port": port, "connections": connections });
            serde_json::from_value::<TargetTraffic>(json).unwrap()
        };
        (1..=ROWS_LISTED_MAX).map(one).collect::<Vec<_>>()
    };
    say(&mut book, "n1", "a", many(1));
    say(&mut book, "n2", "a", many(2));
    let traffic = shown(&book);
    assert_eq!(traffic.nodes.keys().collect::<Vec<_>>(), [&name("n2")]);
    assert_eq!((traffic.nodes_omitted, traffic.endpoints_omitted), (1, 0));
    assert_eq!(traffic.total.connections, 3 * ROWS_LISTED_MAX as u64);
}

#[test]
fn beyond_the_limit_new_entries_are_dropped_and_known_ones_are_updated() {
    let mut book = TrafficBook::default();
    let template = target(1, 1, None);
    let many = |count: usize| {
        let one = |index: usize| {
            let port = Port::new(u16::try_from(index % 60_000 + 1).unwrap());
            let address = format!("10.{}.0.1", index / 60_000).parse().unwrap();
            TargetTraffic { address, port, ..template.clone() }
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    let nodes = |book: &TrafficBook| shown(book).nodes.len() + shown(book).nodes_omitted;
    say(&mut book, "n1", "a", many(TARGETS_KEPT_MAX));
    say(&mut book, "n2", "a", many(1));
    assert_eq!((nodes(&book), book.refused), (1, 1));
    say(&mut book, "n1", "a", many(TARGETS_KEPT_MAX - 1));
    say(&mut book, "n2", "a", many(1));
    assert_eq!((nodes(&book), book.refused), (2, 1));
}

#[derive(Debug, Clone)]
enum Step {
    Say { node: u8, boot: bool, counts: Vec<(u8, u64)> },
    Forget { node_gone: bool, secs: i64 },
}

fn a_step() -> impl Strategy<Value = Step> {
    let counts = prop::collection::vec((1_u8..4, 0_u64..50), 0..4);
    prop_oneof![
        4 => (1_u8..3, any::<bool>(), counts).prop_map(|(node, boot, counts)| Step::Say { node, boot, counts }),
        1 => (any::<bool>(), 0_i64..300).prop_map(|(node_gone, secs)| Step::Forget { node_gone, secs }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// For any sequence of restarts and removals, neither the sum of a Service nor that of an endpoint that still
    /// exists decreases.
    #[test]
    fn sums_never_decrease_and_equal_current_and_former_endpoints(steps in prop::collection::vec(a_step(), 1..40)) {
        let mut book = TrafficBook::default();
        let mut reached = 0;
        for step in steps {
            match step {
                Step::Say { node, boot, counts } => {
                    let counts: BTreeMap<_, _> = counts.into_iter().collect();
                    let targets = counts.into_iter().map(|(host, count)| target(host, count, None)).collect();
                    say(&mut book, &format!("n{node}"), if boot { "a" } else { "b" }, targets);
                }
                Step::Forget { node_gone, secs } => {
                    book.forget(|_| true, |node| !node_gone || *node != name("n1"), at(secs));
                }
            }
            let now = connections(&book);
            prop_assert!(now >= reached, "{now} after {reached}");
            let endpoints: u64 = book.totals().flat_map(|totals| totals.endpoints.into_values()).map(|counts| counts.connections).sum();
            prop_assert!(endpoints <= now);
            reached = now;
        }
    }
}
