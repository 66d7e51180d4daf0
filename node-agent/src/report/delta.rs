//! Tracks the entries (such as addresses or prefixes) that a control server has received, so that a report
//! carries only the differences. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use imbl::{OrdMap, ordmap::DiffItem};

/// Entries with a key `K`, such as an address or prefix, and a status `V`, as last reported to one control
/// server. Empty after a start, so that the first report is complete.
#[derive(Debug)]
pub struct ReportedState<K: Ord, V> {
    told: OrdMap<K, V>,
    has_begun: bool,
    per_report_max: usize,
}

/// Differences from the last report, to be sent in the next report.
#[derive(Debug, Clone, PartialEq)]
pub struct News<K, V> {
    /// Entries to report because they were added or changed.
    pub changed: BTreeMap<K, V>,
    /// Keys of removed entries.
    pub gone: BTreeSet<K>,
    /// True if this is the first report after a start or after [`ReportedState::forget`], so that the
    /// control server must discard everything that this node reported before.
    pub is_complete: bool,
    /// True if more changes are left for the next report.
    pub has_more: bool,
}

impl<K: Ord + Clone, V: PartialEq + Clone> ReportedState<K, V> {
    /// Creates an empty tracker; a report carries at most `per_report_max` changes.
    #[must_use]
    pub fn new(per_report_max: usize) -> Self {
        Self { told: OrdMap::new(), has_begun: false, per_report_max }
    }

    /// Forgets the reported entries, so that the next report is complete. Called when the control server may
    /// have lost them.
    pub fn forget(&mut self) {
        *self = Self::new(self.per_report_max);
    }

    /// Returns the differences between `all` and the reported entries, at most as many as a report may carry.
    #[must_use]
    pub fn news(&self, all: &OrdMap<K, V>) -> News<K, V> {
        self.news_by(all, |_| 1)
    }

    /// Returns the differences between `all` and the reported entries. The sum of `size` over the changed
    /// values, plus 1 for each removed entry, does not exceed the limit of a report. No single value may
    /// exceed the limit.
    #[must_use]
    pub fn news_by(&self, all: &OrdMap<K, V>, size: impl Fn(&V) -> usize) -> News<K, V> {
        let mut room = self.per_report_max;
        let mut news = News {
            changed: BTreeMap::new(),
            gone: BTreeSet::new(),
            is_complete: !self.has_begun,
            has_more: false,
        };
        for difference in self.told.diff(all) {
            let taken = match &difference {
                DiffItem::Add(_, value) | DiffItem::Update { new: (_, value), .. } => size(value),
                DiffItem::Remove(..) => 1,
            };
            let Some(left) = room.checked_sub(taken) else {
                news.has_more = true;
                break;
            };
            room = left;
            match difference {
                DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => {
                    news.changed.insert(key.clone(), value.clone());
                }
                DiffItem::Remove(key, _) => {
                    news.gone.insert(key.clone());
                }
            }
        }
        news
    }

    /// Records that the control server has received `news`, the differences of one report.
    pub fn delivered(&mut self, news: News<K, V>) {
        self.has_begun = true;
        for key in news.gone {
            self.told.remove(&key);
        }
        self.told.extend(news.changed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use model::{
        primitives::quantity::Timestamp,
        wire::report::{ANNOUNCEMENTS_MAX, AddressReport, AnnouncementRole},
    };

    use super::*;

    fn announced(epoch: u64) -> AddressReport {
        AddressReport {
            role: AnnouncementRole::Owner,
            epoch,
            since: Timestamp::from_unix_seconds(0),
            reason: "first".to_owned(),
            interfaces: Vec::new(),
            last_gratuitous: None,
            replies: 0,
            gratuitous: 0,
            conflict: None,
        }
    }

    fn all(count: u32) -> OrdMap<IpAddr, AddressReport> {
        (0..count).map(|number| (IpAddr::V4(number.into()), announced(1))).collect()
    }

    #[test]
    fn the_first_report_is_complete_and_later_ones_carry_what_differs() {
        let mut told = ReportedState::new(ANNOUNCEMENTS_MAX);
        let mut addresses = all(3);
        let news = told.news(&addresses);
        assert_eq!((news.is_complete, news.changed.len(), news.has_more), (true, 3, false));
        told.delivered(news);
        let news = told.news(&addresses);
        assert_eq!((news.is_complete, news.changed.len(), news.gone.len()), (false, 0, 0));
        addresses.insert(IpAddr::V4(1.into()), announced(2));
        addresses.remove(&IpAddr::V4(2.into()));
        let news = told.news(&addresses);
        assert_eq!((news.is_complete, news.changed.len(), news.gone.len()), (false, 1, 1));
        // A lost report is sent again.
        assert_eq!(told.news(&addresses), news);
    }

    #[test]
    fn more_than_fits_is_told_in_several_reports() {
        let addresses = all(2 * u32::try_from(ANNOUNCEMENTS_MAX).unwrap() + 7);
        let mut told = ReportedState::new(ANNOUNCEMENTS_MAX);
        let mut sizes = Vec::new();
        loop {
            let news = told.news(&addresses);
            sizes.push((news.changed.len(), news.is_complete));
            let has_more = news.has_more;
            told.delivered(news);
            if !has_more {
                break;
            }
        }
        assert_eq!(sizes, [(ANNOUNCEMENTS_MAX, true), (ANNOUNCEMENTS_MAX, false), (7, false)]);
    }

    #[test]
    fn values_of_different_size_fill_a_report() {
        let mut told = ReportedState::new(10);
        let sizes = [(1, 4), (2, 5), (3, 10), (4, 0)];
        let all: OrdMap<u8, Vec<u8>> = sizes.map(|(key, size)| (key, vec![0; size])).into_iter().collect();
        let mut reports = Vec::new();
        loop {
            let news = told.news_by(&all, Vec::len);
            reports.push(news.changed.keys().copied().collect::<Vec<_>>());
            let has_more = news.has_more;
            told.delivered(news);
            if !has_more {
                break;
            }
        }
        assert_eq!(reports, [vec![1, 2], vec![3, 4]]);
    }
}
