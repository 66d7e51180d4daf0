//! Unit tests of the checker with hand-made histories: a valid one, and variants that each violate a
//! guarantee.

use super::*;

/// Returns a valid history of three servers: `a` is created at revision 11, replaced at 12, deleted at 13 by
/// a client that never observed it, and created again together with `b` at 14.
fn honest() -> History {
    let operations = vec![
        write(0, (10, 20), &[("a", Some("v1"))], Demand::Absent, RequestOutcome::Accepted(11)),
        write(1, (15, 40), &[("a", Some("v2"))], Demand::Revision(11), RequestOutcome::Accepted(12)),
        write(2, (12, 45), &[("a", Some("x1"))], Demand::Absent, RequestOutcome::Refused(Refusal::Present)),
        read(0, (41, 42), "a", Some(("v2", 12))),
        write(1, (50, 60), &[("a", None)], Demand::Present, RequestOutcome::Unknown),
        read(2, (61, 62), "a", Some(("v1", 11))),
        read(1, (70, 72), "a", None),
        write(
            0,
            (80, 90),
            &[("a", Some("v3")), ("b", Some("v4"))],
            Demand::Nothing,
            RequestOutcome::Accepted(14),
        ),
        write(
            2,
            (91, 95),
            &[("b", Some("x2"))],
            Demand::Revision(12),
            RequestOutcome::Refused(Refusal::Changed),
        ),
        write(2, (96, 97), &[("c", None)], Demand::Present, RequestOutcome::Refused(Refusal::Absent)),
        taken(2, (98, 99), "c", "10.0.0.1"),
        write(2, (98, 99), &[("c", Some("x4"))], Demand::Nothing, RequestOutcome::Refused(Refusal::Busy)),
        list(0, (100, 101), 14, &[("a", "v3", 14), ("b", "v4", 14)]),
        list(2, (100, 101), 12, &[("a", "v2", 12)]),
    ];
    let log = vec![
        event(11, "a", ChangeEventKind::Added, "v1", Some("10.0.0.1")),
        event(12, "a", ChangeEventKind::Modified, "v2", Some("10.0.0.1")),
        event(13, "a", ChangeEventKind::Deleted, "v2", Some("10.0.0.1")),
        event(14, "a", ChangeEventKind::Added, "v3", Some("10.0.0.1")),
        event(14, "b", ChangeEventKind::Added, "v4", None),
    ];
    let mut steps: Vec<_> = log.iter().cloned().map(WatchStep::Event).collect();
    steps.insert(2, WatchStep::Reached(12));
    let anew = vec![
        WatchStep::Event(log[0].clone()),
        WatchStep::Listed { at: 13, objects: BTreeMap::new() },
        WatchStep::Event(log[3].clone()),
        WatchStep::Event(log[4].clone()),
    ];
    let watch = |name: &str, steps| Watch { name: name.to_owned(), start: 10, steps };
    let agent = vec![state(11, &[("a", "10.0.0.1")]), state(13, &[]), state(14, &[("a", "10.0.0.1")])];
    History {
        start: 10,
        operations,
        log,
        head: 14,
        watches: vec![watch("one", steps), watch("anew", anew)],
        feeds: vec![Feed { name: "agent".to_owned(), steps: agent }],
    }
}

fn write(
    server: usize,
    (begin, end): (u64, u64),
    changes: &[(&str, Option<&str>)],
    demand: Demand,
    answer: RequestOutcome,
) -> Operation {
    let change = |(key, value): &(&str, Option<&str>)| ObjectChange {
        key: (*key).to_owned(),
        value: value.map(str::to_owned),
        address: None,
    };
    let asked = ClientRequest::Write { changes: changes.iter().map(change).collect(), demand };
    Operation { client: 0, server, begin, end, asked, answer }
}

fn taken(server: usize, (begin, end): (u64, u64), key: &str, address: &str) -> Operation {
    let change =
        ObjectChange { key: key.to_owned(), value: Some("x3".to_owned()), address: Some(address.to_owned()) };
    let asked = ClientRequest::Write { changes: vec![change], demand: Demand::Absent };
    Operation { client: 0, server, begin, end, asked, answer: RequestOutcome::Refused(Refusal::Taken) }
}

fn seen((value, revision): (&str, u64)) -> ObjectState {
    ObjectState { value: value.to_owned(), revision }
}

fn read(server: usize, (begin, end): (u64, u64), key: &str, object: Option<(&str, u64)>) -> Operation {
    let asked = ClientRequest::Read { key: key.to_owned(), freshness: Freshness::Any };
    Operation { client: 0, server, begin, end, asked, answer: RequestOutcome::Object(object.map(seen)) }
}

fn list(server: usize, (begin, end): (u64, u64), at: u64, objects: &[(&str, &str, u64)]) -> Operation {
    let objects = objects.iter().map(|&(key, value, revision)| (key.to_owned(), seen((value, revision))));
    let answer = RequestOutcome::Listing { at, objects: objects.collect() };
    Operation {
        client: 0,
        server,
        begin,
        end,
        asked: ClientRequest::List { freshness: Freshness::Any },
        answer,
    }
}

fn event(
    revision: u64,
    key: &str,
    happened: ChangeEventKind,
    value: &str,
    address: Option<&str>,
) -> ChangeEvent {
    let (key, value, address) = (key.to_owned(), value.to_owned(), address.map(str::to_owned));
    ChangeEvent { revision, key, happened, value, address }
}

fn state(at: u64, addresses: &[(&str, &str)]) -> FeedStep {
    let addresses = addresses.iter().map(|&(key, address)| (key.to_owned(), address.to_owned()));
    FeedStep { at, addresses: addresses.collect() }
}

/// Modifies a valid history by `lie`, checks it, and returns the violated guarantees.
fn broken(lie: impl FnOnce(&mut History)) -> Vec<Rule> {
    let mut history = honest();
    lie(&mut history);
    let mut rules: Vec<_> = check(&history).into_iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Applies `tell` to each event in the log and in both watches, so that the watches still agree with the log.
fn retell(history: &mut History, tell: impl Fn(&mut ChangeEvent)) {
    history.log.iter_mut().for_each(&tell);
    for step in history.watches.iter_mut().flat_map(|watch| &mut watch.steps) {
        match step {
            WatchStep::Event(event) => tell(event),
            WatchStep::Reached(_) | WatchStep::Listed { .. } => {}
        }
    }
}

#[test]
fn an_honest_history_breaks_no_promise() {
    assert_eq!(check(&honest()), []);
}

#[test]
fn an_accepted_write_that_is_not_in_the_log_is_lost() {
    let rules = broken(|history| {
        history.operations.push(write(
            1,
            (92, 94),
            &[("c", Some("v9"))],
            Demand::Absent,
            RequestOutcome::Accepted(15),
        ));
        history.head = 16;
    });
    assert!(rules.contains(&Rule::Lost), "{rules:?}");
}

#[test]
fn a_write_of_several_objects_of_which_one_is_missing_is_lost() {
    let rules = broken(|history| {
        history.log.pop();
        history.watches.clear();
        history.operations.retain(|operation| !matches!(operation.answer, RequestOutcome::Listing { .. }));
    });
    assert!(rules.contains(&Rule::Lost), "{rules:?}");
}

#[test]
fn two_writes_that_were_told_one_revision_are_not_both_there() {
    let rules = broken(|history| {
        let same = history.operations[0].clone();
        history.operations.push(same);
    });
    assert_eq!(rules, [Rule::Lost]);
}

#[test]
fn what_happened_without_having_been_asked_for_is_seen() {
    let rules = broken(|history| drop(history.operations.remove(4)));
    assert_eq!(rules, [Rule::Unasked], "nobody asked for the deletion");
}

#[test]
fn a_value_that_is_written_twice_is_seen() {
    let rules = broken(|history| {
        history.log.push(event(15, "c", ChangeEventKind::Added, "v4", None));
        history.head = 15;
        history.watches.clear();
        history.feeds.clear();
    });
    assert!(rules.contains(&Rule::Unasked), "{rules:?}");
}

#[test]
fn a_refused_write_that_happened_is_seen() {
    let rules = broken(|history| {
        history.operations[4].answer = RequestOutcome::Refused(Refusal::Busy);
    });
    assert_eq!(rules, [Rule::Unasked]);
}

#[test]
fn a_write_whose_precondition_did_not_hold_is_seen() {
    let rules = broken(|history| set_demand(history, 1, Demand::Revision(10)));
    assert_eq!(rules, [Rule::Precondition]);
    let rules = broken(|history| set_demand(history, 1, Demand::Absent));
    assert_eq!(rules, [Rule::Precondition]);
}

fn set_demand(history: &mut History, index: usize, to: Demand) {
    match &mut history.operations[index].asked {
        ClientRequest::Write { demand, .. } => *demand = to,
        ClientRequest::Read { .. } | ClientRequest::List { .. } => unreachable!("it is a write"),
    }
}

#[test]
fn an_order_of_writes_that_is_not_that_of_real_time_is_seen() {
    let rules = broken(|history| {
        // Begins after the response to the write at 14.
        history.operations[4].begin = 95;
        history.operations[4].end = 96;
        history.operations[6] = read(1, (97, 98), "a", None);
    });
    assert!(rules.contains(&Rule::Unasked), "nothing without an answer can have done it: {rules:?}");
    let rules = broken(|history| {
        history.operations[1].begin = 43;
        history.operations[1].end = 44;
    });
    assert_eq!(rules, [Rule::RealTime], "it was read before it was written");
}

#[test]
fn a_refusal_without_a_reason_is_seen() {
    for (index, at) in [(2, (1, 5)), (9, (75, 76))] {
        let rules = broken(|history| {
            (history.operations[index].begin, history.operations[index].end) = at;
            if index == 9 {
                history.operations[index].asked = ClientRequest::Write {
                    changes: vec![ObjectChange { key: "b".to_owned(), value: None, address: None }],
                    demand: Demand::Present,
                };
                (history.operations[index].begin, history.operations[index].end) = (91, 92);
            }
        });
        assert_eq!(rules, [Rule::Refusal], "operation {index}");
    }
    let rules = broken(|history| history.operations[10] = taken(2, (98, 99), "c", "10.0.0.9"));
    assert_eq!(rules, [Rule::Refusal], "nobody has that address");
    let rules = broken(|history| set_demand(history, 8, Demand::Revision(14)));
    assert_eq!(rules, [Rule::Refusal], "it is just as it was named");
}

#[test]
fn a_read_of_what_never_was_is_seen() {
    let rules = broken(|history| history.operations[3] = read(0, (41, 42), "a", Some(("v2", 11))));
    assert_eq!(rules, [Rule::Read]);
    let rules = broken(|history| {
        history.operations[12] = list(0, (100, 101), 14, &[("a", "v3", 14)]);
    });
    assert_eq!(rules, [Rule::Read], "half of a write");
}

#[test]
fn a_read_that_goes_back_on_one_server_is_seen_and_on_another_is_not() {
    let old = |server| read(server, (46, 47), "a", Some(("v1", 11)));
    assert_eq!(broken(|history| history.operations.push(old(2))), []);
    assert_eq!(broken(|history| history.operations.push(old(0))), [Rule::ReadOrder]);
    assert_eq!(broken(|history| history.operations.push(old(1))), [Rule::ReadOrder], "it had written itself");
    let rules = broken(|history| history.operations[13] = list(0, (102, 103), 12, &[("a", "v2", 12)]));
    assert_eq!(rules, [Rule::ReadOrder]);
    let rules = broken(|history| {
        history.operations[5].asked =
            ClientRequest::Read { key: "a".to_owned(), freshness: Freshness::AtLeast(12) };
    });
    assert_eq!(rules, [Rule::ReadOrder], "the reader named a newer position");
}

#[test]
fn reads_of_the_latest_state_are_linearizable_across_servers() {
    let latest = |key: &str| ClientRequest::Read { key: key.to_owned(), freshness: Freshness::Latest };
    // Server 2 has revision 11 only, and operation 5 returns it after other servers had accepted revision 12.
    let rules = broken(|history| history.operations[5].asked = latest("a"));
    assert_eq!(rules, [Rule::ReadOrder], "an old state of one object");
    let rules = broken(|history| {
        history.operations[13].asked = ClientRequest::List { freshness: Freshness::Latest };
    });
    assert_eq!(rules, [Rule::ReadOrder], "an old listing");
    let rules = broken(|history| {
        history.operations[13] = list(2, (46, 47), 12, &[("a", "v2", 12)]);
        history.operations[13].asked = ClientRequest::List { freshness: Freshness::Latest };
        history.operations[5].asked = ClientRequest::Read { key: "a".to_owned(), freshness: Freshness::Any };
        history.operations[5].server = 3;
    });
    assert_eq!(rules, [], "every accepted write is in the listing");
}

#[test]
fn a_read_of_what_is_written_later_is_seen() {
    let rules =
        broken(|history| history.operations[6] = list(1, (70, 72), 14, &[("a", "v3", 14), ("b", "v4", 14)]));
    assert!(rules.contains(&Rule::RealTime), "{rules:?}");
}

#[test]
fn a_watch_with_a_gap_a_repetition_or_a_wrong_order_is_seen() {
    let lies: [fn(&mut Vec<WatchStep>); 6] = [
        |steps| drop(steps.remove(1)),
        |steps| drop(steps.pop()),
        |steps| steps.insert(1, steps[0].clone()),
        |steps| steps.swap(3, 4),
        |steps| steps.insert(4, WatchStep::Reached(11)),
        |steps| steps.insert(1, WatchStep::Reached(13)),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        assert_eq!(broken(|history| lie(&mut history.watches[0].steps)), [Rule::Watch], "lie {number}");
    }
}

#[test]
fn a_watch_that_is_shown_another_state_when_it_begins_anew_is_seen() {
    let rules = broken(|history| {
        let objects = BTreeMap::from([("a".to_owned(), seen(("v2", 12)))]);
        history.watches[1].steps[1] = WatchStep::Listed { at: 13, objects };
    });
    assert_eq!(rules, [Rule::Watch]);
    let rules = broken(|history| {
        history.watches[1].steps[1] = WatchStep::Listed { at: 10, objects: BTreeMap::new() };
    });
    assert_eq!(rules, [Rule::Watch], "it goes back");
}

#[test]
fn an_agent_that_goes_back_or_has_another_state_is_seen() {
    let rules = broken(|history| history.feeds[0].steps.swap(0, 1));
    assert_eq!(rules, [Rule::Feed]);
    let rules = broken(|history| history.feeds[0].steps[1] = state(13, &[("a", "10.0.0.1")]));
    assert_eq!(rules, [Rule::Feed]);
    let rules = broken(|history| drop(history.feeds[0].steps.pop()));
    assert_eq!(rules, [Rule::Feed], "it never arrives");
}

#[test]
fn an_address_of_two_objects_is_seen() {
    let rules = broken(|history| {
        retell(history, |event| {
            if event.key == "b" {
                event.address = Some("10.0.0.1".to_owned());
            }
        });
        history.feeds.clear();
    });
    assert_eq!(rules, [Rule::Address]);
}

#[test]
fn a_log_that_cannot_be_told_is_seen() {
    let rules = broken(|history| {
        retell(history, |event| {
            if event.revision == 12 {
                event.happened = ChangeEventKind::Added;
            }
        });
    });
    assert_eq!(rules, [Rule::Log]);
    let rules = broken(|history| history.log.swap(0, 1));
    assert!(rules.contains(&Rule::Log), "{rules:?}");
}

#[test]
fn an_answer_that_the_api_does_not_know_is_seen() {
    let rules =
        broken(|history| history.operations[11].answer = RequestOutcome::Unexpected("500".to_owned()));
    assert_eq!(rules, [Rule::Answer]);
}
