//! Answers to ICMP and ICMPv6 echo requests for the addresses that this node announces, or keeps them unanswered.
//!
//! No address is the node's own, so the kernel answers for none of them by itself. A small table of nf_tables makes it:
//!
//! ```text
//! prerouting, before connection tracking:  echo request to a silent address   ─▶ drop
//! prerouting, before all other translation: echo request to an answered one   ─▶ redirect to this node
//! ```
//! It is the same in every proxy mode and apart from what modes make: it comes with the first address that this node
//! announces and goes with the last. Addresses are elements of its sets and nothing else; a change of one address writes
//! one element, and then the flows of pings that this node had passed on before are forgotten. The table is recognised by its name, whoever made it; nothing outside of it is written.
//!
//! A thread of its own writes it, because the kernel lets one writer at a time change its tables, and taking over an
//! address must not wait for a pass over all Services.

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

/// Time for which addresses stay as a former process has left them, until somebody decides about them: as long as the
/// other nodes wait for an agent that restarts (10 s), and then some.
pub const SETTLE_TIME: Duration = Duration::from_secs(30);

/// The way to the thread. Dropped, it waits until everything that was said is done.
#[derive(Debug)]
pub struct Ping {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
enum Order {
    /// What is done about some addresses; `None`: nothing any longer.
    Set(BTreeMap<IpAddr, Option<Reply>>),
    /// Everything stays as it is from now on, because the agent comes back.
    Keep,
}

impl Ping {
    /// Starts the thread, for the network namespace of the calling one. `warn` is told what goes wrong whenever that
    /// changes; nothing when all is well.
    ///
    /// # Errors
    /// When no thread can be made. What the kernel lacks is a warning, once it is needed.
    pub fn start(settle_time: Duration, warn: impl Fn(Option<String>) + Send + 'static) -> io::Result<Self> {
        let (orders, received) = channel();
        let thread = std::thread::Builder::new()
            .name("announce-ping".to_owned())
            .spawn(move || thread::run(&received, settle_time, warn))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Changes what is done about addresses. Returns at once.
    pub fn set(&self, changes: BTreeMap<IpAddr, Option<Reply>>) {
        self.tell(Order::Set(changes));
    }

    /// Leaves everything as it is from now on.
    pub fn keep(&self) {
        self.tell(Order::Keep);
    }

    fn tell(&self, order: Order) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_err()
        {
            error!("the thread that answers to pings has ended");
        }
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread already.
            let _ended = thread.join();
        }
    }
}
