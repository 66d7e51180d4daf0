//! Tests of the ownership state machine, which decides if a node announces an address: for each input, the
//! actions and reports must be as listed, line by line.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    kinds::{
        address::{Announcement, Candidate},
        advertisement::{InterfaceName, WhenIsolated},
        resource::ServiceKey,
    },
    primitives::{name::Name, quantity::Revision},
    wire::feed::AddressState,
};
use node_agent::announce::{
    machine::{
        ASK_AGAIN_TIME, CandidateOrder, Gate, Input, Liveness, ObservedStation, Output, Ownership, Party,
    },
    owners::{Ordering, Owners, Pair},
    words,
};

/// Test script for one address on node `b`: sends inputs to the state machine and compares its outputs. Times
/// are in milliseconds.
struct Script {
    begin: Instant,
    now: u64,
    ownership: Ownership,
    told: String,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn heard(party: Party) -> ObservedStation {
    ObservedStation { party, mac: "02:00:00:00:00:0a".to_owned(), interface: "eth0".to_owned() }
}

fn from(node: &str) -> ObservedStation {
    heard(Party::Candidate(name(node)))
}

impl Script {
    fn new() -> Self {
        let ownership = Ownership::new(name("b"));
        let mut script = Self { begin: Instant::now(), now: 0, ownership, told: String::new() };
        script.input("", Input::Control(true));
        script.told.clear();
        script
    }

    /// Creates the script of a node that can serve the address. The node has received the candidate order
    /// `order`, and `peers` contains the observed liveness of the other nodes.
    fn with(order: CandidateOrder, peers: &[(&str, Liveness)]) -> Self {
        let mut script = Self::new();
        script.input("", Input::Gate(Gate::Open));
        script.input("", Input::Ordered(order));
        for (peer, liveness) in peers {
            script.input("", Input::Peer(name(peer), *liveness));
        }
        script.told.clear();
        script
    }

    /// Creates the script of a node that has been the owner for a second and reaches `peers`.
    fn owner(order: CandidateOrder, peers: &[&str]) -> Self {
        let peers: Vec<_> = peers.iter().map(|peer| (*peer, Liveness::Up)).collect();
        let mut script = Self::with(order, &peers);
        assert_eq!(script.timeout(), [Output::Reannounce], "the reminder to candidates that have come up");
        script.told.clear();
        script
    }

    fn at(&self, ms: u64) -> Instant {
        self.begin + Duration::from_millis(ms)
    }

    fn input(&mut self, words: &str, input: Input) -> Vec<Output> {
        let outputs = self.ownership.handle(input, self.at(self.now), 0);
        let standing = words::standing(&self.ownership);
        let (role, reason) = standing.map_or(("-".to_owned(), "no part".to_owned()), |(role, reason)| {
            assert!(!reason.is_empty());
            (format!("{role:?}"), reason)
        });
        let line = format!("{:>6} {words}: {outputs:?} {role}: {reason}\n", self.now);
        self.told += &line;
        outputs
    }

    fn after(&mut self, ms: u64) -> &mut Self {
        self.now += ms;
        self
    }

    /// Advances the time to the next timeout of the state machine, and returns the outputs.
    fn timeout(&mut self) -> Vec<Output> {
        let due = self.ownership.poll_timeout().expect("something is awaited");
        self.now = self.now.max(u64::try_from((due - self.begin).as_millis()).unwrap());
        self.input("timeout", Input::Timeout)
    }

    #[track_caller]
    fn expect(&self, golden: &str) {
        let trim = |text: &str| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(trim(&self.told), trim(golden));
    }
}

fn order(epoch: u64, candidates: &str, is_old: bool) -> CandidateOrder {
    let candidates = candidates.split_whitespace().map(name).collect();
    CandidateOrder { epoch, candidates, when_isolated: WhenIsolated::Keep, is_old, probe_first: false }
}

#[test]
fn f117_the_first_of_a_new_order_announces_as_soon_as_it_is_able_and_withdraws_when_it_is_not() {
    let mut script = Script::new();
    script.input("order", Input::Ordered(order(1, "b c", false)));
    script.after(5).input("gate opens", Input::Gate(Gate::Open));
    script.after(5).input("gate closes", Input::Gate(Gate::Closed("refused".to_owned())));
    script.after(5).input("gate opens", Input::Gate(Gate::Open));
    script.after(300).input("silence", Input::Probed(None));
    script.after(5).input("order without it", Input::Ordered(order(2, "c", false)));
    script.after(20).input("c heard", Input::Heard(from("c")));
    script.expect(
        "0 order: [] Held: its Services have not been programmed since the start
         5 gate opens: [Announce] Owner: this node is the first of the candidates
        10 gate closes: [Withdraw] Held: refused
        15 gate opens: [Probe] Held: it asks whether somebody answers for the address, before it does
       315 silence: [Announce] Owner: no candidate before this node lives, and nobody answered for it
       320 order without it: [Quiet] Owner: another node is to announce it; this one goes on until that one is heard
       340 c heard: [Withdraw] -: no part",
    );
}

#[test]
fn f132_the_next_in_rank_takes_over_when_the_owner_falls_silent_and_keeps_it_when_that_one_returns() {
    let mut script = Script::with(order(1, "a b c", false), &[("a", Liveness::Up), ("c", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(5000).input("a returns", Input::Peer(name("a"), Liveness::Up));
    script.timeout();
    script.after(300).input("silence", Input::Probed(None));
    script.after(5000).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.expect(
        "0 a silent: [Announce] Owner: a, which announced it, fell silent
         5000 a returns: [] Owner: a, which announced it, fell silent
         7000 timeout: [Probe] Owner: a, which announced it, fell silent
         7300 silence: [] Owner: a, which announced it, fell silent
        12300 c silent: [] Owner: a, which announced it, fell silent",
    );
}

/// An address that no node has announced yet may be in use by another machine.
#[test]
fn f117_the_first_owner_of_a_new_address_probes_and_leaves_it_to_a_machine_that_uses_it() {
    let new = |epoch| CandidateOrder { probe_first: true, ..order(epoch, "b c", false) };
    let mut script = Script::new();
    script.input("gate opens", Input::Gate(Gate::Open));
    script.input("order", Input::Ordered(new(1)));
    script.after(100).input("another order", Input::Ordered(new(2)));
    script.after(200).input("silence", Input::Probed(None));
    script.expect(
        "0 gate opens: [] -: no part
         0 order: [Probe] Held: it asks whether somebody answers for the address, before it does
         100 another order: [] Held: it asks whether somebody answers for the address, before it does
         300 silence: [Announce] Owner: this node is the first of the candidates",
    );
    let mut script = Script::new();
    script.input("gate opens", Input::Gate(Gate::Open));
    script.input("order", Input::Ordered(new(1)));
    script.after(1).input("stranger answers", Input::Probed(Some(heard(Party::Stranger))));
    assert_eq!(script.ownership.conflict().unwrap().heard.party, Party::Stranger);
    script.timeout();
    script.after(300).input("silence", Input::Probed(None));
    script.expect(
        "0 gate opens: [] -: no part
         0 order: [Probe] Held: it asks whether somebody answers for the address, before it does
         1 stranger answers: [] Held: 02:00:00:00:00:0a on eth0, which is not a candidate, answers for it
         10001 timeout: [Probe] Held: it asks whether somebody answers for the address, before it does
         10301 silence: [Announce] Owner: no candidate before this node lives, and nobody answered for it",
    );
}

/// An owner whose link was interrupted probes before it announces again, even if it is first in the newest
/// candidate order, because another node may have taken over meanwhile.
#[test]
fn f117_an_owner_whose_link_was_cut_asks_before_it_announces_again() {
    let mut script = Script::with(order(1, "a b", false), &[("a", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(50).input("order", Input::Ordered(order(2, "b a", false)));
    script.after(50).input("link cut", Input::Gate(Gate::Closed("no link".to_owned())));
    script.after(900).input("link back", Input::Gate(Gate::Open));
    script.after(5).input("a answers", Input::Probed(Some(from("a"))));
    script.expect(
        "0 a silent: [Announce] Owner: a, which announced it, fell silent
         50 order: [] Owner: a, which announced it, fell silent
         100 link cut: [Withdraw] Held: no link
         1000 link back: [Probe] Held: it asks whether somebody answers for the address, before it does
         1005 a answers: [] Standby: a (02:00:00:00:00:0a on eth0) answers for it and keeps it",
    );
}

#[test]
fn f132_a_hand_over_is_taken_at_once_and_a_restart_is_waited_for() {
    let mut script = Script::with(order(1, "a b", false), &[("a", Liveness::Up)]);
    let until = script.at(10_000);
    script.input("a restarts", Input::Peer(name("a"), Liveness::Restarting { until }));
    script.after(4000).input("a is back", Input::Peer(name("a"), Liveness::Up));
    script.after(10).input("a hands over", Input::Peer(name("a"), Liveness::HandedOver));
    script.expect(
        "0 a restarts: [] Standby: a is before this node and restarts
         4000 a is back: [] Standby: a is before this node and lives
         4010 a hands over: [Announce] Owner: a, which announced it, handed over",
    );
    let mut script = Script::with(order(1, "a b", false), &[("a", Liveness::Up)]);
    let until = script.at(10_000);
    script.input("a restarts", Input::Peer(name("a"), Liveness::Restarting { until }));
    script.timeout();
    script.after(300).input("silence", Input::Probed(None));
    script.expect(
        "0 a restarts: [] Standby: a is before this node and restarts
         10000 timeout: [Probe] Held: it asks whether somebody answers for the address, before it does
         10300 silence: [Announce] Owner: no candidate before this node lives, and nobody answered for it",
    );
}

#[test]
fn f117_a_node_that_returns_asks_first_and_leaves_the_address_to_whoever_answers() {
    let mut script = Script::with(order(7, "b c", true), &[("c", Liveness::Up)]);
    script.input("c answers", Input::Probed(Some(from("c"))));
    script.timeout();
    script.after(10).input("c answers", Input::Probed(Some(from("c"))));
    script.after(10).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.expect(
        "0 c answers: [] Standby: c (02:00:00:00:00:0a on eth0) answers for it and keeps it
         10000 timeout: [Probe] Held: it asks whether somebody answers for the address, before it does
         10010 c answers: [] Standby: c (02:00:00:00:00:0a on eth0) answers for it and keeps it
         10020 c silent: [Announce] Owner: c, which announced it, fell silent",
    );
}

#[test]
fn f117_from_the_journal_a_lower_rank_waits_until_the_first_could_have_been_heard_and_then_asks() {
    let mut script = Script::new();
    let until = script.at(3000);
    script.input("gate opens", Input::Gate(Gate::Open));
    script.input("order", Input::Ordered(order(7, "a b", true)));
    script.input("a unheard", Input::Peer(name("a"), Liveness::Unknown { until }));
    script.timeout();
    script.after(300).input("silence", Input::Probed(None));
    script.expect(
        "0 gate opens: [] -: no part
         0 order: [] Standby: a is before this node and has not been heard yet
         0 a unheard: [] Standby: a is before this node and has not been heard yet
         3000 timeout: [Probe] Held: it asks whether somebody answers for the address, before it does
         3300 silence: [Announce] Owner: no candidate before this node lives, and nobody answered for it",
    );
}

#[test]
fn f124_of_two_that_announce_the_lower_rank_yields_and_the_higher_says_it_again_but_not_often() {
    let mut script = Script::with(order(1, "a b c", false), &[("a", Liveness::Up), ("c", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(10).input("c heard", Input::Heard(from("c")));
    for _ in 0..4 {
        script.after(200).input("c heard", Input::Heard(from("c")));
    }
    assert_eq!(script.ownership.conflict(), None, "a single defense is part of a takeover");
    script.after(400).input("c heard", Input::Heard(from("c")));
    assert_eq!(script.ownership.conflict().unwrap().heard, from("c"));
    script.after(10).input("a heard", Input::Heard(from("a")));
    script.expect(
        "0 a silent: [Announce] Owner: a, which announced it, fell silent
        10 c heard: [Reannounce] Owner: a, which announced it, fell silent
       210 c heard: [] Owner: a, which announced it, fell silent
       410 c heard: [] Owner: a, which announced it, fell silent
       610 c heard: [] Owner: a, which announced it, fell silent
       810 c heard: [] Owner: a, which announced it, fell silent
      1210 c heard: [Reannounce] Owner: a, which announced it, fell silent
      1220 a heard: [Withdraw] Standby: a (02:00:00:00:00:0a on eth0) answers for it and keeps it",
    );
    assert_eq!(script.ownership.conflict(), None, "the dispute has ended");
}

/// The new owner of a moved address is often received before the order. It is not defended against, and the
/// order is then followed at once.
#[test]
fn f117_a_new_owner_that_is_heard_before_the_order_is_not_defended_against() {
    let mut script = Script::owner(order(1, "b c", false), &["c"]);
    script.after(5000).input("c heard", Input::Heard(from("c")));
    script.after(30).input("order", Input::Ordered(order(2, "c b", false)));
    script.after(10).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.expect(
        "6000 c heard: [] Owner: this node is the first of the candidates
         6030 order: [Withdraw] Standby: c is before this node and lives
         6040 c silent: [Announce] Owner: c, which announced it, fell silent",
    );
    let mut script = Script::owner(order(1, "b c", false), &["c"]);
    script.after(5000).input("c heard", Input::Heard(from("c")));
    script.timeout();
    script.after(100).input("order", Input::Ordered(order(2, "c", false)));
    script.expect(
        "6000 c heard: [] Owner: this node is the first of the candidates
         6200 timeout: [Reannounce] Owner: this node is the first of the candidates
         6300 order: [Withdraw] -: no part",
    );
}

/// The previous owner may announce the address once more before it receives the order.
#[test]
fn f117_a_new_owner_answers_the_previous_one_at_once() {
    let mut script = Script::with(order(1, "c b", false), &[("c", Liveness::Up)]);
    script.after(5000).input("order", Input::Ordered(order(2, "b c", false)));
    script.after(20).input("c heard", Input::Heard(from("c")));
    script.expect(
        "5000 order: [Announce] Owner: this node is the first of the candidates
         5020 c heard: [Reannounce] Owner: this node is the first of the candidates",
    );
}

/// A node that was paused, or whose sessions have failed all at once, may have been replaced: it probes, and
/// leaves the address to a candidate that answers, whatever its rank. Because that one may do the same, it
/// probes again soon.
#[test]
fn f117_a_paused_or_isolated_owner_probes_and_leaves_the_address_to_whoever_has_taken_over() {
    let mut script = Script::with(order(1, "b c d", false), &[("c", Liveness::Up), ("d", Liveness::Up)]);
    script.after(5000).input("resumed", Input::Resumed);
    script.after(1).input("c answers", Input::Probed(Some(from("c"))));
    script.timeout();
    script.after(300).input("silence", Input::Probed(None));
    script.after(5000).input("d silent", Input::Peer(name("d"), Liveness::Down));
    script.after(10).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.after(300).input("silence", Input::Probed(None));
    script.after(700).input("d heard", Input::Heard(from("d")));
    script.expect(
        "5000 resumed: [Quiet, Probe] Owner: this node is the first of the candidates
         5001 c answers: [Withdraw] Standby: c (02:00:00:00:00:0a on eth0) answers for it and keeps it
         5501 timeout: [Probe] Held: it asks whether somebody answers for the address, before it does
         5801 silence: [Announce] Owner: no candidate before this node lives, and nobody answered for it
        10801 d silent: [] Owner: no candidate before this node lives, and nobody answered for it
        10811 c silent: [Quiet, Probe] Owner: no candidate before this node lives, and nobody answered for it
        11111 silence: [] Owner: no candidate before this node lives, and nobody answered for it
        11811 d heard: [Withdraw] Standby: d (02:00:00:00:00:0a on eth0) answers for it and keeps it",
    );
}

/// Two nodes that have taken over while no node received the other: the rank decides, and not both yield.
#[test]
fn f124_of_two_that_took_over_in_isolation_the_lower_rank_yields() {
    let mut script = Script::with(order(1, "a b c", false), &[("a", Liveness::Up), ("c", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(10).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.after(310).input("silence", Input::Probed(None));
    script.after(10).input("c heard", Input::Heard(from("c")));
    script.expect(
        "0 a silent: [Announce] Owner: a, which announced it, fell silent
        10 c silent: [Quiet, Probe] Owner: a, which announced it, fell silent
       320 silence: [] Owner: a, which announced it, fell silent
       330 c heard: [Reannounce] Owner: a, which announced it, fell silent",
    );
}

/// A standby that was paused probes before it takes over, because it may have missed packets of the owner.
#[test]
fn f132_a_standby_that_was_paused_probes_before_it_takes_over() {
    let mut script = Script::with(order(1, "a b", false), &[("a", Liveness::Up)]);
    script.after(5000).input("resumed", Input::Resumed);
    script.after(1).input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(1).input("a answers", Input::Probed(Some(from("a"))));
    script.after(1000).input("a returns", Input::Peer(name("a"), Liveness::Up));
    script.after(11_000).input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.expect(
        "5000 resumed: [] Standby: a is before this node and lives
         5001 a silent: [Probe] Held: it asks whether somebody answers for the address, before it does
         5002 a answers: [] Standby: a (02:00:00:00:00:0a on eth0) answers for it and keeps it
         6002 a returns: [] Standby: a is before this node and lives
        17002 a silent: [Announce] Owner: a, which announced it, fell silent",
    );
}

/// A session that fails again and again must fail for longer each time, and the owner is probed before a takeover.
#[test]
fn f132_an_owner_whose_session_fails_repeatedly_is_replaced_only_after_a_longer_failure() {
    let mut script = Script::with(order(1, "a b", false), &[("a", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(1).input("a heard", Input::Heard(from("a")));
    let mut holds = Vec::new();
    for _ in 0..6 {
        script.after(2000).input("a returns", Input::Peer(name("a"), Liveness::Up));
        script.after(1000).input("a silent", Input::Peer(name("a"), Liveness::Down));
        let since = script.now;
        assert_eq!(script.timeout(), [Output::Probe]);
        holds.push(script.now - since);
        script.after(1).input("a answers", Input::Probed(Some(from("a"))));
    }
    assert_eq!(holds, [1000, 2000, 4000, 8000, 8000, 8000]);
    script.after(1000).input("a returns", Input::Peer(name("a"), Liveness::Up));
    script.after(1000).input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.timeout();
    assert_eq!(script.after(300).input("silence", Input::Probed(None)), [Output::Announce]);
    script.after(1000).input("a returns", Input::Peer(name("a"), Liveness::Up));
    script.after(1).input("a heard", Input::Heard(from("a")));
    script.after(15_000).input("a silent", Input::Peer(name("a"), Liveness::Down));
    assert!(
        script.told.ends_with("[Announce] Owner: a, which announced it, fell silent\n"),
        "{}",
        script.told
    );
}

/// If two nodes have different candidate orders and each is first in its own, only the node whose name comes
/// first keeps the address.
#[test]
fn f124_where_orders_differ_exactly_one_of_two_yields() {
    let yields = |other: &str| {
        let mut script = Script::with(order(1, &format!("b {other}"), false), &[(other, Liveness::Up)]);
        for _ in 0..10 {
            if script.after(11_000).input("", Input::Heard(from(other))).contains(&Output::Withdraw) {
                return true;
            }
        }
        false
    };
    assert!(yields("a"), "b yields to a, which takes itself for the first as well");
    assert!(!yields("c"), "and c yields to b");
}

#[test]
fn f117_a_stranger_is_told_of_and_defended_against_every_ten_seconds_at_most() {
    let mut script = Script::with(order(1, "b c", false), &[]);
    let mut defences = 0;
    for _ in 0..100 {
        let outputs = script.after(1000).input("", Input::Heard(heard(Party::Stranger)));
        assert!(!outputs.contains(&Output::Withdraw), "a stranger takes nothing away");
        defences += outputs.len();
    }
    assert_eq!(defences, 10);
    assert_eq!(script.ownership.conflict().unwrap().heard.party, Party::Stranger);
    script.after(60_000).input("", Input::Timeout);
    assert_eq!(script.ownership.conflict(), None, "a conflict that is not heard any longer is forgotten");
}

/// A stranger that announces the address twice within the interval, and then no more, does not keep the clients.
#[test]
fn f117_an_announcement_of_a_stranger_soon_after_a_defense_is_answered_at_the_end_of_the_interval() {
    let mut script = Script::with(order(1, "b c", false), &[]);
    script.after(1000).input("stranger", Input::Heard(heard(Party::Stranger)));
    script.after(6200).input("stranger", Input::Heard(heard(Party::Stranger)));
    script.timeout();
    script.expect(
        "1000 stranger: [Reannounce] Owner: this node is the first of the candidates
         7200 stranger: [] Owner: this node is the first of the candidates
        11000 timeout: [Reannounce] Owner: this node is the first of the candidates",
    );
}

#[test]
fn f117_an_order_that_gives_the_address_away_is_followed_when_the_new_owner_is_heard_or_after_a_while() {
    let mut script = Script::with(order(1, "b c", false), &[("c", Liveness::Up)]);
    script.input("order", Input::Ordered(order(2, "c b", false)));
    script.input("c lives", Input::Peer(name("c"), Liveness::Up));
    script.timeout();
    script.expect(
        "0 order: [Quiet] Owner: another node is to announce it; this one goes on until that one is heard
         0 c lives: [] Owner: another node is to announce it; this one goes on until that one is heard
         2000 timeout: [Withdraw] Standby: c is before this node and lives",
    );
}

/// A node that is no longer a candidate leaves the address to another announcer, although it has no BFD
/// sessions and may not be able to identify that announcer.
#[test]
fn f117_what_is_given_away_is_left_to_whoever_announces_it() {
    let mut script = Script::with(order(1, "b c", false), &[("c", Liveness::Up)]);
    script.input("order without it", Input::Ordered(order(2, "c", false)));
    script.after(3).input("somebody heard", Input::Heard(heard(Party::Stranger)));
    script.expect(
        "0 order without it: [Quiet] Owner: another node is to announce it; this one goes on until that one is heard
         3 somebody heard: [Withdraw] -: no part",
    );
}

#[test]
fn f117_an_isolated_owner_is_silent_only_where_the_advertisement_says_so() {
    for (when_isolated, expected) in [
        (WhenIsolated::Keep, vec![Output::Quiet, Output::Probe]),
        (WhenIsolated::Withdraw, vec![Output::Withdraw]),
    ] {
        let order = CandidateOrder { when_isolated, ..order(1, "b c", false) };
        let mut script = Script::with(order, &[("c", Liveness::Up)]);
        assert!(script.input("", Input::Control(false)).is_empty(), "c is still reached");
        assert_eq!(script.input("", Input::Peer(name("c"), Liveness::Down)), expected);
        if when_isolated == WhenIsolated::Withdraw {
            assert_eq!(script.input("", Input::Control(true)), [Output::Probe]);
        }
    }
}

/// Nodes that left an address to another machine probe again after 10 s or up to 4 s later, so that they do not probe all at
/// the same time.
#[test]
fn f117_nodes_that_left_an_address_probe_again_at_different_times() {
    let mut delays = BTreeSet::new();
    for random in [0, 1000, 3999, 4000] {
        let mut script = Script::new();
        script.input("", Input::Gate(Gate::Open));
        script.input("", Input::Ordered(CandidateOrder { probe_first: true, ..order(1, "b c", false) }));
        let now = script.at(1);
        script.ownership.handle(Input::Probed(Some(heard(Party::Stranger))), now, random);
        let delay = script.ownership.poll_timeout().unwrap() - now;
        assert!(delay >= ASK_AGAIN_TIME && delay < ASK_AGAIN_TIME + Duration::from_secs(4), "{delay:?}");
        delays.insert(delay);
    }
    assert_eq!(delays.len(), 3, "{delays:?}");
}

/// The reachability of the control server concerns every address: an owner that reaches no other candidate withdraws an address
/// with `whenIsolated: Withdraw` when it loses the control server, and not before.
#[test]
fn f117_every_address_learns_whether_the_control_server_is_reached() {
    let [own, other, vip] =
        ["192.0.2.1", "192.0.2.2", "192.0.2.40"].map(|text| text.parse::<IpAddr>().unwrap());
    let service = ServiceKey::try_from("default/web".to_owned()).unwrap();
    let interfaces = BTreeSet::from([InterfaceName::try_from("eth0".to_owned()).unwrap()]);
    let candidate = |node, address| Candidate {
        node: name(node),
        address,
        interfaces: interfaces.clone(),
        peer_public_key: None,
    };
    let announcement = Announcement {
        epoch: 1,
        candidates: vec![candidate("b", own), candidate("c", other)],
        when_isolated: WhenIsolated::Withdraw,
        ..Announcement::default()
    };
    let services = BTreeSet::from([service.clone()]);
    let state = AddressState {
        address: vip,
        revision: Revision(1),
        services,
        announcement,
        peer_public_keys: BTreeMap::new(),
    };
    let now = Instant::now();
    let mut owners = Owners::new(name("b"));
    owners.set_control(true, now, 0);
    owners.set_gates([(service, Some(Gate::Open))], now, 0);
    let changing = BTreeSet::new();
    owners.set(
        Ordering { state: Arc::new(state), is_old: false, changing: &changing, unheard_until: now },
        now,
        0,
    );
    let pair = Pair { local: own, peer: other };
    owners.set_liveness(pair, Liveness::Up, now, 0);
    assert_eq!(owners.take_actions(), [(vip, Output::Announce)]);
    owners.set_liveness(pair, Liveness::Down, now, 0);
    let actions = owners.take_actions();
    assert!(!actions.contains(&(vip, Output::Withdraw)), "{actions:?}");
    owners.set_control(false, now, 0);
    assert_eq!(owners.take_actions(), [(vip, Output::Withdraw)]);
    owners.set_control(true, now, 0);
    assert_eq!(owners.take_actions(), [(vip, Output::Probe)]);
}
