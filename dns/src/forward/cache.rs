//! Cache of the responses of upstream servers, as a state machine without a clock: times are given as the time since
//! the start of the process.
//!
//! Answers of the cluster zone never get here. Expired responses stay for a while and are served if the upstream
//! servers fail (RFC 8767). The absence of a name covers all names below it (RFC 8020). Of several responses that
//! could be served stale, the newest is, so that an absence is never served over a later success.

mod inspect;

use std::{borrow::Borrow, sync::Arc, time::Duration};

use hickory_proto::rr::Name;

pub(crate) use self::inspect::CachedReply;
use super::lru::Lru;
use crate::message::{
    NAME_BYTES_MAX, PlainRequest, QuestionKey, Reply, ReplyKind, ServedReply, TtlLimits, denial_below,
    wire_form,
};

/// Time for which the upstream servers are not asked again about an expired response after they failed (RFC 8767 §5).
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Number of questions after which a response is renewed before it expires.
const RENEWAL_USES_MIN: u32 = 3;
/// Part of the lifetime that remains when a response is renewed: one of this number.
const RENEWAL_PART: u32 = 10;
/// Maximum size of a cached response in bytes.
const REPLY_BYTES_MAX: usize = 4096;
/// Size of an entry without its response in bytes, roughly.
const ENTRY_BYTES: usize = 256;
/// Memory for each permitted entry in bytes. If responses are larger on average, fewer are kept.
const BYTES_PER_ENTRY: usize = 1024;

/// Settings of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheOptions {
    /// Maximum number of responses with records; 0 disables the cache for them.
    pub(crate) entries_max: usize,
    /// Maximum number of responses without records; 0 disables the cache for them.
    pub(crate) negative_entries_max: usize,
    /// Limits on the times of responses.
    pub(crate) ttl_limits: TtlLimits,
    /// Time after its expiration for which a response may be served if the upstream servers fail.
    pub(crate) stale_max: Duration,
}

/// Cache of responses.
#[derive(Debug)]
pub(super) struct Cache {
    options: CacheOptions,
    positive: Lru<CacheKey, Entry>,
    negative: Lru<CacheKey, Entry>,
}

/// Key of a response: the name in wire format and lower case, the type, and a byte with flags. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey(Arc<[u8]>);

#[derive(Debug)]
struct Entry {
    reply: Reply,
    stored: Duration,
    uses: u32,
    /// Time until which the upstream servers are not asked again.
    retry: Duration,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// A response that has not expired. `is_due` if it must be renewed.
    Fresh { served: ServedReply, is_due: bool },
    /// A response that has expired. `is_due` if the upstream servers must be asked first.
    Stale { served: ServedReply, is_due: bool },
    /// No usable response.
    Missing,
}

/// Flag of a key of the absence of a name, which is that of all types.
const ABSENCE: u8 = 0x80;
/// Size of a key without its name in bytes.
const KEY_TAIL_BYTES: usize = 3;

impl Borrow<[u8]> for CacheKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl CacheKey {
    fn of(key: &QuestionKey) -> Self {
        let tail = key_tail(key.record_type.into(), key.dnssec_ok, key.checking_disabled);
        Self([&*wire_form(&key.name), &tail].concat().into())
    }

    /// Returns the key of the absence of the name.
    fn absence(key: &QuestionKey) -> Self {
        let [_, _, flags] = key_tail(0, key.dnssec_ok, key.checking_disabled);
        Self([&*wire_form(&key.name), &[0, 0, flags | ABSENCE]].concat().into())
    }

    /// Returns this key and those of the names above up to a zone, without the root. The name of the key is that of a
    /// question.
    fn up_to<'k>(&'k self, zone: &Name, question: &QuestionKey) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let zone_bytes = zone.zone_of(&question.name).then(|| wire_form(zone).len());
        let keys = std::iter::successors(Some(&*self.0), |key| key.get(1 + usize::from(*key.first()?)..));
        keys.take_while(move |key| {
            // The root has one byte.
            let name_bytes = key.len().saturating_sub(KEY_TAIL_BYTES);
            name_bytes > 1 && zone_bytes.is_some_and(|zone_bytes| name_bytes >= zone_bytes)
        })
    }
}

/// Returns the end of the key of a question, after its name.
fn key_tail(record_type: u16, dnssec_ok: bool, checking_disabled: bool) -> [u8; KEY_TAIL_BYTES] {
    let [type_high, type_low] = record_type.to_be_bytes();
    [type_high, type_low, u8::from(dnssec_ok) | u8::from(checking_disabled) << 1]
}

impl Entry {
    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.reply.lifetime.into())
    }

    fn expiration(&self) -> Duration {
        self.stored + self.lifetime()
    }

    /// Returns the time since the response was stored, in seconds.
    fn age(&self, now: Duration) -> u32 {
        u32::try_from(now.saturating_sub(self.stored).as_secs()).unwrap_or(u32::MAX)
    }

    /// Returns true if the response must be renewed after a number of uses.
    fn is_due(&self, uses: u32, now: Duration) -> bool {
        let remaining = self.expiration().saturating_sub(now);
        uses >= RENEWAL_USES_MIN && remaining <= self.lifetime() / RENEWAL_PART && now >= self.retry
    }

    /// Counts a use and returns the response with the times that remain.
    fn serve(&mut self, now: Duration) -> LookupResult {
        self.uses = self.uses.saturating_add(1);
        let served = ServedReply { bytes: self.reply.aged(self.age(now)), is_stale: false };
        LookupResult::Fresh { served, is_due: self.is_due(self.uses, now) }
    }
}

impl Cache {
    pub(super) fn new(options: CacheOptions) -> Self {
        let lru = |entries: usize| Lru::new(entries, entries.saturating_mul(BYTES_PER_ENTRY));
        Self { options, positive: lru(options.entries_max), negative: lru(options.negative_entries_max) }
    }

    /// Numbers of responses with and without records.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.positive.len(), self.negative.len())
    }

    /// Finds a response to a question for a name in a zone. The absence of a name above the zone does not count, because other
    /// servers are asked for it.
    pub(super) fn find_in(&mut self, key: &QuestionKey, zone: &Name, now: Duration) -> LookupResult {
        let exact = CacheKey::of(key);
        for entries in [&mut self.positive, &mut self.negative] {
            if let Some(found) = fresh(entries, &exact.0, now) {
                return found;
            }
        }
        let absence = CacheKey::absence(key);
        for name in absence.up_to(zone, key) {
            if let Some(LookupResult::Fresh { served, is_due }) = fresh(&mut self.negative, name, now) {
                if name.len() == absence.0.len() {
                    return LookupResult::Fresh { served, is_due };
                }
                // The question of the name above would be another one, so it is not renewed.
                if let Some(bytes) = denial_below(&served.bytes, key) {
                    return LookupResult::Fresh {
                        served: ServedReply { bytes, is_stale: false },
                        is_due: false,
                    };
                }
            }
        }
        self.stale(key, now)
    }

    /// Finds a response with records that has not expired and need not be renewed, and passes it with its age in seconds to
    /// `write`. Returns true, and marks the response as used, if `write` does. The name of the question is in wire format.
    pub(super) fn find_direct(
        &mut self,
        question: &PlainRequest<'_>,
        now: Duration,
        write: impl FnOnce(&Reply, u32) -> bool,
    ) -> bool {
        let mut buffer = [0; NAME_BYTES_MAX + KEY_TAIL_BYTES];
        let name = question.name();
        let Some(key) = buffer.get_mut(..name.len() + KEY_TAIL_BYTES) else { return false };
        let (name_place, tail) = key.split_at_mut(name.len());
        name_place.copy_from_slice(name);
        name_place.make_ascii_lowercase();
        tail.copy_from_slice(&key_tail(
            question.record_type(),
            question.dnssec_ok(),
            question.checking_disabled(),
        ));
        let Some(entry) = self.positive.peek(&*key) else { return false };
        let uses = entry.uses.saturating_add(1);
        let is_direct = now < entry.expiration() && !entry.is_due(uses, now);
        if !is_direct || !write(&entry.reply, entry.age(now)) {
            return false;
        }
        entry.uses = uses;
        self.positive.touch(&*key);
        true
    }

    /// Finds a response that has expired, and marks it as used.
    pub(super) fn stale(&mut self, key: &QuestionKey, now: Duration) -> LookupResult {
        let Some((is_positive, key)) = self.newest(key) else { return LookupResult::Missing };
        let entries = if is_positive { &mut self.positive } else { &mut self.negative };
        let Some(entry) = entries.peek(&key) else { return LookupResult::Missing };
        if now >= entry.expiration() + self.options.stale_max {
            return LookupResult::Missing;
        }
        if now < entry.expiration() {
            return entry.serve(now);
        }
        let served = ServedReply { bytes: entry.reply.expired(), is_stale: true };
        let is_due = now >= entry.retry;
        entries.touch(&key);
        LookupResult::Stale { served, is_due }
    }

    /// Returns the key of the newest response to a question, and true if that has records.
    fn newest(&mut self, key: &QuestionKey) -> Option<(bool, CacheKey)> {
        let (exact, absence) = (CacheKey::of(key), CacheKey::absence(key));
        let candidates = [
            self.positive.peek(&exact).map(|entry| (entry.stored, true, &exact)),
            self.negative.peek(&exact).map(|entry| (entry.stored, false, &exact)),
            self.negative.peek(&absence).map(|entry| (entry.stored, false, &absence)),
        ];
        let newest = candidates.into_iter().flatten().max_by_key(|(stored, ..)| *stored);
        newest.map(|(_, is_positive, key)| (is_positive, key.clone()))
    }

    /// Stores a response, if it may be cached. Returns the number of responses that were removed to make room.
    pub(super) fn store(&mut self, key: &QuestionKey, reply: Reply, now: Duration) -> usize {
        if reply.kind == ReplyKind::Failure || reply.size() > REPLY_BYTES_MAX {
            return 0;
        }
        if reply.kind != ReplyKind::NoName {
            self.forget_absence(key);
        }
        let exact = CacheKey::of(key);
        self.positive.remove(&exact);
        self.negative.remove(&exact);
        if reply.lifetime == 0 {
            return 0;
        }
        let size = reply.size() + key.name.len() + ENTRY_BYTES;
        let kind = reply.kind;
        let entry = Entry { reply, stored: now, uses: 0, retry: Duration::ZERO };
        match kind {
            ReplyKind::Positive => self.positive.insert(exact, entry, size),
            ReplyKind::NoData => self.negative.insert(exact, entry, size),
            ReplyKind::NoName => self.negative.insert(CacheKey::absence(key), entry, size),
            ReplyKind::Failure => 0,
        }
    }

    /// Removes the absence of a name and of all names above it, because it exists.
    fn forget_absence(&mut self, key: &QuestionKey) {
        for (dnssec_ok, checking_disabled) in [(false, false), (true, false), (false, true), (true, true)] {
            let absence = CacheKey::absence(&QuestionKey { dnssec_ok, checking_disabled, ..key.clone() });
            for name in absence.up_to(&Name::root(), key) {
                self.negative.remove(name);
            }
        }
    }

    /// Records that the upstream servers failed to answer a question. They are not asked again for a while if there is
    /// an expired response.
    pub(super) fn fail(&mut self, key: &QuestionKey, now: Duration) {
        let Some((is_positive, key)) = self.newest(key) else { return };
        let entries = if is_positive { &mut self.positive } else { &mut self.negative };
        if let Some(entry) = entries.peek(&key) {
            entry.retry = now + RETRY_DELAY;
        }
    }
}

/// Returns the response of an entry that has not expired, and marks it as used.
fn fresh(entries: &mut Lru<CacheKey, Entry>, key: &[u8], now: Duration) -> Option<LookupResult> {
    let found = entries.peek(key).filter(|entry| now < entry.expiration())?.serve(now);
    entries.touch(key);
    Some(found)
}

#[cfg(test)]
mod tests;
