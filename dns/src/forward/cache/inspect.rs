//! Reading of the cache for explanations, which changes neither uses nor the order of removal.

use std::time::Duration;

use hickory_proto::rr::Name;

use super::{Cache, CacheKey, Entry};
use crate::message::QuestionKey;

/// Response that a question would get from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedReply {
    /// Response with the times that remain, or those of an expired response.
    pub(crate) bytes: Vec<u8>,
    /// Time until the response expires. `None` if it has expired.
    pub(crate) remaining: Option<Duration>,
    /// Time until an expired response is not served any more, even if the upstream servers fail.
    pub(crate) usable: Duration,
    /// Number of questions that were answered with the response before it expired.
    pub(crate) uses: u32,
}

impl Cache {
    /// Returns the response to a question for a name in a zone without using it, as [`Cache::find_in`] finds it. The absence of a
    /// name above is returned as it is.
    pub(in crate::forward) fn inspect(
        &mut self,
        key: &QuestionKey,
        zone: &Name,
        now: Duration,
    ) -> Option<CachedReply> {
        let exact = CacheKey::of(key);
        let is_fresh = |entry: &&mut Entry| now < entry.expiration();
        for entries in [&mut self.positive, &mut self.negative] {
            if let Some(entry) = entries.peek(&exact).filter(is_fresh) {
                return Some(shown(entry, self.options.stale_max, now));
            }
        }
        for name in CacheKey::absence(key).up_to(zone, key) {
            if let Some(entry) = self.negative.peek(name).filter(is_fresh) {
                return Some(shown(entry, self.options.stale_max, now));
            }
        }
        let (is_positive, newest) = self.newest(key)?;
        let entries = if is_positive { &mut self.positive } else { &mut self.negative };
        let entry = entries.peek(&newest)?;
        let reply = shown(entry, self.options.stale_max, now);
        (!reply.usable.is_zero()).then_some(reply)
    }
}

fn shown(entry: &Entry, stale_max: Duration, now: Duration) -> CachedReply {
    let remaining = entry.expiration().checked_sub(now).filter(|remaining| !remaining.is_zero());
    let age = u32::try_from(now.saturating_sub(entry.stored).as_secs()).unwrap_or(u32::MAX);
    CachedReply {
        bytes: if remaining.is_some() { entry.reply.aged(age) } else { entry.reply.expired() },
        remaining,
        usable: (entry.expiration() + stale_max).saturating_sub(now),
        uses: entry.uses,
    }
}
