//! Rate limit for ARP and NDP replies. Only a flood of requests reaches it.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use kernel::links::Mac;

/// Length of a counting window; all counters restart at its end.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of replies per window to one station about one address. A regular neighbor sends one
/// request per second, and at most three if it gets no reply.
const REPLIES_MAX: u32 = 32;
/// Maximum number of replies per window to all stations, which limits the cost of a flood from spoofed
/// stations.
const REPLIES_TOTAL_MAX: u32 = 20_000;
/// Maximum number of pairs of station and address that are counted. Further pairs are subject to the total
/// limit only.
const PAIRS_MAX: usize = 8192;

/// Numbers of replies in the current one-second window, in total and by station and address.
#[derive(Debug, Default)]
pub(super) struct ReplyLimit {
    since: Option<Instant>,
    total: u32,
    pairs: BTreeMap<(Mac, IpAddr), u32>,
}

impl ReplyLimit {
    /// Returns true, and counts a reply, if one more reply to the station about the address is within both
    /// limits.
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
