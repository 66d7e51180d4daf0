//! Rate limits (token buckets) for the requests of each token, with the size of their responses, and for the
//! failed logins of each client address.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::primitives::quantity::Timestamp;

use super::account::network_of;

/// Sustained rate of requests that a token may make per second; several times the rate of the busiest known
/// adapter.
pub(crate) const PER_SECOND: i64 = 1000;
/// Number of requests that a token may make at once, for example to write a whole configuration object by object.
pub(crate) const BURST: i64 = 5000;

/// Number of response bytes that cost as much as one request. At the sustained rate, a token receives 32 MB/s,
/// about half of the bytes that one CPU renders.
const BYTES_PER_REQUEST: u64 = 32 * 1024;

/// Sustained rate of failed login attempts that one client address may make per second.
const WRONG_PER_SECOND: i64 = 1;
/// Number of failed login attempts that one client address may make at once. Twenty allow for a team behind one
/// NAT address that uses an expired token.
const WRONG_BURST: i64 = 20;
/// Maximum number of client addresses with a bucket of their own. All further addresses share one bucket.
const ADDRESSES_MAX: usize = 4096;

/// Maximum number of users that have a bucket because they sent requests a few seconds ago. Requests of further users are
/// rejected.
const USERS_MAX: usize = 10_000;

/// Rate and burst of a token bucket.
#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: i64,
    burst: i64,
}

/// Token bucket that limits the rate of an API token, a user or a client address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    rate: Rate,
    left: i64,
    at: Timestamp,
}

/// Buckets that limit failed login attempts, by client address. `None` is the key of the shared bucket.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<BTreeMap<Option<IpAddr>, Bucket>>);

/// Buckets that limit the requests of users of OpenID Connect, by name.
#[derive(Debug, Default)]
pub(crate) struct UserRates(Mutex<BTreeMap<String, Bucket>>);

impl UserRates {
    /// Counts a request of a user. Returns `false` if the user has exhausted the rate of one token.
    pub(crate) fn take(&self, name: &str, now: Timestamp) -> bool {
        let mut all = self.lock();
        if let Some(bucket) = all.get_mut(name) {
            return bucket.take(now);
        }
        if all.len() >= USERS_MAX {
            all.retain(|_, bucket| !bucket.is_full(now));
        }
        let mut bucket = Bucket::full(now);
        let is_accepted = all.len() < USERS_MAX && bucket.take(now);
        if is_accepted {
            all.insert(name.to_owned(), bucket);
        }
        is_accepted
    }

    /// Charges the size of a response to the rate of a user.
    pub(crate) fn charge(&self, name: &str, response_bytes: u64, now: Timestamp) {
        if let Some(bucket) = self.lock().get_mut(name) {
            bucket.charge(response_bytes, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        // Each change is complete before the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// Returns true if the address has not exhausted its failed login attempts.
    pub(crate) fn may_try(&self, from: Option<IpAddr>, now: Timestamp) -> bool {
        let mut all = self.lock();
        let place = place(&all, from);
        all.get_mut(&place).is_none_or(|bucket| bucket.has_one(now))
    }

    /// Counts a failed login attempt of a client address.
    pub(crate) fn record_failure(&self, from: Option<IpAddr>, now: Timestamp) {
        let mut all = self.lock();
        all.retain(|_, bucket| !bucket.is_full(now));
        let place = place(&all, from);
        let new = || Bucket::of(Rate { per_second: WRONG_PER_SECOND, burst: WRONG_BURST }, now);
        all.entry(place).or_insert_with(new).take(now);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<IpAddr>, Bucket>> {
        // Each change is complete before the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bucket key of an address: its network ([`network_of`]). An unknown address, or a new one beyond
/// [`ADDRESSES_MAX`] buckets, has the key `None` of the shared bucket.
fn place(all: &BTreeMap<Option<IpAddr>, Bucket>, from: Option<IpAddr>) -> Option<IpAddr> {
    let from = from.map(network_of);
    from.filter(|_| all.contains_key(&from) || all.len() < ADDRESSES_MAX)
}

impl Bucket {
    /// Creates a full bucket for the requests of an API token.
    pub(crate) fn full(now: Timestamp) -> Self {
        Self::of(Rate { per_second: PER_SECOND, burst: BURST }, now)
    }

    fn of(rate: Rate, now: Timestamp) -> Self {
        Self { rate, left: rate.burst, at: now }
    }

    fn fill(&mut self, now: Timestamp) {
        let Rate { per_second, burst } = self.rate;
        // A clock that was set back neither adds nor removes capacity.
        let secs = now.unix_seconds().saturating_sub(self.at.unix_seconds()).max(0);
        self.left = self.left.saturating_add(secs.saturating_mul(per_second)).min(burst);
        self.at = now;
    }

    fn has_one(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.left > 0
    }

    fn is_full(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.left == self.rate.burst
    }

    /// Removes one token (the right to one request or attempt). Returns `false` if the bucket is empty.
    pub(crate) fn take(&mut self, now: Timestamp) -> bool {
        let is_there = self.has_one(now);
        self.left -= i64::from(is_there);
        is_there
    }
}

impl Bucket {
    /// Removes the cost of a response in addition to that of its request. The cost is known only afterwards, so
    /// the bucket may become overdrawn, by at most its burst.
    pub(crate) fn charge(&mut self, response_bytes: u64, now: Timestamp) {
        self.fill(now);
        let cost = i64::try_from(response_bytes / BYTES_PER_REQUEST).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(cost).max(-self.rate.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_what_time_brings() {
        let at = Timestamp::from_unix_seconds;
        let mut bucket = Bucket::full(at(0));
        let taken = (0..BURST + 10).filter(|_| bucket.take(at(0))).count();
        assert_eq!(i64::try_from(taken).unwrap(), BURST);
        let taken = (0..BURST).filter(|_| bucket.take(at(1))).count();
        assert_eq!(i64::try_from(taken).unwrap(), PER_SECOND);
        assert!(!bucket.take(at(-1_000_000)), "a clock that goes back brings nothing");
        assert!(bucket.take(at(i64::MAX)));
    }

    #[test]
    fn large_responses_cost_as_much_as_many_requests() {
        let at = Timestamp::from_unix_seconds;
        let mut bucket = Bucket::full(at(0));
        bucket.charge(BYTES_PER_REQUEST - 1, at(0));
        assert_eq!(bucket.left, BURST);
        bucket.charge(10 * BYTES_PER_REQUEST, at(0));
        assert_eq!(bucket.left, BURST - 10);
        bucket.charge(u64::MAX, at(0));
        let secs = BURST / PER_SECOND;
        assert!(!bucket.take(at(secs)), "the overdraft is paid back first");
        assert!(bucket.take(at(secs + 1)));
    }

    #[test]
    fn an_address_that_guesses_is_slowed_down_and_others_are_not() {
        let at = Timestamp::from_unix_seconds;
        let address = |text: &str| Some(text.parse().unwrap());
        let attempts = Attempts::default();
        for _ in 0..WRONG_BURST {
            assert!(attempts.may_try(address("2001:db8::1"), at(0)));
            attempts.record_failure(address("2001:db8::1"), at(0));
        }
        assert!(!attempts.may_try(address("2001:db8::2"), at(0)), "it has the whole network");
        assert!(attempts.may_try(address("192.0.2.1"), at(0)) && attempts.may_try(None, at(0)));
        assert!(attempts.may_try(address("2001:db8::1"), at(1)));
        for number in 0..ADDRESSES_MAX + 10 {
            let number = u32::try_from(number).unwrap();
            attempts.record_failure(Some(std::net::Ipv4Addr::from_bits(number).into()), at(1));
        }
        assert_eq!(attempts.lock().len(), ADDRESSES_MAX + 1);
        attempts.record_failure(None, at(1000));
        assert_eq!(attempts.lock().len(), 1);
    }
}
