//! Who answers for one address, as this node sees it. Pure: time and randomness are arguments.
//!
//! ```text
//!            order without this node, and nobody waits for it
//!   Away ◀───────────────────────────────────────────────────────────── any
//!    │ order with it
//!    ▼         nothing before it, and no proof that nobody answers
//!  Standby ───────────────────────────────────────────────▶ Probing
//!    │ ▲                                                       │ nobody answered
//!    │ └────── somebody answers; a gate closed ────────────────┤
//!    │ first of a new order; the owner fell silent             ▼
//!    └───────────────────────────────────────────────────────▶ Owner ──▶ Standby: a gate closed, an order or a
//!                                                                         candidate of higher rank took it away
//! ```
//! The first live candidate owns. Three rules keep an address where it is: a node that returns asks before it announces
//! and leaves the address to whoever answers; an owner stays owner when a candidate before it returns; of two that
//! announce, the one of higher rank stays. What must not happen here: an endless exchange of announcements (every
//! defence is limited in its rate), and an owner that gives an address up because it hears a stranger (RFC 5227 §2.4 (b)).

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

pub use super::terms::{Cause, Conflict, Gate, Heard, Input, Liveness, Order, Output, Party, Phase, Why};

/// Time for which an owner that an order has taken the address from goes on, unless it hears the new one sooner.
pub const LEAVE_TIME: Duration = Duration::from_secs(2);
/// Wait before a node asks again whether somebody answers for an address that it has left to somebody.
pub const ASK_AGAIN_TIME: Duration = Duration::from_secs(10);
/// Wait before a node that stands by asks whether the one before it does what it should, while control is not there to see
/// that; every further rank waits [`CHECK_STAGGER`] longer.
pub const CHECK_TIME: Duration = Duration::from_secs(30);
/// See [`CHECK_TIME`].
pub const CHECK_STAGGER: Duration = Duration::from_secs(3);
/// Time that the answer to a question may take before it counts as none.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
/// Wait after a candidate has returned before an owner says again that it is the owner.
pub const REMIND_TIME: Duration = Duration::from_secs(1);
/// Shortest time between two defences against a stranger (`DEFEND_INTERVAL` of RFC 5227 §1.1).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// Wait after the first defence against another candidate; doubles up to [`DEFEND_INTERVAL`].
pub const DEFEND_FLOOR: Duration = Duration::from_secs(1);
/// Defences against another candidate that does not yield, before the names decide.
pub const DEFENCES_MAX: u32 = 3;
/// Time for which a conflict is told after it was heard last.
pub const CONFLICT_TIME: Duration = Duration::from_secs(60);

/// What an owner has done against others that announce.
#[derive(Debug, Clone, Copy)]
struct Defence {
    last: Instant,
    wait: Duration,
    count: u32,
}

/// The ownership of one address as one node sees it.
#[derive(Debug, Clone)]
pub struct Ownership {
    me: Name,
    order: Order,
    /// Whether this node may announce as the first of the order without asking.
    is_fresh: bool,
    peers: BTreeMap<Name, Liveness>,
    gate: Gate,
    has_control: bool,
    phase: Phase,
    /// The candidate that was last known to announce.
    believed: Option<Name>,
    /// The epoch in which this node's ownership was last found right.
    claimed: u64,
    leave_at: Option<Instant>,
    ask_at: Option<Instant>,
    check_at: Option<Instant>,
    /// Whether it is asked although a candidate before this node lives.
    is_checking: bool,
    remind_at: Option<Instant>,
    defence: Option<Defence>,
    conflict: Option<Conflict>,
}

impl Ownership {
    /// An address of which nothing is known.
    #[must_use]
    pub fn new(me: Name) -> Self {
        Self {
            me,
            order: Order::default(),
            is_fresh: false,
            peers: BTreeMap::new(),
            gate: Gate::Closed("its Services have not been programmed since the start".to_owned()),
            has_control: false,
            phase: Phase::Away,
            believed: None,
            claimed: 0,
            leave_at: None,
            ask_at: None,
            check_at: None,
            is_checking: false,
            remind_at: None,
            defence: None,
            conflict: None,
        }
    }

    /// What this node does.
    #[must_use]
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The order that it follows.
    #[must_use]
    pub const fn order(&self) -> &Order {
        &self.order
    }

    /// The conflict heard of late.
    #[must_use]
    pub const fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref()
    }

    /// Its place among the candidates; 0 is the first.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.rank_of(&self.me)
    }

    /// Whether nobody of higher rank lives.
    #[must_use]
    pub fn is_first_live(&self) -> bool {
        self.before().all(|name| self.peers.get(name) != Some(&Liveness::Up))
    }

    /// Whether this node announces although an order has given the address to another.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        self.leave_at.is_some()
    }

    /// Takes what happened. `random` spreads questions that many nodes or addresses would ask at once.
    pub fn handle(&mut self, input: Input, now: Instant, random: u64) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Ordered(order) => self.follow(order),
            Input::Peer(name, liveness) => self.see(name, liveness, now, &mut outputs),
            Input::Gate(gate) => self.gate = gate,
            Input::Control(has_control) => self.has_control = has_control,
            Input::Heard(heard) => self.hear(heard, now, random, &mut outputs),
            Input::Probed(answer) => self.take_answer(answer, now, random, &mut outputs),
            Input::Timeout => {}
        }
        self.decide(now, &mut outputs);
        outputs
    }

    /// When [`Input::Timeout`] is due, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let patience = |liveness: &Liveness| match liveness {
            Liveness::Unknown { until } | Liveness::Restarting { until } => Some(*until),
            Liveness::Up | Liveness::Down | Liveness::HandedOver => None,
        };
        let waits = match &self.phase {
            Phase::Standby(Why::Unheard(name) | Why::Restarting(name)) => {
                self.peers.get(name).and_then(patience)
            }
            Phase::Standby(Why::Answered(_)) => self.ask_at,
            Phase::Standby(Why::Before(_)) => self.check_at,
            Phase::Probing(until) => Some(*until),
            Phase::Owner(_) if self.claimed != self.order.epoch && self.leave_at.is_none() => {
                self.before().filter_map(|name| self.peers.get(name).and_then(patience)).min()
            }
            Phase::Away | Phase::Standby(_) | Phase::Owner(_) => None,
        };
        let forgets = self.conflict.as_ref().map(|conflict| conflict.at + CONFLICT_TIME);
        [waits, self.leave_at, self.remind_at, forgets].into_iter().flatten().min()
    }

    fn follow(&mut self, order: Order) {
        let is_new = order.epoch != self.order.epoch || order.candidates != self.order.candidates;
        if is_new {
            self.is_fresh = !order.is_old;
            // Who announced in the order before may have been replaced; a new order is where everybody begins.
            self.believed = None;
            self.leave_at = None;
        }
        self.peers.retain(|name, _| order.candidates.contains(name));
        self.order = order;
    }

    fn see(&mut self, name: Name, liveness: Liveness, now: Instant, outputs: &mut Vec<Output>) {
        if !self.order.candidates.contains(&name) || name == self.me {
            return;
        }
        let rank = self.rank_of(&name);
        let previous = self.peers.insert(name, liveness);
        let has_returned = liveness == Liveness::Up && previous != Some(Liveness::Up);
        if has_returned && matches!(self.phase, Phase::Owner(_)) {
            // Whoever was cut off may have announced as well: it is asked if it would win, reminded if it would lose.
            if rank < self.rank() {
                outputs.push(Output::Probe);
            }
            self.remind_at.get_or_insert(now + REMIND_TIME);
        }
    }

    fn hear(&mut self, heard: Heard, now: Instant, random: u64, outputs: &mut Vec<Output>) {
        if let Party::Candidate(name) = &heard.party {
            self.believed = Some(name.clone());
        }
        match self.phase {
            Phase::Owner(_) => {}
            Phase::Probing(_) => return self.leave_to(heard, now, random, outputs),
            Phase::Away | Phase::Standby(_) => return,
        }
        let defence = self.defence.filter(|defence| now < defence.last + CONFLICT_TIME);
        if !self.wins_against(&heard.party, defence.map_or(0, |defence| defence.count)) {
            return self.leave_to(heard, now, random, outputs);
        }
        let floor = match heard.party {
            Party::Stranger => DEFEND_INTERVAL,
            Party::Candidate(_) => DEFEND_FLOOR,
        };
        self.believed = None;
        self.conflict = Some(Conflict { heard, at: now });
        let (wait, count) = match defence {
            Some(Defence { last, wait, .. }) if now < last + wait => return,
            Some(Defence { wait, count, .. }) => ((wait * 2).clamp(floor, DEFEND_INTERVAL), count + 1),
            None => (floor, 1),
        };
        self.defence = Some(Defence { last: now, wait, count });
        outputs.push(Output::Reannounce);
    }

    /// Whether this node stays owner beside another one that announces, too, after so many defences.
    fn wins_against(&self, party: &Party, defences: u32) -> bool {
        if self.leave_at.is_some() {
            // Whoever announces what is given away is the one who is waited for.
            return false;
        }
        let Party::Candidate(name) = party else { return true };
        match (self.rank(), self.rank_of(name)) {
            (None, _) => false,
            (Some(mine), Some(theirs)) if theirs < mine => false,
            // Each takes itself for the winner when they follow different orders; then the names decide.
            (Some(_), _) => defences < DEFENCES_MAX || self.me < *name,
        }
    }

    fn take_answer(&mut self, answer: Option<Heard>, now: Instant, random: u64, outputs: &mut Vec<Output>) {
        match (&self.phase, answer) {
            (Phase::Owner(_), Some(heard)) => self.hear(heard, now, random, outputs),
            (Phase::Probing(_), Some(heard)) => self.leave_to(heard, now, random, outputs),
            (Phase::Probing(_), None) => self.phase = Phase::Probing(now),
            (Phase::Away | Phase::Standby(_) | Phase::Owner(_), _) => {}
        }
    }

    /// Leaves the address to somebody who answers for it; whether that goes on is asked later.
    fn leave_to(&mut self, heard: Heard, now: Instant, random: u64, outputs: &mut Vec<Output>) {
        if let Party::Candidate(name) = &heard.party {
            self.believed = Some(name.clone());
            if let Some(liveness @ Liveness::Down) = self.peers.get_mut(name) {
                // It lives after all, only not for those who watch it; its silence proves nothing.
                *liveness = Liveness::Unknown { until: now };
            }
        } else {
            self.conflict = Some(Conflict { heard: heard.clone(), at: now });
        }
        self.is_fresh = false;
        let spread = Duration::from_millis(random % 4000);
        self.ask_at = Some(now + ASK_AGAIN_TIME + spread);
        self.stand_by(Why::Answered(heard), outputs);
    }

    fn decide(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if self.conflict.as_ref().is_some_and(|conflict| now >= conflict.at + CONFLICT_TIME) {
            self.conflict = None;
        }
        if self.remind_at.take_if(|at| now >= *at).is_some() && matches!(self.phase, Phase::Owner(_)) {
            outputs.push(Output::Reannounce);
        }
        match (&self.phase, self.rank()) {
            (Phase::Owner(_), _) => self.decide_as_owner(now, outputs),
            (_, None) => self.phase = Phase::Away,
            (_, Some(rank)) => self.decide_as_candidate(rank, now, outputs),
        }
    }

    fn decide_as_owner(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if let Some(why) = self.obstacle() {
            return self.stand_by(why, outputs);
        }
        if self.order.candidates.is_empty() {
            outputs.push(Output::Withdraw);
            self.end();
            self.phase = Phase::Away;
            return;
        }
        if self.claimed != self.order.epoch || self.rank().is_none() {
            match (self.rank(), self.live_before(now)) {
                (Some(_), None) => (self.claimed, self.leave_at) = (self.order.epoch, None),
                // It has not been heard; it announces when it lives, and that is heard.
                (Some(_), Some(Why::Unheard(_) | Why::Restarting(_))) => {}
                // An address may not be without an owner because the new one is slow.
                (Some(_) | None, _) => {
                    self.leave_at.get_or_insert(now + LEAVE_TIME);
                    // What is given away is not said to be ours.
                    self.remind_at = None;
                }
            }
        }
        if self.leave_at.is_some_and(|at| now >= at) {
            let why = self.live_before(now).unwrap_or(Why::Unordered);
            self.stand_by(why, outputs);
        }
    }

    fn decide_as_candidate(&mut self, rank: usize, now: Instant, outputs: &mut Vec<Output>) {
        if let Some(why) = self.obstacle() {
            return self.stand_by(why, outputs);
        }
        if let Some(why) = self.live_before(now) {
            return self.wait_behind(why, rank, now, outputs);
        }
        self.check_at = None;
        if rank == 0 && self.is_fresh {
            return self.claim(Cause::First, outputs);
        }
        match &self.phase {
            Phase::Standby(Why::Before(name)) if self.may_be_owner(name) => match self.how_it_ended(name) {
                Some(cause) => self.claim(cause, outputs),
                None => self.ask(now, outputs),
            },
            Phase::Standby(Why::Answered(Heard { party: Party::Candidate(name), .. })) => {
                match self.how_it_ended(name) {
                    Some(cause) => self.claim(cause, outputs),
                    None => self.ask_when_due(now, outputs),
                }
            }
            Phase::Standby(Why::Answered(_)) => self.ask_when_due(now, outputs),
            Phase::Probing(until) if now >= *until => self.claim(Cause::NobodyAnswered, outputs),
            Phase::Probing(_) | Phase::Owner(_) => {}
            Phase::Standby(_) | Phase::Away => self.ask(now, outputs),
        }
    }

    /// Stands by; while control cannot see that the one before does not serve the address, this node looks after it.
    fn wait_behind(&mut self, why: Why, rank: usize, now: Instant, outputs: &mut Vec<Output>) {
        if self.has_control || !matches!(why, Why::Before(_)) {
            self.check_at = None;
            return self.stand_by(why, outputs);
        }
        if let (Phase::Probing(until), true) = (&self.phase, self.is_checking) {
            if now >= *until {
                self.claim(Cause::NobodyAnswered, outputs);
            }
            return;
        }
        let stagger = CHECK_STAGGER * u32::try_from(rank).unwrap_or_default();
        let check_at = *self.check_at.get_or_insert(now + CHECK_TIME + stagger);
        if now < check_at {
            return self.stand_by(why, outputs);
        }
        self.check_at = None;
        self.ask(now, outputs);
        self.is_checking = true;
    }

    /// What keeps this node from announcing, whoever else lives.
    fn obstacle(&self) -> Option<Why> {
        if let Gate::Closed(why) = &self.gate {
            return Some(Why::Closed(why.clone()));
        }
        let is_alone = || !self.peers.values().any(|liveness| *liveness == Liveness::Up);
        let is_isolated =
            self.order.when_isolated == WhenIsolated::Withdraw && !self.has_control && is_alone();
        is_isolated.then_some(Why::Isolated)
    }

    /// The first candidate before this node that counts as alive.
    fn live_before(&self, now: Instant) -> Option<Why> {
        self.before().find_map(|name| match self.peers.get(name) {
            Some(Liveness::Up) => Some(Why::Before(name.clone())),
            Some(Liveness::Unknown { until }) => (now < *until).then(|| Why::Unheard(name.clone())),
            Some(Liveness::Restarting { until }) => (now < *until).then(|| Why::Restarting(name.clone())),
            Some(Liveness::Down | Liveness::HandedOver) => None,
            // It is not watched yet; that comes with the same order.
            None => Some(Why::Unheard(name.clone())),
        })
    }

    /// Whether the address was this candidate's, as far as is known here.
    fn may_be_owner(&self, name: &Name) -> bool {
        match &self.believed {
            Some(believed) => believed == name,
            None => !self.order.is_old,
        }
    }

    fn how_it_ended(&self, name: &Name) -> Option<Cause> {
        match self.peers.get(name)? {
            Liveness::Down => Some(Cause::Silent(name.clone())),
            Liveness::HandedOver => Some(Cause::HandedOver(name.clone())),
            Liveness::Up | Liveness::Unknown { .. } | Liveness::Restarting { .. } => None,
        }
    }

    fn ask_when_due(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if self.ask_at.is_none_or(|at| now >= at) {
            self.ask(now, outputs);
        }
    }

    fn ask(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        self.phase = Phase::Probing(now + PROBE_TIME_MAX);
        self.is_checking = false;
        outputs.push(Output::Probe);
    }

    fn claim(&mut self, cause: Cause, outputs: &mut Vec<Output>) {
        self.end();
        (self.is_fresh, self.claimed, self.believed) = (false, self.order.epoch, None);
        self.phase = Phase::Owner(cause);
        outputs.push(Output::Announce);
    }

    fn stand_by(&mut self, why: Why, outputs: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Owner(_)) {
            outputs.retain(|output| *output == Output::Probe);
            outputs.push(Output::Withdraw);
            self.end();
            // Also of an order that came while it announced: others may own the address when it could again.
            self.is_fresh = false;
        }
        self.phase = if self.rank().is_some() { Phase::Standby(why) } else { Phase::Away };
    }

    /// Forgets what belongs to being an owner.
    fn end(&mut self) {
        (self.leave_at, self.remind_at, self.defence) = (None, None, None);
    }

    fn before(&self) -> impl Iterator<Item = &Name> {
        self.order.candidates.iter().take_while(|name| **name != self.me)
    }

    fn rank_of(&self, name: &Name) -> Option<usize> {
        self.order.candidates.iter().position(|candidate| candidate == name)
    }
}
