//! Limits on requests in progress and on response bytes that clients have not received yet, for each account and
//! for all.
//!
//! A request counts until the client has received its response or the connection is closed, so that a client that
//! does not read uses its own limits only. Reads and writes are counted apart: unread reads do not stop writes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    base::{
        config::ResponseLimits,
        error::{Code, Problem},
    },
    security::account::Account,
};

/// Maximum size in bytes of a response that is sent although the byte budget is used up, so that writes, errors
/// and health checks of this server do not fail. The number of requests limits their sum.
pub(crate) const SMALL_RESPONSE_BYTES_MAX: u64 = 16 * 1024;
/// `Retry-After` of a rejected request, in seconds.
const RETRY_SECS: u32 = 1;

/// Class of a request. Each class has limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// Request that changes nothing.
    Read,
    /// Request that may change something.
    Write,
    /// Request that was rejected before it was processed; only its response counts.
    Rejection,
    /// Watch, which counts until its end.
    Watch,
}

/// Limits on requests in progress and on unsent response bytes, with their current use.
#[derive(Debug)]
pub(crate) struct ResponseBudget {
    limits: ResponseLimits,
    used: Mutex<Usage>,
}

/// Use of the budget by all callers.
#[derive(Debug, Default)]
struct Usage {
    requests: Requests,
    /// Bytes of responses that are larger than [`SMALL_RESPONSE_BYTES_MAX`].
    large_bytes: u64,
    bytes: u64,
    accounts: BTreeMap<Account, AccountUsage>,
}

/// Use of the budget by one account.
#[derive(Debug, Default)]
struct AccountUsage {
    requests: Requests,
    large_bytes: u64,
}

/// Number of requests by class.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Requests {
    reads: usize,
    writes: usize,
    rejections: usize,
    watches: usize,
}

/// Right to process one request. Dropping the last copy releases the request and the bytes of its response.
#[derive(Debug, Clone)]
pub(crate) struct RequestPermit(Arc<PermitState>);

#[derive(Debug)]
struct PermitState {
    budget: Arc<ResponseBudget>,
    account: Account,
    class: RequestClass,
    bytes: AtomicU64,
}

/// Limit that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    /// Number of requests of the account.
    Requests,
    /// Number of requests of all callers.
    TotalRequests,
    /// Unsent response bytes of the account.
    Bytes,
    /// Unsent response bytes of all callers.
    TotalBytes,
}

/// Current use of the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BudgetReading {
    /// Number of requests whose responses the clients have not completely received, without watches.
    pub(crate) requests: usize,
    /// Number of response bytes that are not sent yet.
    pub(crate) bytes: u64,
}

impl RequestClass {
    /// Returns the maximum number of requests of this class for one account, and for all.
    ///
    /// More requests would only wait for the CPUs and for the task that commits writes. A share of one account
    /// leaves room for at least three others; that of writes fits the reports of a thousand agents behind one
    /// address.
    const fn limits(self) -> (usize, usize) {
        match self {
            Self::Read | Self::Watch => (256, 1024),
            Self::Write => (512, 1024),
            Self::Rejection => (256, 4096),
        }
    }

    /// Returns the maximum number of requests of this class for an account. Clients without credentials may have all
    /// watches: on loopback they are administrators, and many browsers may have one address.
    const fn limit_of(self, account: &Account) -> usize {
        let (own_max, total_max) = self.limits();
        if matches!((self, account), (Self::Watch, Account::Network(_))) { total_max } else { own_max }
    }
}

impl Requests {
    fn of(&mut self, class: RequestClass) -> &mut usize {
        match class {
            RequestClass::Read => &mut self.reads,
            RequestClass::Write => &mut self.writes,
            RequestClass::Rejection => &mut self.rejections,
            RequestClass::Watch => &mut self.watches,
        }
    }
}

impl ResponseBudget {
    /// Creates a budget of which nothing is used.
    pub(crate) fn new(limits: ResponseLimits) -> Self {
        Self { limits, used: Mutex::default() }
    }

    /// Counts a request of an account, until the returned permit is dropped.
    ///
    /// # Errors
    /// Returns the limit that the request exceeds.
    pub(crate) fn enter(
        self: &Arc<Self>,
        account: &Account,
        class: RequestClass,
    ) -> Result<RequestPermit, ExceededLimit> {
        let (_, total_max) = class.limits();
        let mut used = self.lock();
        if *used.requests.of(class) >= total_max {
            return Err(ExceededLimit::TotalRequests);
        }
        let own = used.accounts.entry(account.clone()).or_default();
        let count = own.requests.of(class);
        if *count >= class.limit_of(account) {
            return Err(ExceededLimit::Requests);
        }
        *count += 1;
        *used.requests.of(class) += 1;
        drop(used);
        let (budget, account) = (Arc::clone(self), account.clone());
        Ok(RequestPermit(Arc::new(PermitState { budget, account, class, bytes: AtomicU64::new(0) })))
    }

    /// Returns an error if the account has no room for a response of this size, so that none is created in vain.
    ///
    /// A response larger than the whole budget is permitted while nothing else uses the budget, because it could
    /// never be sent otherwise.
    pub(crate) fn check_room(&self, account: &Account, bytes: u64) -> Result<(), ExceededLimit> {
        self.lock().check_room(&self.limits, account, 0, bytes)
    }

    /// Returns the current use of the budget.
    pub(crate) fn reading(&self) -> BudgetReading {
        let used = self.lock();
        let Requests { reads, writes, rejections, watches: _ } = used.requests;
        BudgetReading { requests: reads + writes + rejections, bytes: used.bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        // Each change is complete before the lock is released.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Usage {
    /// Returns an error if the number of large bytes of a response cannot be increased from `before` to `after`.
    fn check_room(
        &self,
        limits: &ResponseLimits,
        account: &Account,
        before: u64,
        after: u64,
    ) -> Result<(), ExceededLimit> {
        let is_over = |all: u64, max: u64| all > before && (all - before).saturating_add(after) > max;
        let own = self.accounts.get(account).map_or(0, |own| own.large_bytes);
        if is_over(own, limits.bytes_per_caller_max) {
            Err(ExceededLimit::Bytes)
        } else if is_over(self.large_bytes, limits.bytes_max) {
            Err(ExceededLimit::TotalBytes)
        } else {
            Ok(())
        }
    }

    /// Replaces the bytes of a response by another number.
    fn replace(&mut self, account: &Account, before: u64, after: u64) {
        self.bytes = self.bytes - before + after;
        let (before, after) = (large(before), large(after));
        self.large_bytes = self.large_bytes - before + after;
        if let Some(own) = self.accounts.get_mut(account) {
            own.large_bytes = own.large_bytes - before + after;
        }
    }
}

/// Returns the bytes of a response that count for the byte budget.
fn large(bytes: u64) -> u64 {
    if bytes > SMALL_RESPONSE_BYTES_MAX { bytes } else { 0 }
}

impl RequestPermit {
    /// Sets the number of bytes of the response.
    ///
    /// # Errors
    /// Returns the limit that a large response exceeds. The permit then has the bytes that it had before.
    pub(crate) fn set_bytes(&self, bytes: u64) -> Result<(), ExceededLimit> {
        let PermitState { budget, account, class: _, bytes: own_bytes } = &*self.0;
        let mut used = budget.lock();
        let before = own_bytes.load(Ordering::Relaxed);
        if large(bytes) > large(before) {
            used.check_room(&budget.limits, account, large(before), bytes)?;
        }
        used.replace(account, before, bytes);
        own_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for PermitState {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        used.replace(&self.account, *self.bytes.get_mut(), 0);
        *used.requests.of(self.class) -= 1;
        if let Some(own) = used.accounts.get_mut(&self.account) {
            *own.requests.of(self.class) -= 1;
            if own.requests == Requests::default() {
                used.accounts.remove(&self.account);
            }
        }
    }
}

impl ExceededLimit {
    /// Creates the problem response of the rejected request.
    pub(crate) fn problem(self, account: &Account) -> Problem {
        let detail = match self {
            Self::Requests => format!("{account} has too many requests in progress"),
            Self::TotalRequests => "too many requests at once".to_owned(),
            Self::Bytes => format!("{account} has too many response bytes that it has not read"),
            Self::TotalBytes => "too many response bytes of all clients are not read yet".to_owned(),
        };
        let problem = Problem::new(Code::TooManyRequests, detail).retry_after(RETRY_SECS);
        match self {
            Self::Requests | Self::Bytes => problem.hint("read the responses of earlier requests first"),
            Self::TotalRequests | Self::TotalBytes => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LARGE: u64 = SMALL_RESPONSE_BYTES_MAX + 1;

    fn budget(bytes_per_caller_max: u64, bytes_max: u64) -> Arc<ResponseBudget> {
        let write_timeout = Duration::from_secs(1);
        Arc::new(ResponseBudget::new(ResponseLimits { bytes_max, bytes_per_caller_max, write_timeout }))
    }

    fn token(id: &str) -> Account {
        Account::Token(id.to_owned())
    }

    #[test]
    fn one_account_cannot_use_the_requests_of_others_nor_its_reads_those_of_writes() {
        let budget = budget(LARGE, LARGE);
        let enter = |account: &str, class| budget.enter(&token(account), class);
        let (own, total) = RequestClass::Read.limits();
        let held: Vec<_> = (0..own).map(|_| enter("a", RequestClass::Read).unwrap()).collect();
        assert_eq!(enter("a", RequestClass::Read).unwrap_err(), ExceededLimit::Requests);
        assert!(enter("a", RequestClass::Write).is_ok() && enter("b", RequestClass::Read).is_ok());
        let mut others = Vec::new();
        for at in own..total {
            others.push(enter(&format!("c{}", at / own), RequestClass::Read).unwrap());
        }
        assert_eq!(enter("b", RequestClass::Read).unwrap_err(), ExceededLimit::TotalRequests);
        assert!(enter("b", RequestClass::Write).is_ok());
        drop((held, others));
        assert_eq!(budget.reading(), BudgetReading::default());
        assert!(budget.lock().accounts.is_empty());
        let watches: Vec<_> = (0..=own).map_while(|_| enter("a", RequestClass::Watch).ok()).collect();
        assert_eq!(watches.len(), own);
        assert!(enter("b", RequestClass::Watch).is_ok());
    }

    #[test]
    fn bytes_count_until_the_permit_ends_and_small_responses_always_pass() {
        let budget = budget(3 * LARGE, 4 * LARGE);
        let enter = |account: &str| budget.enter(&token(account), RequestClass::Read).unwrap();
        let first = enter("a");
        first.set_bytes(3 * LARGE).unwrap();
        first.set_bytes(3 * LARGE).unwrap();
        assert_eq!(budget.check_room(&token("a"), 1), Err(ExceededLimit::Bytes));
        let second = enter("a");
        assert_eq!(second.set_bytes(LARGE), Err(ExceededLimit::Bytes));
        second.set_bytes(SMALL_RESPONSE_BYTES_MAX).unwrap();
        let other = enter("b");
        assert_eq!(other.set_bytes(2 * LARGE), Err(ExceededLimit::TotalBytes));
        other.set_bytes(LARGE).unwrap();
        assert_eq!(budget.check_room(&token("c"), 1), Err(ExceededLimit::TotalBytes));
        assert_eq!(budget.reading().bytes, 4 * LARGE + SMALL_RESPONSE_BYTES_MAX);
        drop((first, second, other));
        assert_eq!(budget.reading(), BudgetReading::default());
        let alone = enter("a");
        alone.set_bytes(100 * LARGE).expect("nothing else uses the budget");
        alone.set_bytes(1).unwrap();
        assert_eq!(budget.reading().bytes, 1);
    }
}
