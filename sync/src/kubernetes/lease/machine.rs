//! Leader election state machine of one candidate for a Lease. Pure: the inputs are the Lease as read and the
//! time, and the output is the next action.

use std::time::Duration;

/// Lease duration in a new or renewed Lease; the default of Kubernetes controllers.
pub(super) const DURATION: Duration = Duration::from_secs(15);
/// Renewal interval; two renewals may fail.
pub(super) const RENEW: Duration = Duration::from_secs(4);
/// Time without a successful renewal after which the holder stops, before another candidate may take over.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// Lease as read from the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseState {
    /// Identity of the holder; empty if the Lease is free.
    pub(super) holder: String,
    /// `leaseDurationSeconds` as written by the holder.
    pub(super) duration: Duration,
    /// Resource version, which changes with each renewal.
    pub(super) version: String,
}

/// Action that the candidate must take next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write the Lease with this candidate as its holder: acquisition or renewal.
    Take,
    /// Wait, because another candidate holds an unexpired Lease.
    Wait,
}

/// State of a candidate for the Lease. Clocks of machines are never compared: a Lease expires relative to the
/// local time at which its last renewal was observed.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    seen: Option<(LeaseState, Duration)>,
}

impl Candidate {
    /// Decides whether candidate `me` must write the Lease (acquire or renew it) or wait for its current
    /// holder. `read` is the Lease as just read; `None` if it does not exist. `now` is a monotonic time since
    /// any fixed moment.
    pub(super) fn judge(&mut self, me: &str, read: Option<LeaseState>, now: Duration) -> Verdict {
        let Some(read) = read else { return Verdict::Take };
        if read.holder.is_empty() || read.holder == me {
            return Verdict::Take;
        }
        let since = match &self.seen {
            Some((seen, since)) if seen.version == read.version => *since,
            Some(_) | None => now,
        };
        let is_over = now.saturating_sub(since) > read.duration;
        self.seen = Some((read, since));
        if is_over { Verdict::Take } else { Verdict::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, version: &str) -> Option<LeaseState> {
        Some(LeaseState { holder: holder.to_owned(), duration: DURATION, version: version.to_owned() })
    }

    #[test]
    fn a_lease_that_is_renewed_is_never_taken_and_one_that_is_not_is() {
        let mut candidate = Candidate::default();
        let at = Duration::from_secs;
        assert_eq!(candidate.judge("me", None, at(0)), Verdict::Take);
        assert_eq!(candidate.judge("me", seen("", "1"), at(0)), Verdict::Take);
        assert_eq!(candidate.judge("me", seen("me", "1"), at(0)), Verdict::Take);
        for second in 0..60 {
            let version = (second / 5).to_string();
            assert_eq!(candidate.judge("me", seen("you", &version), at(second)), Verdict::Wait, "{second}");
        }
        assert_eq!(candidate.judge("me", seen("you", "11"), at(70)), Verdict::Wait);
        assert_eq!(candidate.judge("me", seen("you", "11"), at(71)), Verdict::Take);
    }

    #[test]
    fn a_holder_stops_before_another_begins() {
        assert!(RENEW * 2 < DEADLINE && DEADLINE < DURATION);
    }
}
