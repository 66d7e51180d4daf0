//! Tests of the ownership state machine, which decides if a node announces an address: for each input, the
//! actions and reports must be as listed, line by line.

use std::time::{Duration, Instant};

use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};
use node_agent::announce::{
    machine::{CandidateOrder, Gate, Input, Liveness, ObservedStation, Output, Ownership, Party},
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
    CandidateOrder { epoch, candidates, when_isolated: WhenIsolated::Keep, is_old }
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
       320 order without it: [] Owner: another node is to announce it; this one goes on until that one is heard
       340 c heard: [Withdraw] -: no part",
    );
}

#[test]
fn f132_the_next_in_rank_takes_over_when_the_owner_falls_silent_and_keeps_it_when_that_one_returns() {
    let mut script = Script::with(order(1, "a b c", false), &[("a", Liveness::Up), ("c", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(5000).input("a returns", Input::Peer(name("a"), Liveness::Up));
    script.after(300).input("silence", Input::Probed(None));
    script.timeout();
    script.after(5000).input("c silent", Input::Peer(name("c"), Liveness::Down));
    script.expect(
        "0 a silent: [Announce] Owner: a, which announced it, fell silent
         5000 a returns: [Probe] Owner: a, which announced it, fell silent
         5300 silence: [] Owner: a, which announced it, fell silent
         6000 timeout: [Reannounce] Owner: a, which announced it, fell silent
        11000 c silent: [] Owner: a, which announced it, fell silent",
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
    let mut script = Script::with(order(1, "a b c", false), &[("a", Liveness::Up)]);
    script.input("a silent", Input::Peer(name("a"), Liveness::Down));
    script.after(10).input("c heard", Input::Heard(from("c")));
    for _ in 0..4 {
        script.after(200).input("c heard", Input::Heard(from("c")));
    }
    script.after(400).input("c heard", Input::Heard(from("c")));
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
    assert!(script.ownership.conflict().is_some());
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

#[test]
fn f117_an_order_that_gives_the_address_away_is_followed_when_the_new_owner_is_heard_or_after_a_while() {
    let mut script = Script::with(order(1, "b c", false), &[("c", Liveness::Up)]);
    script.input("order", Input::Ordered(order(2, "c b", false)));
    script.input("c lives", Input::Peer(name("c"), Liveness::Up));
    script.timeout();
    script.expect(
        "0 order: [] Owner: another node is to announce it; this one goes on until that one is heard
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
        "0 order without it: [] Owner: another node is to announce it; this one goes on until that one is heard
         3 somebody heard: [Withdraw] -: no part",
    );
}

#[test]
fn f117_an_isolated_owner_is_silent_only_where_the_advertisement_says_so() {
    for (when_isolated, expected) in
        [(WhenIsolated::Keep, vec![]), (WhenIsolated::Withdraw, vec![Output::Withdraw])]
    {
        let order = CandidateOrder { when_isolated, ..order(1, "b c", false) };
        let mut script = Script::with(order, &[("c", Liveness::Up)]);
        assert!(script.input("", Input::Control(false)).is_empty(), "c is still reached");
        assert_eq!(script.input("", Input::Peer(name("c"), Liveness::Down)), expected);
        if when_isolated == WhenIsolated::Withdraw {
            assert_eq!(script.input("", Input::Control(true)), [Output::Probe]);
        }
    }
}
