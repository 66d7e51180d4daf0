//! A limit on replies that only a flood meets.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use crate::links::Mac;

/// Time after which the count begins anew.
const WINDOW: Duration = Duration::from_secs(1);
/// Replies to one station about one address in a window. Neighbours ask once a second, three times at most when they
/// hear nothing.
const REPLIES_MAX: u32 = 32;
/// Replies to all stations in a window, so that a flood from invented stations costs no more than this.
const REPLIES_TOTAL_MAX: u32 = 20_000;
/// Pairs of station and address that are told apart; beyond, the limit for all remains.
const PAIRS_MAX: usize = 8192;

/// Counts replies.
#[derive(Debug, Default)]
pub(super) struct ReplyLimit {
    since: Option<Instant>,
    total: u32,
    pairs: BTreeMap<(Mac, IpAddr), u32>,
}

impl ReplyLimit {
    /// Whether one more reply may be sent.
    pub(super) fn admits(&mut self, station: Mac, address: IpAddr, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let is_known = self.pairs.contains_key(&(station, address));
        if is_known || self.pairs.len() < PAIRS_MAX {
            let count = self.pairs.entry((station, address)).or_default();
            if *count == REPLIES_MAX {
                return false;
            }
            *count += 1;
        }
        let is_admitted = self.total < REPLIES_TOTAL_MAX;
        self.total += u32::from(is_admitted);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_station_is_limited_and_others_are_answered() {
        let mut limit = ReplyLimit::default();
        let now = Instant::now();
        let address = IpAddr::from([192, 0, 2, 1]);
        let (loud, quiet) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let admitted = (0..1000).filter(|_| limit.admits(loud, address, now)).count();
        assert_eq!(admitted, 32);
        assert!(limit.admits(quiet, address, now));
        assert!(limit.admits(loud, address, now + WINDOW), "the next second");
    }

    #[test]
    fn a_flood_of_invented_stations_is_bounded_in_memory_and_replies() {
        let mut limit = ReplyLimit::default();
        let now = Instant::now();
        let address = IpAddr::from([192, 0, 2, 1]);
        let stations = (0..100_000_u32).map(|n| {
            let [a, b, c, d] = n.to_be_bytes();
            Mac([2, 0, a, b, c, d])
        });
        let admitted = stations.filter(|station| limit.admits(*station, address, now)).count();
        assert_eq!(admitted, 20_000);
        assert_eq!(limit.pairs.len(), PAIRS_MAX);
    }
}
