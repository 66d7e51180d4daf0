//! Who leads, by a Lease that is renewed while its holder lives. Pure: what is read and the time go in, what to do comes out.

use std::time::Duration;

/// How long a Lease counts after it was seen to be renewed: the figure of the cluster's own controllers.
pub(super) const DURATION: Duration = Duration::from_secs(15);
/// How often the holder renews it: twice may fail.
pub(super) const RENEW: Duration = Duration::from_secs(4);
/// After this long without a renewal the holder stops: before anybody else may begin.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// A Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Who holds it; empty when nobody does.
    pub(super) holder: String,
    /// How long it counts, as its holder says.
    pub(super) duration: Duration,
    /// Differs when it was renewed.
    pub(super) version: String,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write it, with our name.
    Take,
    /// It is another's.
    Wait,
}

/// What a candidate knows. Clocks of machines are never compared: what counts is how long ago we saw a renewal.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    seen: Option<(Seen, Duration)>,
}

impl Candidate {
    /// Judges a Lease. `now` is the time since any fixed moment.
    pub(super) fn judge(&mut self, me: &str, read: Option<Seen>, now: Duration) -> Verdict {
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

    fn seen(holder: &str, version: &str) -> Option<Seen> {
        Some(Seen { holder: holder.to_owned(), duration: DURATION, version: version.to_owned() })
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
