//! Tests of the events of load balancer addresses, which follow from the reports of the agents.

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    observed::announcements::{
        AddressEvent, AddressEventFilter, AnnouncementBook, AnnouncementUpdate, EVENTS_KEPT_MAX,
        EVENTS_OF_NODE_MAX,
    },
    primitives::{name::Name, quantity::Timestamp},
    wire::report::AddressReport,
};
use serde_json::json;

const ADDRESS: &str = "192.0.2.7";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(seconds)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn report(role: &str, seconds: i64, reason: &str) -> AddressReport {
    serde_json::from_value(json!({ "role": role, "epoch": 1, "since": at(seconds), "reason": reason }))
        .unwrap()
}

fn put(book: &mut AnnouncementBook, node: &str, of: &str, report: AddressReport) {
    let parts = BTreeMap::from([(address(of), report)]);
    book.apply(&name(node), AnnouncementUpdate { parts, ..AnnouncementUpdate::default() }, at(1000));
}

fn events(book: &AnnouncementBook, filter: &AddressEventFilter) -> Vec<AddressEvent> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = book.events(filter, after, 3);
        all.extend(page.items);
        after = page.more_after;
        if after.is_none() {
            return all;
        }
    }
}

fn lines(book: &AnnouncementBook, filter: &AddressEventFilter) -> Vec<String> {
    let line = |event: AddressEvent| {
        let previous = event.previous.map_or_else(|| "-".to_owned(), |previous| previous.to_string());
        let seconds = event.time.unix_seconds();
        format!("{seconds} {} {} {:?} {previous}: {}", event.address, event.node, event.reason, event.message)
    };
    events(book, filter).into_iter().map(line).collect()
}

/// F117: a change of the owner of an address is an event with its time, both nodes and the cause.
#[test]
fn f117_each_change_of_an_owner_is_an_event_with_both_nodes_and_the_cause() {
    let mut book = AnnouncementBook::default();
    put(&mut book, "b", ADDRESS, report("Standby", 1, "a is before this node and lives"));
    put(&mut book, "a", ADDRESS, report("Owner", 2, "first"));
    put(&mut book, "a", ADDRESS, report("Owner", 2, "unchanged"));
    put(&mut book, "b", ADDRESS, report("Owner", 3, "a fell silent"));
    put(&mut book, "a", ADDRESS, report("Held", 4, "b answers for it"));
    put(&mut book, "b", ADDRESS, report("Owner", 6, "lost and regained between two reports"));
    put(&mut book, "a", "192.0.2.8", report("Owner", 7, "first"));
    let complete = AnnouncementUpdate { is_complete: true, ..AnnouncementUpdate::default() };
    book.apply(&name("b"), complete, at(9));
    let everything = AddressEventFilter::default();
    assert_eq!(
        lines(&book, &everything),
        [
            "9 192.0.2.7 b Withdrawn -: the node no longer has a role for the address",
            "7 192.0.2.8 a Announced -: first",
            "6 192.0.2.7 b Announced -: lost and regained between two reports",
            "4 192.0.2.7 a Withdrawn b: b answers for it",
            "3 192.0.2.7 b Announced a: a fell silent",
            "2 192.0.2.7 a Announced -: first",
        ]
    );
    let of_address = AddressEventFilter { address: Some(address("192.0.2.8")), node: None };
    assert_eq!(lines(&book, &of_address), ["7 192.0.2.8 a Announced -: first"]);
    let of_node = AddressEventFilter { address: Some(address(ADDRESS)), node: Some(name("a")) };
    assert_eq!(
        lines(&book, &of_node),
        [
            "4 192.0.2.7 a Withdrawn b: b answers for it",
            "3 192.0.2.7 b Announced a: a fell silent",
            "2 192.0.2.7 a Announced -: first",
        ],
        "events in which the node is the former owner are its events too"
    );
    book.forget(|_| true, |of| of == address(ADDRESS));
    assert_eq!(lines(&book, &of_address), [""; 0], "the address is deleted");
    book.forget(|node| *node == name("a"), |_| true);
    assert_eq!(lines(&book, &everything).len(), 2, "a node is deleted");
}

/// The number of events is limited for each node and for all, and the newest are kept.
#[test]
fn events_of_addresses_are_limited_for_each_node_and_for_all() {
    let mut book = AnnouncementBook::default();
    let of_first = i64::try_from(EVENTS_OF_NODE_MAX).unwrap() + 10;
    for seconds in 0..of_first {
        put(&mut book, "a", ADDRESS, report("Owner", seconds, "again"));
    }
    let all = events(&book, &AddressEventFilter::default());
    assert_eq!((all.len(), all[0].time), (EVENTS_OF_NODE_MAX, at(of_first - 1)));
    for node in 0..EVENTS_KEPT_MAX / EVENTS_OF_NODE_MAX {
        for seconds in 0..of_first {
            put(&mut book, &format!("n{node}"), ADDRESS, report("Owner", seconds, "again"));
        }
    }
    let all = events(&book, &AddressEventFilter::default());
    assert_eq!((all.len(), all.iter().any(|event| event.node == name("a"))), (EVENTS_KEPT_MAX, false));
}
