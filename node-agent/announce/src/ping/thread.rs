//! Thread that maintains the echo reply table: it writes changes at once, and repairs changes by other
//! programs within a second.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use tracing::{debug, info, warn};

use super::{
    ThreadOrder,
    kernel::Kernel,
    plan::{self, Replies, Table},
};

/// Interval between checks for changes by other programs, and delay before a failed write is repeated.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Main loop of the thread that maintains the nf_tables table for echo requests (pings). Returns when all senders
/// of `orders` are dropped.
pub(super) fn run(orders: &Receiver<ThreadOrder>, settle_time: Duration, tell: impl Fn(Option<String>)) {
    let mut keeper = Keeper::new(settle_time);
    loop {
        let order = match keeper.poll_timeout() {
            Some(due) => orders.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(order) => {
                if !keeper.take_all(order, orders) {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let warning = keeper.turn(Instant::now());
        if warning != keeper.warning {
            match &warning {
                Some(warning) => warn!("{warning}"),
                None => info!("echo requests are handled as configured again"),
            }
            keeper.warning.clone_from(&warning);
            tell(warning);
        }
    }
}

struct Keeper {
    /// Kernel access, opened when the first address is announced, and reopened after a failure.
    kernel: Option<Kernel>,
    wanted: Replies,
    touched: BTreeSet<IpAddr>,
    /// Addresses in the table of a previous process that this process has not set yet. They are removed after
    /// the settle time.
    unclaimed: BTreeSet<IpAddr>,
    settle_at: Instant,
    look_at: Instant,
    /// True if the last attempt failed with a temporary error, so that the attempt is repeated after
    /// [`LOOK_INTERVAL`].
    must_retry: bool,
    warning: Option<String>,
}

impl Keeper {
    fn new(settle_time: Duration) -> Self {
        let now = Instant::now();
        let kernel = Kernel::open().inspect_err(|error| debug!(%error, "cannot read nf_tables")).ok();
        let wanted = match kernel.as_ref().map(Kernel::table) {
            Some(Table::Present(replies)) => replies.clone(),
            Some(Table::Absent | Table::Strange) | None => Replies::new(),
        };
        Self {
            unclaimed: wanted.keys().copied().collect(),
            kernel,
            wanted,
            touched: BTreeSet::new(),
            settle_at: now + settle_time,
            look_at: now,
            must_retry: false,
            warning: None,
        }
    }

    /// Returns the time of the next action that no order triggers (check for changes by other programs,
    /// retry, end of the settle time). `None` if no address is announced and there is no table.
    fn poll_timeout(&self) -> Option<Instant> {
        let has_table = self.kernel.as_ref().is_some_and(|kernel| *kernel.table() != Table::Absent);
        let settle = (!self.unclaimed.is_empty()).then_some(self.settle_at);
        let look = (has_table || self.must_retry || !self.wanted.is_empty()).then_some(self.look_at);
        settle.into_iter().chain(look).min()
    }

    /// Applies `first` and all queued orders to the desired state. Returns false if the thread should end.
    fn take_all(&mut self, first: ThreadOrder, orders: &Receiver<ThreadOrder>) -> bool {
        for order in std::iter::once(first).chain(orders.try_iter()) {
            match order {
                ThreadOrder::Set(changes) => {
                    for (address, reply) in changes {
                        self.unclaimed.remove(&address);
                        self.touched.insert(address);
                        match reply {
                            Some(reply) => self.wanted.insert(address, reply),
                            None => self.wanted.remove(&address),
                        };
                    }
                }
                ThreadOrder::Keep => return false,
            }
        }
        true
    }

    /// Writes pending changes and repairs changes by other programs. Returns the current problem, or `None`.
    fn turn(&mut self, now: Instant) -> Option<String> {
        if now >= self.settle_at {
            for address in std::mem::take(&mut self.unclaimed) {
                self.wanted.remove(&address);
                self.touched.insert(address);
            }
        }
        let is_look = now >= self.look_at;
        if is_look {
            self.look_at = now + LOOK_INTERVAL;
        } else if self.touched.is_empty() || self.must_retry {
            // A failed write is retried at the next drift check.
            return self.warning.clone();
        }
        // Reopening reads everything again, which corrects an outdated cache.
        let written = self.write(is_look).or_else(|_| {
            self.kernel = None;
            self.write(false)
        });
        match written {
            Ok(()) => {
                self.touched.clear();
                self.must_retry = false;
                None
            }
            Err(error) => {
                // If nothing can be read and nothing is wanted, there is nothing to do.
                self.must_retry = self.kernel.take().is_some() || !self.wanted.is_empty();
                (!self.wanted.is_empty()).then(|| {
                    format!(
                        "the proxy mode decides whether announced addresses answer pings, because \
                             their table cannot be written: {error}"
                    )
                })
            }
        }
    }

    fn write(&mut self, is_look: bool) -> io::Result<()> {
        let mut everything = is_look && self.look()?;
        let kernel = match &mut self.kernel {
            Some(kernel) => kernel,
            None => {
                everything = true;
                self.kernel.insert(Kernel::open()?)
            }
        };
        let is_drift = everything && self.touched.is_empty();
        if everything {
            self.touched.extend(plan::everything(&self.wanted, kernel.table()));
        }
        if kernel.write(&self.wanted, &self.touched)? && is_drift {
            info!("repaired drift of the table that handles echo requests");
        }
        Ok(())
    }

    fn look(&mut self) -> io::Result<bool> {
        self.kernel.as_mut().map_or(Ok(false), Kernel::look)
    }
}
