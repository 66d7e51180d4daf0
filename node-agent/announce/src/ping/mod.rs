//! Replies to ICMP and ICMPv6 echo requests (pings) for the addresses this node announces, or drops such
//! requests.
//!
//! The addresses are not configured on the node, so the kernel does not reply by itself. A small nf_tables
//! table handles the requests:
//!
//! ```text
//! prerouting, before connection tracking:  echo request to a silent address     ─▶ drop
//! prerouting, before all other translation: echo request to an answered address ─▶ redirect to this node
//! ```
//! The table is the same in every proxy mode and independent of the mode's own tables. It is created with the
//! first announced address and removed with the last. Addresses are only elements of its sets. A change of
//! one address writes one element, then deletes the conntrack entries of pings that this node forwarded
//! before. The table is recognized by its name, regardless of its creator; nothing outside of it is changed.
//!
//! A dedicated thread writes the table, because the kernel allows only one writer of nf_tables at a time, and
//! a takeover of an address must not wait for the programming of all Services.

mod forget;
mod kernel;
pub mod parse;
pub mod plan;
pub mod render;
pub mod schema;
mod thread;

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    sync::mpsc::{Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use tracing::error;

pub use self::{kernel::cleanup, schema::Reply};

/// Time for which addresses in the table of a previous process are kept until this process sets them: the
/// time that other nodes wait for a restarting agent (10 s), with a margin.
pub const SETTLE_TIME: Duration = Duration::from_secs(30);

/// Handle to the thread that maintains the echo reply table. Dropping the handle waits until all queued
/// requests are carried out.
#[derive(Debug)]
pub struct Ping {
    orders: Option<Sender<ThreadOrder>>,
    thread: Option<JoinHandle<()>>,
}

/// Request to the thread that maintains the echo reply table.
#[derive(Debug)]
enum ThreadOrder {
    /// Set the ping replies for some addresses; `None` removes an address from the table.
    Set(BTreeMap<IpAddr, Option<Reply>>),
    /// Leave the table unchanged from now on, so that pings are answered while the agent restarts.
    Keep,
}

impl Ping {
    /// Starts the thread for the network namespace of the calling thread. `warn` is called with the current
    /// problem whenever the problem changes, and with `None` when it is resolved.
    ///
    /// # Errors
    /// Returns an I/O error if the thread cannot be created. Missing kernel support is reported as a warning
    /// once it is needed.
    pub fn start(settle_time: Duration, warn: impl Fn(Option<String>) + Send + 'static) -> io::Result<Self> {
        let (orders, received) = channel();
        let thread = std::thread::Builder::new()
            .name("announce-ping".to_owned())
            .spawn(move || thread::run(&received, settle_time, warn))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Queues changed ping settings (reply or drop) of addresses; `None` removes an address. Does not block.
    pub fn set(&self, changes: BTreeMap<IpAddr, Option<Reply>>) {
        self.tell(ThreadOrder::Set(changes));
    }

    /// Leaves the table unchanged from now on, so that pings are answered while the agent restarts.
    pub fn keep(&self) {
        self.tell(ThreadOrder::Keep);
    }

    fn tell(&self, order: ThreadOrder) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_err()
        {
            error!("the thread that handles echo requests has stopped");
        }
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread has already printed a panic.
            let _ended = thread.join();
        }
    }
}
