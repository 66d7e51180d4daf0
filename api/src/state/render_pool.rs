//! Threads that render large responses, so that the workers of the runtime stay free for other requests.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::{sync::Semaphore, task};
use tracing::Span;

use crate::security::account::Account;

/// Limit on the large responses that are rendered at the same time. Each account renders one response at a
/// time, so that it waits for at most one response of each other account.
#[derive(Debug)]
pub(crate) struct RenderPool {
    slots: Arc<Semaphore>,
    /// Turns of the accounts that render or wait; each has one permit.
    turns: Mutex<BTreeMap<Account, Arc<Semaphore>>>,
}

impl RenderPool {
    /// Creates a pool that uses all CPUs but one.
    pub(crate) fn new() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_slots(cpus.saturating_sub(1).max(1))
    }

    fn with_slots(slots: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), turns: Mutex::default() }
    }

    /// Runs `render` on a thread of the blocking pool when it is the turn of the account, and returns the result. A
    /// rendering that has begun keeps turn and slot until its end, also if its request is canceled.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        account: &Account,
        render: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let turn = self.turn(account).acquire_owned().await.expect("turns are never closed");
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("the slots are never closed");
        let span = Span::current();
        let rendering = move || {
            let _held = (turn, slot);
            span.in_scope(render)
        };
        match task::spawn_blocking(rendering).await {
            Ok(rendered) => rendered,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime cancels tasks at its end only.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Returns the semaphore with the turn of an account. Turns that nobody uses are dropped.
    fn turn(&self, account: &Account) -> Arc<Semaphore> {
        // Each change is complete before the lock is released.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(account.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_account_with_many_reads_delays_another_one_by_one_read() {
        let pool = Arc::new(RenderPool::with_slots(1));
        let account = |name: &str| Account::Token(name.to_owned());
        let (release, released) = mpsc::channel::<()>();
        let (log, done) = mpsc::channel();
        let mut tasks = Vec::new();
        let first = Arc::clone(&pool);
        let greedy = account("greedy");
        tasks.push(tokio::spawn(async move { first.run(&greedy, move || released.recv().unwrap()).await }));
        while pool.slots.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        for name in ["greedy", "greedy", "greedy", "other"] {
            let (pool, log, account) = (Arc::clone(&pool), log.clone(), account(name));
            tasks
                .push(tokio::spawn(async move { pool.run(&account, move || log.send(name).unwrap()).await }));
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let order: Vec<_> = done.try_iter().collect();
        assert_eq!((order[0], order.len()), ("other", 4));
        pool.turn(&account("new"));
        assert_eq!(pool.turns.lock().unwrap().len(), 1);
    }
}
