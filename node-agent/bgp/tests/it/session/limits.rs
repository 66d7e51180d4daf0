//! Tests of the counting of prefixes from the neighbor, and of the prefix limit.

use std::net::Ipv4Addr;

use bgp::{
    Family, Message, Open, Update,
    notification::{cease, code},
    session::{Config, Event, Input, PrefixCount, State},
    wire::{Action, AttributeFault, DecodedMessage, Malformation},
};
use ipnet::{IpNet, Ipv4Net};

use super::support::{Bench, codes, config, events, id, open, received, secs, update};

fn limited(max_prefixes: u32) -> Bench {
    Bench::established(Config { max_prefixes, ..config() }, open())
}

fn numbered(numbers: std::ops::Range<u32>) -> Message {
    let prefix = |number| IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(number), 32).unwrap());
    Message::Update(Box::new(Update { announced: numbers.map(prefix).collect(), ..Update::default() }))
}

#[test]
fn what_is_announced_and_withdrawn_is_counted_by_prefix() {
    let mut bench = Bench::established(config(), open());
    let routes = ["192.0.2.0/24", "192.0.2.0/25", "2001:db8::/32"];
    let outputs = bench.tell(received(1, update(&routes, &[])));
    let [Event::Update(learned)] = events(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((learned.announced, learned.withdrawn, learned.prefixes), (3, 0, PrefixCount::Exactly(3)));
    let fault = AttributeFault { attribute: 4, action: Action::Discard, why: Malformation::Length };
    let again = DecodedMessage { message: update(&routes, &[]), faults: vec![fault] };
    let outputs = bench.tell(Input::Received { connection: id(1), result: Ok(again) });
    let [Event::Update(learned)] = events(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((learned.prefixes, &learned.faults[..]), (PrefixCount::Exactly(3), &[fault][..]));
    bench.tell(received(1, update(&["192.0.2.0/24"], &["192.0.2.0/24", "192.0.2.0/25", "10.0.0.0/8"])));
    assert_eq!(bench.session.prefixes(), PrefixCount::Exactly(2), "withdrawn before it was announced");
    bench.tell(Input::Closed { connection: id(1), why: "closed".to_owned() });
    assert_eq!(bench.session.prefixes(), PrefixCount::Exactly(0));
}

#[test]
fn families_that_were_not_agreed_on_do_not_count() {
    let mut bench = Bench::established(config(), Open { capabilities: vec![], ..open() });
    let Message::Update(mut message) = update(&["2001:db8::/32", "192.0.2.0/24"], &["2001:db8::/48"]) else {
        panic!()
    };
    message.foreign.insert((1, 128), 5);
    let outputs = bench.tell(received(1, Message::Update(message)));
    let [Event::Update(learned)] = events(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((learned.announced, learned.withdrawn, learned.foreign), (1, 0, 7));
    assert_eq!(bench.session.prefixes(), PrefixCount::Exactly(1));
    for (family, told) in [(Family::Ipv4Unicast, 1), (Family::Ipv6Unicast, 0)] {
        let end = Message::Update(Box::new(Update { end_of_rib: Some(family), ..Update::default() }));
        let outputs = bench.tell(received(1, end));
        let ends = events(&outputs).into_iter().filter(|event| **event == Event::PeerEndOfRib(family));
        assert_eq!(ends.count(), told, "{family}");
    }
}

/// A number of prefixes equal to the limit is allowed, and one more prefix ends the session. Limits up to
/// 10,000 are exact.
#[test]
fn one_prefix_beyond_the_limit_ends_the_session() {
    for limit in [1, 2, 100, 9_999, 10_000] {
        let mut bench = limited(limit);
        for start in (0..limit).step_by(500) {
            let outputs = bench.tell(received(1, numbered(start..limit.min(start + 500))));
            assert_eq!(codes(&outputs), None, "{limit}");
        }
        assert_eq!(bench.session.prefixes(), PrefixCount::Exactly(limit));
        bench.tell(received(1, numbered(0..limit.min(500))));
        assert_eq!(bench.state(), State::Established, "the same again");
        let outputs = bench.tell(received(1, numbered(limit..limit + 1)));
        assert_eq!(codes(&outputs), Some((code::CEASE, cease::MAX_PREFIXES)), "{limit}");
        let is_exceeded = |event: &&Event| matches!(event, Event::PrefixLimit { is_exceeded: true, .. });
        assert_eq!(events(&outputs).into_iter().filter(is_exceeded).count(), 1);
        assert_eq!(bench.session.reason(), format!("the neighbour announces more than {limit} prefixes"));
        assert_eq!((bench.state(), bench.due_in()), (State::Idle, Some(secs(300))));
    }
}

#[test]
fn beyond_ten_thousand_the_limit_is_held_to_about_two_percent() {
    let mut bench = limited(50_000);
    for start in (0..50_000).step_by(1000) {
        bench.tell(received(1, numbered(start..start + 1000)));
    }
    assert_eq!((bench.state(), bench.session.prefixes()), (State::Established, PrefixCount::AtLeast(10_000)));
    for start in (0..50_000).step_by(1000) {
        bench.tell(received(1, numbered(start..start + 1000)));
    }
    assert_eq!(bench.state(), State::Established, "the same again");
    let outputs = bench.tell(received(1, numbered(50_000..52_000)));
    assert_eq!(codes(&outputs), Some((code::CEASE, cease::MAX_PREFIXES)));
}

#[test]
fn three_quarters_of_the_limit_are_told_once_and_another_limit_takes_effect_at_once() {
    let mut bench = limited(100);
    bench.tell(received(1, numbered(0..74)));
    let outputs = bench.tell(received(1, numbered(74..75)));
    let near = Event::PrefixLimit { count: PrefixCount::Exactly(75), limit: 100, is_exceeded: false };
    assert!(events(&outputs).contains(&&near), "{outputs:?}");
    assert_eq!(events(&bench.tell(received(1, numbered(75..76)))).len(), 1, "once");
    let outputs = bench.tell(Input::Configure(Box::new(Config { max_prefixes: 75, ..config() })));
    assert_eq!(codes(&outputs), Some((code::CEASE, cease::MAX_PREFIXES)));
    let again = bench.tell(Input::Configure(Box::new(Config { max_prefixes: 750, ..config() })));
    assert_eq!((bench.state(), again.len()), (State::Connect, 2), "it waits no longer");
}
