//! Tests of the Adj-RIB-Out with a simulated neighbor, which must end with exactly the desired routes.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod neighbour;

use std::{collections::BTreeSet, fmt::Write as _, net::Ipv4Addr, path::Path, sync::Arc};

use bgp::{
    Attributes, Community, Family, Message, RefreshKind,
    attributes::{LargeCommunity, NextHop},
    export::{Route, Towards, attributes},
    rib::{RibOut, Terms},
    wire::{self, Context},
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use neighbour::Neighbour;
use proptest::prelude::*;

const V4: Family = Family::Ipv4Unicast;
const V6: Family = Family::Ipv6Unicast;
/// Byte limit for [`RibOut::take`]: more than all routes of any of these tests require, but low enough to end
/// an endless transmission.
const PLENTY: usize = 1 << 20;

fn terms(families: &[Family], enhanced_refresh: bool) -> Terms {
    let families = families.iter().copied().collect();
    Terms { families, context: context(), enhanced_refresh }
}

fn context() -> Context {
    Context { four_octet_as: true, is_external: true, ..Context::default() }
}

/// Returns one of a few prefixes of both families.
fn prefix(number: u8) -> IpNet {
    let byte = number / 2;
    if number.is_multiple_of(2) {
        Ipv4Net::new([192, 0, 2, byte].into(), if byte.is_multiple_of(3) { 24 } else { 32 })
            .unwrap()
            .trunc()
            .into()
    } else {
        Ipv6Net::new(format!("2001:db8::{byte:x}").parse().unwrap(), 128).unwrap().into()
    }
}

fn with_community(family: Family, number: u32) -> Arc<Attributes> {
    let next_hop = match family {
        V4 => NextHop::V4([192, 0, 2, 1].into()),
        V6 => NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None },
    };
    let route = Route { communities: [Community(number)].into(), ..Route::default() };
    let towards = Towards { local_asn: 64512, is_external: true, role: None, next_hop };
    Arc::new(attributes(&route, &towards))
}

fn hosts(count: u32) -> impl Iterator<Item = IpNet> {
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    (0..count).map(move |number| IpNet::from(Ipv4Net::new((first + number).into(), 32).unwrap()))
}

/// Creates an Adj-RIB-Out whose `count` host routes and End-of-RIB marker have been sent.
fn settled(count: u32) -> RibOut {
    let mut rib = RibOut::default();
    for host in hosts(count) {
        rib.set(host, Some(with_community(V4, 1)));
    }
    rib.begin(terms(&[V4, V6], true));
    rib.take(PLENTY);
    rib
}

fn update(message: &Message) -> &bgp::Update {
    let Message::Update(update) = message else { panic!("not an UPDATE: {message:?}") };
    update
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, Option<u8>),
    Take(usize),
    Refresh(Family),
    Lose,
    Establish { has_v6: bool, is_enhanced: bool },
    Hold(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let families = prop_oneof![Just(V4), Just(V6)];
    prop_oneof![
        12 => (0..40_u8, prop::option::of(0..4_u8)).prop_map(|(number, value)| Step::Set(number, value)),
        6 => (1..500_usize).prop_map(Step::Take),
        1 => families.prop_map(Step::Refresh),
        1 => Just(Step::Lose),
        1 => any::<(bool, bool)>().prop_map(|(has_v6, is_enhanced)| Step::Establish { has_v6, is_enhanced }),
        1 => any::<bool>().prop_map(Step::Hold),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// After any steps and any message sizes, the neighbor has exactly the desired routes, even if it retains
    /// routes of an earlier session until the End-of-RIB.
    #[test]
    fn the_neighbour_ends_with_exactly_what_is_wanted(steps in prop::collection::vec(step(), 1..120)) {
        let mut rib = RibOut::default();
        let mut neighbour = Neighbour::default();
        let mut wanted = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::Set(number, value) => {
                    let prefix = prefix(number);
                    let attributes = value.map(|value| with_community(Family::of(&prefix), value.into()));
                    match &attributes {
                        Some(attributes) => wanted.insert(prefix, (**attributes).clone()),
                        None => wanted.remove(&prefix),
                    };
                    rib.set(prefix, attributes);
                }
                Step::Take(bytes) => neighbour.hear(rib.take(bytes), &context()),
                Step::Refresh(family) => rib.refresh(family),
                Step::Lose => {
                    rib.end();
                    neighbour.lose();
                }
                Step::Establish { has_v6, is_enhanced } => {
                    neighbour.lose();
                    let families = if has_v6 { vec![V4, V6] } else { vec![V4] };
                    neighbour.establish(&families);
                    rib.begin(terms(&families, is_enhanced));
                }
                Step::Hold(is_held) => rib.hold_end_of_rib(is_held),
            }
            for (prefix, known) in neighbour.heard() {
                prop_assert_eq!(rib.told(prefix).map(|told| &**told), Some(known));
            }
            prop_assert_eq!(rib.len(), neighbour.heard().count());
        }
        neighbour.lose();
        neighbour.establish(&[V4, V6]);
        rib.begin(terms(&[V4, V6], true));
        rib.hold_end_of_rib(false);
        rib.refresh(V4);
        for _ in 0..1000 {
            neighbour.hear(rib.take(1), &context());
        }
        prop_assert!(!rib.has_news());
        prop_assert!(neighbour.is_complete());
        prop_assert_eq!(neighbour.table(), &wanted);
    }
}

#[test]
fn one_change_is_one_message_and_a_change_to_and_fro_is_none() {
    let mut rib = settled(1000);
    let host = hosts(8).last().unwrap();

    rib.set(host, Some(with_community(V4, 2)));
    let messages = rib.take(PLENTY);
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (update(&messages[0]).withdrawn.len(), update(&messages[0]).announced.as_slice()),
        (0, &[host][..])
    );

    rib.set(host, None);
    let messages = rib.take(PLENTY);
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (update(&messages[0]).withdrawn.as_slice(), update(&messages[0]).announced.len()),
        (&[host][..], 0)
    );
    assert_eq!(rib.len(), 999);

    rib.set(host, Some(with_community(V4, 1)));
    rib.set(host, None);
    let other = hosts(1).last().unwrap();
    rib.set(other, None);
    rib.set(other, Some(with_community(V4, 3)));
    rib.set(other, Some(with_community(V4, 1)));
    assert!(!rib.has_news());
    assert_eq!(rib.take(PLENTY), []);
}

#[test]
fn withdrawals_go_first_and_what_shares_attributes_shares_a_message() {
    let mut rib = settled(100);
    for (number, host) in hosts(60).enumerate() {
        let value = u32::try_from(number % 3).unwrap();
        rib.set(host, (value > 0).then(|| with_community(V4, 10 + value)));
    }
    let messages = rib.take(PLENTY);
    let sizes = messages.iter().map(|message| {
        let update = update(message);
        (update.withdrawn.len(), update.announced.len())
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(20, 0), (0, 20), (0, 20)]);
}

#[test]
fn every_family_is_ended_also_when_it_is_empty_but_not_while_more_is_to_come() {
    let mut rib = RibOut::default();
    rib.hold_end_of_rib(true);
    rib.begin(terms(&[V4, V6], false));
    assert!(!rib.has_news());
    rib.set(prefix(1), Some(with_community(V6, 1)));
    assert_eq!(rib.take(PLENTY).len(), 1);
    rib.hold_end_of_rib(false);
    let ends: Vec<_> = rib.take(PLENTY).iter().map(|message| update(message).end_of_rib).collect();
    assert_eq!(ends, [Some(V4), Some(V6)]);
    rib.begin(terms(&[V6], false));
    let ends: Vec<_> = rib.take(PLENTY).iter().map(|message| update(message).end_of_rib).collect();
    assert_eq!(ends, [None, Some(V6)]);
}

#[test]
fn what_comes_before_the_first_table_has_ended_belongs_to_it() {
    let mut rib = RibOut::default();
    rib.begin(terms(&[V4], false));
    for host in hosts(3) {
        rib.set(host, Some(with_community(V4, 1)));
    }
    rib.set(hosts(1).last().unwrap(), None);
    let said: Vec<_> = rib.take(PLENTY).iter().map(say).collect();
    assert_eq!(said, ["2 announced", "all of ipv4-unicast"]);
}

/// RFC 7313: a refresh sends BoRR, all routes and EoRR. Without Enhanced Route Refresh only the routes are
/// sent, and nothing for a family that was not negotiated.
#[test]
fn a_refresh_tells_everything_of_its_family_again() {
    let mut rib = settled(10);
    rib.set(prefix(1), Some(with_community(V6, 1)));
    rib.take(PLENTY);
    rib.refresh(V4);
    // Routes removed meanwhile are withdrawn and do not delay EoRR.
    rib.set(hosts(1).last().unwrap(), None);
    let said: Vec<_> = rib.take(PLENTY).iter().map(say).collect();
    assert_eq!(said, ["begin ipv4-unicast", "1 withdrawn", "9 announced", "end ipv4-unicast"]);

    rib.begin(terms(&[V4], false));
    rib.take(PLENTY);
    rib.refresh(V4);
    rib.refresh(V6);
    let said: Vec<_> = rib.take(PLENTY).iter().map(say).collect();
    assert_eq!(said, ["9 announced"]);
    assert!(!rib.has_news());
}

fn say(message: &Message) -> String {
    match message {
        Message::Refresh(refresh) => {
            let kind = match refresh.kind {
                RefreshKind::Begin => "begin",
                RefreshKind::End => "end",
                RefreshKind::Request | RefreshKind::Unknown(_) => "?",
            };
            format!("{kind} {}", refresh.family.unwrap())
        }
        Message::Update(update) => {
            match (update.end_of_rib, update.withdrawn.len(), update.announced.len()) {
                (Some(family), _, _) => format!("all of {family}"),
                (None, withdrawn, 0) => format!("{withdrawn} withdrawn"),
                (None, _, announced) => format!("{announced} announced"),
            }
        }
        Message::Open(_) | Message::Notification(_) | Message::Keepalive => "?".to_owned(),
    }
}

/// A route whose attributes leave no room for a prefix is withdrawn, and the other routes are sent.
#[test]
fn what_fits_into_no_message_is_withdrawn() {
    let mut rib = settled(2);
    let hosts: Vec<_> = hosts(2).collect();
    let large = (0..400).map(|number| LargeCommunity([1, 2, number])).collect::<BTreeSet<_>>();
    let huge = Attributes { large_communities: large, ..(*with_community(V4, 1)).clone() };
    rib.set(hosts[0], Some(Arc::new(huge.clone())));
    rib.set(hosts[1], Some(with_community(V4, 2)));
    let said: Vec<_> = rib.take(PLENTY).iter().map(say).collect();
    assert_eq!(said, ["1 withdrawn", "1 announced"]);
    assert!(rib.is_too_long(&hosts[0]) && rib.told(&hosts[0]).is_none());
    assert_eq!((rib.len(), rib.has_news()), (1, false));
    // Extended messages have room for it.
    let context = Context { extended_messages: true, ..context() };
    rib.begin(Terms { context, ..terms(&[V4], true) });
    rib.take(PLENTY);
    assert!(!rib.is_too_long(&hosts[0]) && rib.told(&hosts[0]).is_some());
}

/// 20,000 host routes with the attributes of two Advertisement objects are announced, changed and withdrawn
/// in the expected number of packed messages.
#[test]
fn packing_twenty_thousand_hosts() {
    let mut text = String::new();
    for is_extended in [false, true] {
        let context = Context { extended_messages: is_extended, ..context() };
        let mut rib = RibOut::default();
        let hosts: Vec<_> = hosts(20_000).collect();
        for (number, host) in hosts.iter().enumerate() {
            rib.set(*host, Some(with_community(V4, u32::from(number.is_multiple_of(4)))));
        }
        rib.begin(Terms { context, ..terms(&[V4], true) });
        writeln!(text, "messages of up to {} bytes", if is_extended { 65_535 } else { 4096 }).unwrap();
        write_packed(&mut text, "told", &rib.take(PLENTY), &context);
        for host in &hosts {
            rib.set(*host, Some(with_community(V4, 2)));
        }
        write_packed(&mut text, "changed", &rib.take(PLENTY), &context);
        for host in &hosts {
            rib.set(*host, None);
        }
        write_packed(&mut text, "withdrawn", &rib.take(PLENTY), &context);
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/packing.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&golden).unwrap_or_default(), text, "run with UPDATE_GOLDEN=1");
}

/// Writes messages as text, with their encoded lengths. Consecutive messages with the same text become one
/// line that starts with their number.
fn write_packed(text: &mut String, what: &str, messages: &[Message], context: &Context) {
    let mut runs: Vec<(usize, String)> = Vec::new();
    for message in messages {
        let line = format!("{}, {} bytes", say(message), wire::encode(message, context).unwrap().len());
        match runs.last_mut() {
            Some((count, last)) if *last == line => *count += 1,
            _ => runs.push((1, line)),
        }
    }
    writeln!(text, "  {what}: {} messages", messages.len()).unwrap();
    for (count, line) in runs {
        writeln!(text, "    {count} × {line}").unwrap();
    }
}
