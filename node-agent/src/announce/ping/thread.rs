//! The thread that keeps the table as it should be: at once after a change, and soon after somebody else has changed it.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use tracing::{debug, info, warn};

use super::{
    Order,
    kernel::Kernel,
    plan::{self, Replies, Table},
};

/// Time between two looks at whether somebody else has changed the table, and between attempts after a failure.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until nobody can say anything any longer.
pub(super) fn run(orders: &Receiver<Order>, settle_time: Duration, tell: impl Fn(Option<String>)) {
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
                None => info!("echo requests are dealt with as asked again"),
            }
            keeper.warning.clone_from(&warning);
            tell(warning);
        }
    }
}

struct Keeper {
    /// Made when it is needed; made anew after a failure.
    kernel: Option<Kernel>,
    wanted: Replies,
    touched: BTreeSet<IpAddr>,
    /// What a former process has left, until somebody decides about it.
    unclaimed: BTreeSet<IpAddr>,
    settle_at: Instant,
    look_at: Instant,
    /// Whether the last attempt failed and another one can help.
    must_retry: bool,
    warning: Option<String>,
}

impl Keeper {
    fn new(settle_time: Duration) -> Self {
        let now = Instant::now();
        let kernel = Kernel::open().inspect_err(|error| debug!(%error, "nf_tables cannot be read")).ok();
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

    /// When there is something to do without being told; never while no address is announced and no table is there.
    fn poll_timeout(&self) -> Option<Instant> {
        let has_table = self.kernel.as_ref().is_some_and(|kernel| *kernel.table() != Table::Absent);
        let settle = (!self.unclaimed.is_empty()).then_some(self.settle_at);
        let look = (has_table || self.must_retry || !self.wanted.is_empty()).then_some(self.look_at);
        settle.into_iter().chain(look).min()
    }

    /// Takes what has been said by now; answers whether to go on.
    fn take_all(&mut self, first: Order, orders: &Receiver<Order>) -> bool {
        for order in std::iter::once(first).chain(orders.try_iter()) {
            match order {
                Order::Set(changes) => {
                    for (address, reply) in changes {
                        self.unclaimed.remove(&address);
                        self.touched.insert(address);
                        match reply {
                            Some(reply) => self.wanted.insert(address, reply),
                            None => self.wanted.remove(&address),
                        };
                    }
                }
                Order::Keep => return false,
            }
        }
        true
    }

    /// Does what is due. Answers what is wrong.
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
            // What has failed is tried again when it is time to look.
            return self.warning.clone();
        }
        // What was not so any longer is seen when everything is read anew.
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
                // Where nothing can be read and nothing is wanted, there is nothing to do.
                self.must_retry = self.kernel.take().is_some() || !self.wanted.is_empty();
                (!self.wanted.is_empty()).then(|| {
                    format!("whether announced addresses answer to ping is left to the proxy mode: {error}")
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
            info!("the table that answers to pings was not as it should be, and is again");
        }
        Ok(())
    }

    fn look(&mut self) -> io::Result<bool> {
        self.kernel.as_mut().map_or(Ok(false), Kernel::look)
    }
}
