//! Cache of the responses of upstream servers, as a state machine without a clock: times are given as the time since
//! the start of the process.
//!
//! Answers of the cluster zone never get here. Expired responses stay for a while and are served if the upstream
//! servers fail (RFC 8767). The absence of a name covers all names below it (RFC 8020). Of several responses that
//! could be served stale, the newest is, so that an absence is never served over a later success.

use std::time::Duration;

use hickory_proto::rr::{Name, RecordType};

use super::lru::Lru;
use crate::message::{QuestionKey, Reply, ReplyKind, ServedReply, TtlLimits, denial_below};

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

/// Key of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    name: Name,
    /// `None` for the absence of the name, which is that of all types.
    record_type: Option<RecordType>,
    dnssec_ok: bool,
    checking_disabled: bool,
}

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

impl CacheKey {
    fn of(key: &QuestionKey) -> Self {
        let record_type = Some(key.record_type);
        Self { record_type, ..Self::absence(key, key.name.clone()) }
    }

    const fn absence(key: &QuestionKey, name: Name) -> Self {
        let QuestionKey { dnssec_ok, checking_disabled, .. } = *key;
        Self { name, record_type: None, dnssec_ok, checking_disabled }
    }
}

impl Entry {
    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.reply.lifetime.into())
    }

    fn expiration(&self) -> Duration {
        self.stored + self.lifetime()
    }

    /// Counts a use and returns the response with the times that remain.
    fn serve(&mut self, now: Duration) -> LookupResult {
        self.uses = self.uses.saturating_add(1);
        let age = u32::try_from(now.saturating_sub(self.stored).as_secs()).unwrap_or(u32::MAX);
        let remaining = self.expiration().saturating_sub(now);
        let is_due =
            self.uses >= RENEWAL_USES_MIN && remaining <= self.lifetime() / RENEWAL_PART && now >= self.retry;
        LookupResult::Fresh { served: ServedReply { bytes: self.reply.aged(age), is_stale: false }, is_due }
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

    /// Finds a response to a question.
    pub(super) fn find(&mut self, key: &QuestionKey, now: Duration) -> LookupResult {
        let exact = CacheKey::of(key);
        for entries in [&mut self.positive, &mut self.negative] {
            if let Some(found) = fresh(entries, &exact, now) {
                return found;
            }
        }
        let mut name = key.name.clone();
        while !name.is_root() {
            if let Some(LookupResult::Fresh { served, is_due }) =
                fresh(&mut self.negative, &CacheKey::absence(key, name.clone()), now)
            {
                if name == key.name {
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
            name = name.base_name();
        }
        self.stale(key, now)
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
        let (exact, absence) = (CacheKey::of(key), CacheKey::absence(key, key.name.clone()));
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
            ReplyKind::NoName => self.negative.insert(CacheKey::absence(key, key.name.clone()), entry, size),
            ReplyKind::Failure => 0,
        }
    }

    /// Removes the absence of a name and of all names above it, because it exists.
    fn forget_absence(&mut self, key: &QuestionKey) {
        let mut name = key.name.clone();
        while !name.is_root() {
            for (dnssec_ok, checking_disabled) in [(false, false), (true, false), (false, true), (true, true)]
            {
                let absence =
                    CacheKey { name: name.clone(), record_type: None, dnssec_ok, checking_disabled };
                self.negative.remove(&absence);
            }
            name = name.base_name();
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
fn fresh(entries: &mut Lru<CacheKey, Entry>, key: &CacheKey, now: Duration) -> Option<LookupResult> {
    let found = entries.peek(key).filter(|entry| now < entry.expiration())?.serve(now);
    entries.touch(key);
    Some(found)
}

#[cfg(test)]
mod tests;
