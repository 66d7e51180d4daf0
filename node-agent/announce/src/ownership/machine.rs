//! Ownership state machine of one load balancer address on this node. Pure: time and randomness are
//! arguments.
//!
//! The control server sends an order: the ranked list of candidate nodes. The first live candidate in the
//! order owns (announces) the address. The gate of an address on a node is closed while the node cannot serve
//! the address.
//!
//! ```text
//!            order without this node, handover complete
//!   Away ◀───────────────────────────────────────────────────────────── any
//!    │ order with it
//!    ▼         no live candidate of higher rank, but an owner may exist
//!  Standby ───────────────────────────────────────────────▶ Probing
//!    │ ▲                                                       │ no reply
//!    │ └────── a reply; a gate closed ─────────────────────────┤
//!    │ first of a new order; the owner went down               ▼
//!    └───────────────────────────────────────────────────────▶ Owner ──▶ Standby: a gate closed, an order or a
//!                                                                         candidate of higher rank took it away
//! ```
//! Rules that keep the ownership stable: a returning node probes before it announces and leaves the address to
//! a node that replies, also if it was only paused or isolated; an owner remains owner when a candidate of
//! higher rank returns; if two nodes announce, the one of higher rank stays; a candidate whose session fails
//! repeatedly must fail for longer. Invariants: announcements never alternate endlessly (every defense is
//! rate-limited), and an owner does not give up an address because of a stranger, a station that is not a
//! candidate (RFC 5227 §2.4 (b)).

mod defence;
mod hold_down;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::{kinds::advertisement::WhenIsolated, primitives::name::Name};

use self::{defence::Defence, hold_down::SessionHistory};
pub use super::types::{
    CandidateOrder, Cause, Input, Liveness, ObservedStation, Output, OwnershipConflict, Party, Phase, Why,
};
pub use base::Gate;
pub use defence::{DEFENCES_MAX, DEFEND_FLOOR, DEFEND_INTERVAL, ORDER_WAIT};
pub use hold_down::{HOLD_DOWN, HOLD_DOWN_MAX, STEADY_TIME};

/// Maximum time for which the previous owner keeps announcing after a new candidate order has moved the
/// address. The previous owner stops earlier if it receives an announcement of the new one.
pub const LEAVE_TIME: Duration = Duration::from_secs(2);
/// Delay after which a node that left an address to another station probes again, to check that the station
/// still uses the address.
pub const ASK_AGAIN_TIME: Duration = Duration::from_secs(10);
/// Delay after which a standby node probes the address, to check that the candidate ranked before it really
/// announces the address. Applies while the control server is unreachable and cannot check this. Every
/// further rank waits [`CHECK_STAGGER`] longer.
pub const CHECK_TIME: Duration = Duration::from_secs(30);
/// Additional delay per rank (see [`CHECK_TIME`]), so that standby nodes do not probe at the same time.
pub const CHECK_STAGGER: Duration = Duration::from_secs(3);
/// Maximum duration of a probe. A longer probe is treated as unanswered.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
/// Delay after which an owner announces again when a candidate of lower rank has returned, in case that
/// candidate has announced the address.
pub const REMIND_TIME: Duration = Duration::from_secs(1);
/// Delay after which an owner probes the address when a candidate of higher rank has returned, in case that
/// candidate announces the address. The candidate leaves the address earlier if it was isolated.
pub const RETURN_CHECK_TIME: Duration = Duration::from_secs(2);
/// Time after a pause of the process in which failures of sessions may be a consequence of the pause.
pub const RESUME_TIME: Duration = Duration::from_secs(5);
/// Time after the failure of a session for which a node that reaches none of several other candidates may have
/// lost its own link.
pub const SUSPICION_TIME: Duration = Duration::from_secs(30);
/// Delay after which such a node repeats its announcement once, instead of the usual burst.
pub const LONELY_REMIND_TIME: Duration = Duration::from_secs(20);
/// Maximum time between the failures of two sessions that may have the same cause: the link of this node.
pub const SAME_CAUSE_TIME: Duration = Duration::from_secs(2);
/// Time for which a conflict is shown in the status after it was last observed.
pub const CONFLICT_TIME: Duration = Duration::from_secs(60);

/// Ownership of one load balancer address, from the perspective of one node.
#[derive(Debug, Clone)]
pub struct Ownership {
    me: Name,
    order: CandidateOrder,
    /// True if this node, as the first candidate, may announce without a probe.
    is_fresh: bool,
    peers: BTreeMap<Name, Liveness>,
    sessions: BTreeMap<Name, SessionHistory>,
    gate: Gate,
    has_control: bool,
    phase: Phase,
    /// Candidate that this node last observed to announce the address, or assumes to announce it.
    believed: Option<Name>,
    /// Epoch (version number) of the candidate order in which this node last became or remained owner; 0 if
    /// never.
    claimed: u64,
    owner_since: Option<Instant>,
    resumed_at: Option<Instant>,
    leave_at: Option<Instant>,
    ask_at: Option<Instant>,
    check_at: Option<Instant>,
    /// True if the running probe checks that a candidate of higher rank, which counts as alive, really
    /// announces.
    is_checking: bool,
    remind_at: Option<Instant>,
    defence: Defence,
    conflict: Option<OwnershipConflict>,
}

impl Ownership {
    /// Creates the ownership of an address, without candidates, for the node `me`.
    #[must_use]
    pub fn new(me: Name) -> Self {
        Self {
            me,
            order: CandidateOrder::default(),
            is_fresh: false,
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            gate: Gate::Closed("its Services have not been programmed since the start".to_owned()),
            has_control: false,
            phase: Phase::Away,
            believed: None,
            claimed: 0,
            owner_since: None,
            resumed_at: None,
            leave_at: None,
            ask_at: None,
            check_at: None,
            is_checking: false,
            remind_at: None,
            defence: Defence::default(),
            conflict: None,
        }
    }

    /// Returns the current phase of this node for the address (such as standby or owner).
    #[must_use]
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Returns the current order of the candidates for the address.
    #[must_use]
    pub const fn order(&self) -> &CandidateOrder {
        &self.order
    }

    /// Returns the last conflict with another announcer if it was observed within [`CONFLICT_TIME`].
    #[must_use]
    pub const fn conflict(&self) -> Option<&OwnershipConflict> {
        self.conflict.as_ref()
    }

    /// Returns the rank of this node among the candidates: 0 is the highest; `None` if it is not a candidate.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.rank_of(&self.me)
    }

    /// Returns true if no candidate of higher rank is alive.
    #[must_use]
    pub fn is_first_live(&self) -> bool {
        self.before().all(|name| self.peers.get(name) != Some(&Liveness::Up))
    }

    /// Returns true if this node still announces although a new candidate order has moved the address to
    /// another node.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        self.leave_at.is_some()
    }

    /// Processes an event and returns the actions to carry out, in order. `random` spreads probes that many
    /// nodes or addresses would otherwise send at the same time.
    pub fn handle(&mut self, input: Input, now: Instant, random: u64) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Ordered(order) => self.follow(order),
            Input::Peer(name, liveness) => self.see(name, liveness, now, &mut outputs),
            Input::Gate(gate) => self.gate = gate,
            Input::Control(has_control) => self.has_control = has_control,
            Input::Heard(heard) => self.hear(heard, now, random, &mut outputs),
            Input::Probed(answer) => self.take_answer(answer, now, random, &mut outputs),
            Input::Resumed => {
                self.resumed_at = Some(now);
                self.doubt(now, &mut outputs);
            }
            Input::Timeout => {}
        }
        self.decide(now, &mut outputs);
        outputs
    }

    /// Returns the time at which the caller must pass in [`Input::Timeout`], or `None` if no timer runs.
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
            Phase::Standby(Why::Unsteady(name)) => {
                self.sessions.get(name).and_then(SessionHistory::held_until)
            }
            Phase::Standby(Why::Before(_)) => self.check_at,
            Phase::Probing(until) => Some(*until),
            Phase::Owner(_) if self.claimed != self.order.epoch && self.leave_at.is_none() => {
                self.before().filter_map(|name| self.peers.get(name).and_then(patience)).min()
            }
            Phase::Away | Phase::Standby(_) | Phase::Owner(_) => None,
        };
        let forgets = self.conflict.as_ref().map(|conflict| conflict.at + CONFLICT_TIME);
        let checks = self.check_at.filter(|_| matches!(self.phase, Phase::Owner(_)));
        let defends = self.defence.poll_timeout();
        [waits, self.leave_at, self.remind_at, checks, defends, forgets].into_iter().flatten().min()
    }

    fn follow(&mut self, order: CandidateOrder) {
        let is_new = order.epoch != self.order.epoch || order.candidates != self.order.candidates;
        if is_new {
            self.is_fresh = !order.is_old;
            // The announcer under the previous order may have been replaced, so each new order starts without
            // a known announcer.
            self.believed = None;
            self.leave_at = None;
            self.is_checking = false;
        }
        self.peers.retain(|name, _| order.candidates.contains(name));
        self.sessions.retain(|name, _| order.candidates.contains(name));
        self.order = order;
    }

    fn see(&mut self, name: Name, liveness: Liveness, now: Instant, outputs: &mut Vec<Output>) {
        if !self.order.candidates.contains(&name) || name == self.me {
            return;
        }
        let (rank, was_alone) = (self.rank_of(&name), self.is_alone());
        let previous = self.peers.insert(name.clone(), liveness);
        self.sessions.entry(name).or_default().follow(previous, liveness, now);
        let has_returned = liveness == Liveness::Up && previous != Some(Liveness::Up);
        if !matches!(self.phase, Phase::Owner(_)) {
            return;
        }
        let is_cut_off = self.is_alone() && !was_alone && liveness == Liveness::Down;
        if is_cut_off || (has_returned && was_alone && previous == Some(Liveness::Down)) {
            // The others may have declared this node down and have taken over.
            self.doubt(now, outputs);
        } else if has_returned && rank < self.rank() {
            // A node that was partitioned may have announced as well. Probe it if it would win, announce to
            // it if it would lose.
            self.check_at.get_or_insert(now + RETURN_CHECK_TIME);
        } else if has_returned {
            self.remind_at.get_or_insert(now + REMIND_TIME);
        }
    }

    /// Returns the times of the last failures of sessions that may have the same cause.
    fn last_failures(&self) -> impl Iterator<Item = Instant> {
        let failures = || self.sessions.values().filter_map(SessionHistory::down_at);
        let last = failures().max();
        failures().filter(move |at| last.is_some_and(|last| *at + SAME_CAUSE_TIME >= last))
    }

    /// Returns true if no other candidate is up.
    fn is_alone(&self) -> bool {
        !self.peers.values().any(|liveness| *liveness == Liveness::Up)
    }

    fn take_answer(
        &mut self,
        answer: Option<ObservedStation>,
        now: Instant,
        random: u64,
        outputs: &mut Vec<Output>,
    ) {
        match (&self.phase, answer) {
            (Phase::Owner(_), Some(heard)) => self.hear(heard, now, random, outputs),
            (Phase::Owner(_), None) => _ = self.defence.end_doubt(),
            (Phase::Probing(_), Some(heard)) => self.leave_to(heard, now, random, outputs),
            (Phase::Probing(_), None) => self.phase = Phase::Probing(now),
            (Phase::Away | Phase::Standby(_), _) => {}
        }
    }

    /// Enters standby because another station has replied to a probe or announced the address, and schedules
    /// another probe after [`ASK_AGAIN_TIME`].
    fn leave_to(&mut self, heard: ObservedStation, now: Instant, random: u64, outputs: &mut Vec<Output>) {
        if let Party::Candidate(name) = &heard.party {
            self.believed = Some(name.clone());
            self.conflict = None;
            if let Some(liveness @ Liveness::Down) = self.peers.get_mut(name) {
                // The node is alive, although not for the monitor, so its session state proves nothing.
                *liveness = Liveness::Unknown { until: now };
            }
        } else {
            self.conflict = Some(OwnershipConflict { heard: heard.clone(), at: now });
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
        if matches!(self.phase, Phase::Owner(_)) {
            if self.remind_at.take_if(|at| now >= *at).is_some() {
                outputs.push(Output::Reannounce);
                if self.may_be_cut_off(now) {
                    outputs.push(Output::Quiet);
                }
            }
            if self.check_at.take_if(|at| now >= *at).is_some() {
                outputs.push(Output::Probe);
            }
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
                // Not received yet. If the node is alive, it announces, and its announcement will be
                // received.
                (Some(_), Some(Why::Unheard(_) | Why::Restarting(_) | Why::Unsteady(_))) => {}
                (Some(_) | None, why) if self.was_replaced(now) => {
                    return self.stand_by(why.unwrap_or(Why::Unordered), outputs);
                }
                // The address must not be without an owner because the new one is slow.
                (Some(_) | None, _) if self.leave_at.is_none() => {
                    self.leave_at = Some(now + LEAVE_TIME);
                    // An address that is handed over is not announced again.
                    (self.remind_at, self.check_at) = (None, None);
                    self.defence.cancel();
                    outputs.push(Output::Quiet);
                }
                (Some(_) | None, _) => {}
            }
        }
        if self.leave_at.is_some_and(|at| now >= at) {
            let why = self.live_before(now).unwrap_or(Why::Unordered);
            return self.stand_by(why, outputs);
        }
        self.defend_when_due(now, outputs);
    }

    /// Returns true if a candidate that the new order ranks before this node has announced the address already,
    /// which was received before the order.
    fn was_replaced(&mut self, now: Instant) -> bool {
        let Some(rival) = self.defence.recent_rival(now) else { return false };
        let is_before = match (self.rank(), self.rank_of(rival)) {
            (Some(mine), Some(theirs)) => theirs < mine,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_before {
            self.believed = Some(rival.clone());
        }
        is_before
    }

    fn decide_as_candidate(&mut self, rank: usize, now: Instant, outputs: &mut Vec<Output>) {
        if let Some(why) = self.obstacle() {
            return self.stand_by(why, outputs);
        }
        if let Some(why) = self.live_before(now) {
            return self.wait_behind(why, rank, now, outputs);
        }
        self.check_at = None;
        if rank == 0 && self.is_fresh && !self.order.probe_first {
            return self.claim(Cause::First, now, outputs);
        }
        match &self.phase {
            Phase::Probing(until) if now >= *until && rank == 0 && self.is_fresh => {
                self.claim(Cause::First, now, outputs);
            }
            Phase::Standby(Why::Before(name)) if self.may_be_owner(name) => match self.how_it_ended(name) {
                Some(cause) => self.succeed(cause, now, outputs),
                None => self.ask(now, outputs),
            },
            Phase::Standby(Why::Answered(ObservedStation { party: Party::Candidate(name), .. })) => {
                match self.how_it_ended(name) {
                    Some(cause) => self.succeed(cause, now, outputs),
                    None => self.ask_when_due(now, outputs),
                }
            }
            Phase::Standby(Why::Answered(_)) => self.ask_when_due(now, outputs),
            Phase::Probing(until) if now >= *until => self.claim(Cause::NobodyAnswered, now, outputs),
            Phase::Probing(_) | Phase::Owner(_) => {}
            Phase::Standby(_) | Phase::Away => self.ask(now, outputs),
        }
    }

    /// Enters standby for the reason `why`. While the control server is unreachable, also schedules a probe,
    /// because then only this node can detect that the candidate ranked before it does not announce.
    fn wait_behind(&mut self, why: Why, rank: usize, now: Instant, outputs: &mut Vec<Output>) {
        if self.has_control || !matches!(why, Why::Before(_)) {
            self.check_at = None;
            return self.stand_by(why, outputs);
        }
        if let (Phase::Probing(until), true) = (&self.phase, self.is_checking) {
            if now >= *until {
                self.claim(Cause::NobodyAnswered, now, outputs);
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

    /// Returns the reason why this node must not announce, regardless of other candidates: the node cannot
    /// serve the address, or is isolated.
    fn obstacle(&self) -> Option<Why> {
        if let Gate::Closed(why) = &self.gate {
            return Some(Why::Closed(why.clone()));
        }
        let is_isolated =
            self.order.when_isolated == WhenIsolated::Withdraw && !self.has_control && self.is_alone();
        is_isolated.then_some(Why::Isolated)
    }

    /// Returns the first candidate of higher rank that counts as alive, as a reason for standby, or `None` if
    /// there is none.
    fn live_before(&self, now: Instant) -> Option<Why> {
        self.before().find_map(|name| match self.peers.get(name) {
            Some(Liveness::Up) => Some(Why::Before(name.clone())),
            Some(Liveness::Unknown { until }) => (now < *until).then(|| Why::Unheard(name.clone())),
            Some(Liveness::Restarting { until }) => (now < *until).then(|| Why::Restarting(name.clone())),
            Some(Liveness::Down) => {
                let held_until = self.sessions.get(name).and_then(SessionHistory::held_until);
                held_until.is_some_and(|until| now < until).then(|| Why::Unsteady(name.clone()))
            }
            Some(Liveness::HandedOver) => None,
            // Not monitored yet; monitoring starts with the same order.
            None => Some(Why::Unheard(name.clone())),
        })
    }

    /// Returns true if this candidate may currently own the address, according to the observations of this
    /// node.
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

    /// Takes the address over from its owner. Probes first if the silence of the owner proves little: its
    /// session fails repeatedly, or this node was paused and may have missed its packets.
    fn succeed(&mut self, cause: Cause, now: Instant, outputs: &mut Vec<Output>) {
        let is_doubtful = match &cause {
            Cause::Silent(name) => {
                self.resumed_at.is_some_and(|at| now < at + RESUME_TIME)
                    || self.sessions.get(name).is_some_and(SessionHistory::is_unsteady)
            }
            Cause::First | Cause::HandedOver(_) | Cause::NobodyAnswered => false,
        };
        if is_doubtful { self.ask(now, outputs) } else { self.claim(cause, now, outputs) }
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

    fn claim(&mut self, cause: Cause, now: Instant, outputs: &mut Vec<Output>) {
        self.end();
        (self.is_fresh, self.claimed, self.believed) = (false, self.order.epoch, None);
        self.owner_since = Some(now);
        self.phase = Phase::Owner(cause);
        outputs.push(Output::Announce);
        if self.may_be_cut_off(now) {
            self.remind_at = Some(now + LONELY_REMIND_TIME);
            outputs.push(Output::Quiet);
        }
    }

    /// Returns true if this node may have lost its link: it reaches none of several other candidates since a
    /// recent failure. Repeated announcements would then take the address from its owner at the moment the link
    /// works again.
    fn may_be_cut_off(&self, now: Instant) -> bool {
        let failures = self.sessions.values().filter_map(SessionHistory::down_at);
        self.is_alone()
            && self.order.candidates.len() > 2
            && failures.max().is_some_and(|at| now <= at + SUSPICION_TIME)
    }

    fn stand_by(&mut self, why: Why, outputs: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Owner(_)) {
            outputs.clear();
            outputs.push(Output::Withdraw);
            self.end();
            // Also applies to an order received while the gate was closed: another node may own the address
            // when it opens.
            self.is_fresh = false;
        }
        self.phase = if self.rank().is_some() { Phase::Standby(why) } else { Phase::Away };
    }

    /// Stops the timers for defense, handover, reminder and check when this node is no longer the owner.
    fn end(&mut self) {
        (self.leave_at, self.remind_at, self.check_at, self.owner_since) = (None, None, None, None);
        self.defence = Defence::default();
    }

    fn before(&self) -> impl Iterator<Item = &Name> {
        self.order.candidates.iter().take_while(|name| **name != self.me)
    }

    fn rank_of(&self, name: &Name) -> Option<usize> {
        self.order.candidates.iter().position(|candidate| candidate == name)
    }
}
