//! What control has been told of addresses, so that a report carries only what differs. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use imbl::{OrdMap, ordmap::DiffItem};
use model::report::{ANNOUNCEMENTS_MAX, Announced};

/// What control has been told; nothing after a start, so that the first report is complete.
#[derive(Debug, Default)]
pub struct Told {
    addresses: OrdMap<IpAddr, Announced>,
    has_begun: bool,
}

/// What a report says of addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct News {
    /// What is new or different.
    pub changed: BTreeMap<IpAddr, Announced>,
    /// Where this node has no part any longer.
    pub gone: BTreeSet<IpAddr>,
    /// Whether control is to forget what it was told before.
    pub is_complete: bool,
    /// Whether more is left for the next report.
    pub has_more: bool,
}

impl Told {
    /// What control has not been told, at most as much as a report may carry.
    #[must_use]
    pub fn news(&self, addresses: &OrdMap<IpAddr, Announced>) -> News {
        let mut news = News { is_complete: !self.has_begun, ..News::default() };
        for difference in self.addresses.diff(addresses) {
            if news.changed.len() + news.gone.len() == ANNOUNCEMENTS_MAX {
                news.has_more = true;
                break;
            }
            match difference {
                DiffItem::Add(address, announced) | DiffItem::Update { new: (address, announced), .. } => {
                    news.changed.insert(*address, announced.clone());
                }
                DiffItem::Remove(address, _) => {
                    news.gone.insert(*address);
                }
            }
        }
        news
    }

    /// Notes that it has been told.
    pub fn delivered(&mut self, news: News) {
        self.has_begun = true;
        for address in news.gone {
            self.addresses.remove(&address);
        }
        self.addresses.extend(news.changed);
    }
}

#[cfg(test)]
mod tests {
    use model::{quantity::Timestamp, report::Role};

    use super::*;

    fn announced(epoch: u64) -> Announced {
        Announced {
            role: Role::Owner,
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

    fn all(count: u32) -> OrdMap<IpAddr, Announced> {
        (0..count).map(|number| (IpAddr::V4(number.into()), announced(1))).collect()
    }

    #[test]
    fn the_first_report_is_complete_and_later_ones_carry_what_differs() {
        let mut told = Told::default();
        let mut addresses = all(3);
        let news = told.news(&addresses);
        assert_eq!((news.is_complete, news.changed.len(), news.has_more), (true, 3, false));
        told.delivered(news);
        assert_eq!(told.news(&addresses), News::default());
        addresses.insert(IpAddr::V4(1.into()), announced(2));
        addresses.remove(&IpAddr::V4(2.into()));
        let news = told.news(&addresses);
        assert_eq!((news.is_complete, news.changed.len(), news.gone.len()), (false, 1, 1));
        // A report that was lost is told again.
        assert_eq!(told.news(&addresses), news);
    }

    #[test]
    fn more_than_fits_is_told_in_several_reports() {
        let addresses = all(2 * u32::try_from(ANNOUNCEMENTS_MAX).unwrap() + 7);
        let mut told = Told::default();
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
}
