//! Reaction of an owner to other announcers: defenses with a limited rate (RFC 5227 §2.4), and doubt if another
//! candidate may have taken over while this node was paused or isolated.

use std::time::{Duration, Instant};

use model::primitives::name::Name;

use super::{
    CONFLICT_TIME, LEAVE_TIME, LONELY_REMIND_TIME, ObservedStation, Output, Ownership, OwnershipConflict,
    PROBE_TIME_MAX, Party, Phase,
};

/// Minimum time between two defenses (announcements in reply to another announcer) against a station that is
/// not a candidate; `DEFEND_INTERVAL` of RFC 5227 §1.1.
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between the first defense (announcement in reply to another announcer) against a candidate
/// and the next one. Doubles with each defense, up to [`DEFEND_INTERVAL`].
pub const DEFEND_FLOOR: Duration = Duration::from_secs(1);
/// Number of defenses (announcements in reply) against another candidate, after which the node whose name
/// comes first in sort order wins.
pub const DEFENCES_MAX: u32 = 3;
/// Delay of a defense against another candidate. If the control server has moved the address, the new owner is
/// usually received before the new candidate order, and a defense would move the clients back.
pub const ORDER_WAIT: Duration = Duration::from_millis(200);
/// Delay after which a node that left an address in doubt to a candidate of lower rank probes again, because
/// the candidate may have left the address as well.
const RECHECK_TIME: Duration = Duration::from_millis(500);

/// State of the current series of defenses (announcements in reply to another announcer, RFC 5227 §2.4).
#[derive(Debug, Clone, Copy)]
struct Series {
    last: Instant,
    wait: Duration,
    count: u32,
}

/// Defenses of an owner.
#[derive(Debug, Clone, Default)]
pub(super) struct Defence {
    series: Option<Series>,
    /// Time of the next defense, with the station against which it is directed.
    due: Option<(Instant, ObservedStation)>,
    /// Candidate that this node last observed to announce the address while it was the owner.
    rival: Option<(Name, Instant)>,
    /// Time until which a reply to a probe ends the ownership, because another candidate may have taken over.
    doubt_until: Option<Instant>,
}

impl Defence {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let defends_at = self.due.as_ref().map(|(at, _)| *at);
        [defends_at, self.doubt_until].into_iter().flatten().min()
    }

    /// Returns the candidate that announced the address recently.
    pub(super) fn recent_rival(&self, now: Instant) -> Option<&Name> {
        self.rival.as_ref().filter(|(_, at)| now <= *at + LEAVE_TIME).map(|(name, _)| name)
    }

    /// Drops a planned defense, because the address is handed over.
    pub(super) fn cancel(&mut self) {
        (self.due, self.doubt_until) = (None, None);
    }

    /// Ends the doubt. Returns true if there was one.
    pub(super) fn end_doubt(&mut self) -> bool {
        self.doubt_until.take().is_some()
    }

    fn count(&self, now: Instant) -> u32 {
        self.recent(now).map_or(0, |series| series.count)
    }

    fn recent(&self, now: Instant) -> Option<Series> {
        self.series.filter(|series| now < series.last + CONFLICT_TIME)
    }
}

impl Ownership {
    /// Processes an announcement of the address by another station.
    pub(super) fn hear(
        &mut self,
        heard: ObservedStation,
        now: Instant,
        random: u64,
        outputs: &mut Vec<Output>,
    ) {
        if let Party::Candidate(name) = &heard.party {
            self.believed = Some(name.clone());
        }
        match self.phase {
            Phase::Owner(_) => {}
            Phase::Probing(_) => return self.leave_to(heard, now, random, outputs),
            Phase::Away | Phase::Standby(_) => return,
        }
        let other_rank = match &heard.party {
            Party::Candidate(name) => self.rank_of(name),
            Party::Stranger => None,
        };
        let yields_in_doubt = other_rank.is_some() && (self.defence.end_doubt() || self.is_isolated_owner());
        if yields_in_doubt || !self.wins_against(&heard.party, now) {
            self.leave_to(heard, now, random, outputs);
            if yields_in_doubt && other_rank > self.rank() {
                self.ask_at = Some(now + RECHECK_TIME);
            }
            return;
        }
        self.believed = None;
        let allowed_at = self.defence.recent(now).map_or(now, |series| now.max(series.last + series.wait));
        let at = match &heard.party {
            Party::Stranger => {
                self.conflict = Some(OwnershipConflict { heard: heard.clone(), at: now });
                allowed_at
            }
            Party::Candidate(name) => {
                self.defence.rival = Some((name.clone(), now));
                // The previous owner may not have received the order by which this node became owner.
                let is_new = self.owner_since.is_some_and(|since| now < since + LEAVE_TIME);
                if is_new { allowed_at } else { allowed_at.max(now + ORDER_WAIT) }
            }
        };
        if self.defence.due.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
            self.defence.due = Some((at, heard));
        }
    }

    /// Announces the address again if a defense is due, and ends an unanswered doubt.
    pub(super) fn defend_when_due(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        if self.defence.doubt_until.is_some_and(|until| now >= until) {
            self.defence.doubt_until = None;
        }
        let Some((_, heard)) = self.defence.due.take_if(|(at, _)| now >= *at) else { return };
        let is_candidate = matches!(heard.party, Party::Candidate(_));
        let floor = if is_candidate { DEFEND_FLOOR } else { DEFEND_INTERVAL };
        let (wait, count) = match self.defence.recent(now) {
            Some(Series { wait, count, .. }) => ((wait * 2).clamp(floor, DEFEND_INTERVAL), count + 1),
            None => (floor, 1),
        };
        self.defence.series = Some(Series { last: now, wait, count });
        if is_candidate && count > 1 {
            // A single defense is part of a move or a takeover.
            self.conflict = Some(OwnershipConflict { heard, at: now });
        }
        outputs.push(Output::Reannounce);
    }

    /// Stops repeated announcements and probes for another owner, because this node may have missed a takeover: it
    /// was paused or isolated. While the probe runs, this node still replies to requests.
    pub(super) fn doubt(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        let has_others = self.order.candidates.iter().any(|name| *name != self.me);
        if matches!(self.phase, Phase::Owner(_)) && self.leave_at.is_none() && has_others {
            self.check_at = None;
            let took_over = self.may_be_cut_off(now) && !self.is_isolated_owner();
            self.remind_at = took_over.then(|| now + LONELY_REMIND_TIME);
            self.defence.due = None;
            self.defence.doubt_until = Some(now + PROBE_TIME_MAX);
            outputs.extend([Output::Quiet, Output::Probe]);
        }
    }

    /// Returns true if the sessions with all other candidates failed while this node was the owner. An
    /// announcement of another candidate then shows that the others have declared this node down.
    fn is_isolated_owner(&self) -> bool {
        let (Some(since), Some(cut_at)) = (self.owner_since, self.last_failures().min()) else {
            return false;
        };
        self.is_alone() && since < cut_at
    }

    /// Returns true if this node remains owner against another announcer. A node yields if it is handing over,
    /// or if it is not a candidate and the announcer is one. An owner does not yield to a stranger. A candidate
    /// of higher rank wins. Against one of lower rank this node remains owner; after [`DEFENCES_MAX`] defenses,
    /// the node whose name comes first wins.
    fn wins_against(&self, party: &Party, now: Instant) -> bool {
        if self.leave_at.is_some() {
            // We are handing this address over, so another announcer is expected.
            return false;
        }
        let Party::Candidate(name) = party else { return true };
        match (self.rank(), self.rank_of(name)) {
            (None, _) => false,
            (Some(mine), Some(theirs)) if theirs < mine => false,
            // With different orders each node may consider itself the winner; then the names decide.
            (Some(_), _) => self.defence.count(now) < DEFENCES_MAX || self.me < *name,
        }
    }
}
