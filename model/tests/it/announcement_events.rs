//! Tests of the events of load balancer addresses, which follow from the reports of the agents.

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    observed::announcements::{
        AddressEvent, AddressEventFilter, AnnouncementBook, AnnouncementUpdate, EVENTS_KEPT_MAX,
        EVENTS_OF_NODE_MAX,
    },
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{AddressReport, AnnouncementChange},
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

fn change(number: u64, seconds: i64, announces: bool, reason: &str) -> AnnouncementChange {
    let (address, time, reason) = (address(ADDRESS), at(seconds), reason.to_owned());
    AnnouncementChange { number, time, address, announces, reason }
}

fn put_changes(book: &mut AnnouncementBook, node: &str, boot_id: &str, changes: &[AnnouncementChange]) {
    let (changes, boot_id) = (changes.to_vec(), boot_id.to_owned());
    book.apply(
        &name(node),
        AnnouncementUpdate { changes, boot_id, ..AnnouncementUpdate::default() },
        at(1000),
    );
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

/// F117: the changes of a time in which the control server was unreachable arrive later, and are listed with their true
/// times and causes. Repeated changes are one event, and the state that follows from them is none.
#[test]
fn f117_changes_that_an_agent_recorded_are_events_at_their_times() {
    let mut book = AnnouncementBook::default();
    let of_a = [
        change(1, 1, true, "first"),
        change(2, 10, false, "no link on eth0"),
        change(3, 41, true, "nobody answered"),
    ];
    put(&mut book, "b", ADDRESS, report("Standby", 0, "a is before this node and lives"));
    put_changes(&mut book, "a", "boot", &of_a[..1]);
    put(&mut book, "a", ADDRESS, report("Owner", 1, "first"));
    put_changes(&mut book, "a", "boot", &of_a);
    put(&mut book, "a", ADDRESS, report("Owner", 41, "nobody answered"));
    // The server was on the side of a.
    put_changes(
        &mut book,
        "b",
        "boot",
        &[change(1, 11, true, "a fell silent"), change(2, 42, false, "a answers")],
    );
    put(&mut book, "b", ADDRESS, report("Standby", 42, "a answers"));
    let expected = [
        "42 192.0.2.7 b Withdrawn a: a answers",
        "41 192.0.2.7 a Announced b: nobody answered",
        "11 192.0.2.7 b Announced a: a fell silent",
        "10 192.0.2.7 a Withdrawn -: no link on eth0",
        "1 192.0.2.7 a Announced -: first",
    ];
    assert_eq!(lines(&book, &AddressEventFilter::default()), expected);
    let of_b = AddressEventFilter { address: None, node: Some(name("b")) };
    assert_eq!(lines(&book, &of_b), expected[..3], "an event whose previous owner arrived later");
    // A restarted agent numbers its changes anew. It was killed while it announced, and does not announce again.
    put_changes(&mut book, "a", "next boot", &[change(1, 60, true, "first")]);
    put(&mut book, "a", ADDRESS, report("Owner", 60, "first"));
    put(&mut book, "a", ADDRESS, report("Standby", 70, "b is before this node and lives"));
    assert_eq!(
        lines(&book, &AddressEventFilter::default())[..2],
        ["70 192.0.2.7 a Withdrawn -: b is before this node and lives", "60 192.0.2.7 a Announced -: first",]
    );
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
            put(&mut book, &format!("n{node}"), ADDRESS, report("Owner", of_first + seconds, "again"));
        }
    }
    let all = events(&book, &AddressEventFilter::default());
    assert_eq!((all.len(), all.iter().any(|event| event.node == name("a"))), (EVENTS_KEPT_MAX, false));
}
