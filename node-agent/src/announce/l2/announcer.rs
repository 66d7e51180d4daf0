//! The thread that announces. It has nothing else to do, so that no pass over a dataplane keeps a question waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Instant, SystemTime},
};

use model::kinds::advertisement::InterfaceName;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

pub use super::machine::{Conflict, Duty, PortCounters, ProbeAnswer, Timing, Wanted};
use super::{
    interfaces::Interfaces,
    machine::{Machine, Output, ProbeId},
};
use crate::links::Links;

/// Conflicts that nobody has taken yet; further ones are told a second later.
pub const CONFLICTS_WAITING_MAX: usize = 1024;
/// Probes that wait for the thread; another one gets no verdict.
const PROBES_WAITING_MAX: usize = 4096;

/// A running announcer. Dropping it ends the thread: from then on nothing is announced or answered.
#[derive(Debug)]
pub struct Announcer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the announcer has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// By address, since it was first wanted.
    pub addresses: BTreeMap<IpAddr, AddressStatus>,
    /// By name, since the interface came up: those that are up and have an Ethernet address.
    pub interfaces: BTreeMap<String, InterfaceStatus>,
    /// How often frames woke the thread.
    pub wakeups: u64,
}

/// What was done for one address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressStatus {
    /// Questions answered.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited neighbour advertisements sent.
    pub gratuitous: u64,
    /// When the last of them was sent.
    pub last_gratuitous: Option<SystemTime>,
}

/// What was done on one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// What was counted.
    pub counters: PortCounters,
    /// Why it cannot be listened on.
    pub error: Option<String>,
}

/// What the thread and its users share.
#[derive(Debug)]
struct Shared {
    mailbox: Mutex<Mailbox>,
    bell: EventFd,
}

/// What the thread has not seen yet. Newer wishes replace older ones, so that it stays small.
#[derive(Debug, Default)]
struct Mailbox {
    changes: BTreeMap<IpAddr, Option<Wanted>>,
    changed: Vec<oneshot::Sender<BTreeSet<IpAddr>>>,
    again: BTreeSet<IpAddr>,
    links: Option<Links>,
    probes: Vec<(IpAddr, BTreeSet<InterfaceName>, oneshot::Sender<ProbeAnswer>)>,
    asked: Vec<oneshot::Sender<Status>>,
    is_over: bool,
}

impl Shared {
    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // It fails only when it rings already.
        let _ringing = self.bell.write(1);
    }
}

impl Announcer {
    /// Starts the thread in the network namespace of the calling thread. Conflicts come through the receiver.
    ///
    /// # Errors
    /// When the kernel gives no thread or no descriptors.
    pub fn start(timing: Timing) -> io::Result<(Self, mpsc::Receiver<Conflict>)> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let interfaces = Interfaces::new(&bell)?;
        let shared = Arc::new(Shared { mailbox: Mutex::default(), bell });
        let (conflicts, told) = mpsc::channel(CONFLICTS_WAITING_MAX);
        let turn = Turn {
            shared: Arc::clone(&shared),
            machine: Machine::new(timing),
            interfaces,
            conflicts,
            probes: BTreeMap::new(),
            last_probe: 0,
            wakeups: 0,
        };
        let thread = std::thread::Builder::new().name("announcer".to_owned()).spawn(move || turn.run())?;
        Ok((Self { shared, thread: Some(thread) }, told))
    }

    /// Changes what is wanted of addresses; none withdraws one at once, without a word to anybody. The answer comes when it
    /// has been done (for a withdrawal: when no question is answered any longer), with the addresses that were beyond
    /// [`super::machine::ADDRESSES_MAX`] and were not taken.
    pub fn set(&self, changes: BTreeMap<IpAddr, Option<Wanted>>) -> oneshot::Receiver<BTreeSet<IpAddr>> {
        let (done, is_done) = oneshot::channel();
        let mut mailbox = self.shared.mailbox();
        mailbox.changes.extend(changes);
        mailbox.changed.push(done);
        drop(mailbox);
        self.shared.ring();
        is_done
    }

    /// Announces an address anew with a whole burst, as after a conflict; nothing when it is not announced.
    pub fn announce_again(&self, address: IpAddr) {
        self.shared.mailbox().again.insert(address);
        self.shared.ring();
    }

    /// Asks whether anybody else has an address. The answer comes within [`super::machine::PROBE_TIME`] and a moment.
    pub fn probe(
        &self,
        address: IpAddr,
        interfaces: BTreeSet<InterfaceName>,
    ) -> oneshot::Receiver<ProbeAnswer> {
        let (answer, is_answered) = oneshot::channel();
        let mut mailbox = self.shared.mailbox();
        if mailbox.probes.len() < PROBES_WAITING_MAX {
            mailbox.probes.push((address, interfaces, answer));
        } else {
            // Whoever asked may have gone.
            let _gone = answer.send(ProbeAnswer::Unknown);
        }
        drop(mailbox);
        self.shared.ring();
        is_answered
    }

    /// What has been done so far.
    pub fn status(&self) -> oneshot::Receiver<Status> {
        let (answer, is_answered) = oneshot::channel();
        self.shared.mailbox().asked.push(answer);
        self.shared.ring();
        is_answered
    }

    /// Tells the announcer what interfaces there are.
    pub fn links(&self, links: Links) {
        hand_over(&self.shared, links);
    }

    /// Tells the announcer what interfaces there are, now and whenever that changes; ends when the sender does.
    pub fn follow(&self, mut links: watch::Receiver<Links>) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            loop {
                let now = links.borrow_and_update().clone();
                hand_over(&shared, now);
                if links.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

fn hand_over(shared: &Shared, links: Links) {
    shared.mailbox().links = Some(links);
    shared.ring();
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.shared.mailbox().is_over = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread already.
            let _ended = thread.join();
        }
    }
}

/// What the thread works with.
struct Turn {
    shared: Arc<Shared>,
    machine: Machine,
    interfaces: Interfaces,
    conflicts: mpsc::Sender<Conflict>,
    probes: BTreeMap<ProbeId, oneshot::Sender<ProbeAnswer>>,
    last_probe: ProbeId,
    wakeups: u64,
}

impl Turn {
    fn run(mut self) {
        loop {
            match self.interfaces.wait(self.machine.poll_timeout()) {
                Ok(ready) => {
                    self.wakeups += u64::from(!ready.is_empty());
                    for place in ready {
                        self.interfaces.read(place, &mut self.machine);
                    }
                }
                Err(error) => {
                    error!(%error, "announcing ends: the kernel does not tell of frames");
                    return;
                }
            }
            // The count does not matter, and there may be none.
            let _count = self.shared.bell.read();
            let mailbox = std::mem::take(&mut *self.shared.mailbox());
            if mailbox.is_over {
                return;
            }
            self.turn(mailbox, Instant::now());
        }
    }

    /// Listens before it speaks, and has done both before it says so.
    fn turn(&mut self, mailbox: Mailbox, now: Instant) {
        let Mailbox { changes, changed, again, links, probes, asked, is_over: _ } = mailbox;
        if let Some(links) = links {
            self.machine.links(&links, now);
        }
        let refused = self.machine.set(changes, now);
        for address in again {
            self.machine.announce_again(address, now);
        }
        for (address, interfaces, answer) in probes {
            self.last_probe += 1;
            self.probes.insert(self.last_probe, answer);
            self.machine.probe(self.last_probe, address, &interfaces, now);
        }
        self.machine.timeout(now);
        self.interfaces.follow(self.machine.take_changed(), &self.machine, now);
        for output in self.machine.take_outputs() {
            self.carry_out(output);
        }
        // Whoever asked may have gone.
        for done in changed {
            let _gone = done.send(refused.clone());
        }
        for answer in asked {
            let _gone = answer.send(self.status(now));
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { index, family, frame } => {
                if !self.interfaces.send((index, family), &frame) {
                    self.machine.not_sent(index);
                }
            }
            Output::Conflict(conflict) => {
                // When nobody has taken the last thousand, the next second tells it again.
                let _full = self.conflicts.try_send(conflict);
            }
            Output::Probed(id, answer) => {
                if let Some(waiting) = self.probes.remove(&id) {
                    let _gone = waiting.send(answer);
                }
            }
        }
    }

    fn status(&self, now: Instant) -> Status {
        let wall = SystemTime::now();
        let at = |instant: Instant| wall.checked_sub(now.saturating_duration_since(instant));
        let addresses = self.machine.addresses().map(|(address, counters)| {
            let status = AddressStatus {
                replies: counters.replies,
                gratuitous: counters.gratuitous,
                last_gratuitous: counters.last_gratuitous.and_then(at),
            };
            (address, status)
        });
        let interfaces = self.machine.interfaces().map(|(index, name, counters)| {
            let error = self.interfaces.error(index).map(str::to_owned);
            (name.to_owned(), InterfaceStatus { counters: counters.clone(), error })
        });
        Status { addresses: addresses.collect(), interfaces: interfaces.collect(), wakeups: self.wakeups }
    }
}
