//! Dedicated thread of the ARP and NDP announcer, so that kernel updates never delay a reply.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Instant, SystemTime},
};

use kernel::links::Links;
use model::kinds::advertisement::InterfaceName;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

pub use super::machine::{DesiredAddress, Duty, L2Conflict, PortCounters, ProbeAnswer, Timing};
use super::{
    interfaces::Interfaces,
    machine::{L2Output, Machine, ProbeId},
};

/// Capacity of the conflict channel. Conflicts that do not fit are reported again one second later.
pub const CONFLICTS_WAITING_MAX: usize = 1024;
/// Maximum number of probes queued for the thread. Further probes return [`ProbeAnswer::Unknown`] at once.
const PROBES_WAITING_MAX: usize = 4096;

/// Handle to a running ARP and NDP announcer. Dropping the handle ends the thread: addresses are no longer
/// announced, and requests no longer answered.
#[derive(Debug)]
pub struct Announcer {
    shared: Arc<AnnouncerShared>,
    thread: Option<JoinHandle<()>>,
}

/// Snapshot of the counters of the announcer thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Counters of each address since the address was first set.
    pub addresses: BTreeMap<IpAddr, AddressStatus>,
    /// Counters of the interfaces that are up and have an Ethernet address, by interface name, since the
    /// interface came up.
    pub interfaces: BTreeMap<String, InterfaceStatus>,
    /// Number of times that the thread was woken by received frames.
    pub wakeups: u64,
}

/// Frames sent for one address since it was first set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressStatus {
    /// ARP replies and solicited Neighbor Advertisements sent.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited Neighbor Advertisements sent.
    pub gratuitous: u64,
    /// Time of the last gratuitous announcement.
    pub last_gratuitous: Option<SystemTime>,
}

/// Frame counters and listening error of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceStatus {
    /// Counters of received, sent and dropped frames.
    pub counters: PortCounters,
    /// Error of the packet socket, of its filter or of a multicast group, which may prevent the reception of
    /// requests; `None` if there is no error.
    pub error: Option<String>,
}

/// State shared by the announcer thread and its handle: the mailbox and the descriptor that wakes the thread.
#[derive(Debug)]
struct AnnouncerShared {
    mailbox: Mutex<Mailbox>,
    bell: EventFd,
}

/// Requests that the thread has not processed yet. Newer requests replace older ones, so the memory is
/// limited.
#[derive(Debug, Default)]
struct Mailbox {
    changes: BTreeMap<IpAddr, Option<DesiredAddress>>,
    changed: Vec<oneshot::Sender<BTreeSet<IpAddr>>>,
    again: BTreeSet<IpAddr>,
    quiet: BTreeSet<IpAddr>,
    links: Option<Links>,
    probes: Vec<(IpAddr, BTreeSet<InterfaceName>, oneshot::Sender<ProbeAnswer>)>,
    asked: Vec<oneshot::Sender<Status>>,
    is_over: bool,
}

impl AnnouncerShared {
    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // The write fails only if the bell is already pending.
        let _ringing = self.bell.write(1);
    }
}

impl Announcer {
    /// Starts the thread in the network namespace of the calling thread. Conflicts arrive on the receiver.
    ///
    /// # Errors
    /// Returns an I/O error if the kernel cannot create the thread or its descriptors.
    pub fn start(timing: Timing) -> io::Result<(Self, mpsc::Receiver<L2Conflict>)> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let interfaces = Interfaces::new(&bell)?;
        let shared = Arc::new(AnnouncerShared { mailbox: Mutex::default(), bell });
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

    /// Changes the announced addresses; `None` withdraws an address at once and silently. The reply arrives
    /// when the change is in effect (for a withdrawal: when requests are no longer answered). The reply
    /// contains the addresses rejected because of [`super::machine::ADDRESSES_MAX`].
    pub fn set(
        &self,
        changes: BTreeMap<IpAddr, Option<DesiredAddress>>,
    ) -> oneshot::Receiver<BTreeSet<IpAddr>> {
        let (done, is_done) = oneshot::channel();
        let mut mailbox = self.shared.mailbox();
        mailbox.changes.extend(changes);
        mailbox.changed.push(done);
        drop(mailbox);
        self.shared.ring();
        is_done
    }

    /// Announces an address again with a full burst (five announcements), for example after a conflict. Has
    /// no effect if the address is not announced.
    pub fn announce_again(&self, address: IpAddr) {
        let mut mailbox = self.shared.mailbox();
        mailbox.quiet.remove(&address);
        mailbox.again.insert(address);
        drop(mailbox);
        self.shared.ring();
    }

    /// Ends the current burst of announcements of an address, after its first one. Requests are still answered,
    /// and the address is announced again about once a minute.
    pub fn quiet(&self, address: IpAddr) {
        self.shared.mailbox().quiet.insert(address);
        self.shared.ring();
    }

    /// Checks by a probe if another station on the link uses an address. The reply arrives shortly after
    /// [`super::machine::PROBE_TIME`].
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
            // The caller may have dropped the receiver.
            let _gone = answer.send(ProbeAnswer::Unknown);
        }
        drop(mailbox);
        self.shared.ring();
        is_answered
    }

    /// Requests the current counters. The receiver gets them after the thread's next iteration.
    pub fn status(&self) -> oneshot::Receiver<Status> {
        let (answer, is_answered) = oneshot::channel();
        self.shared.mailbox().asked.push(answer);
        self.shared.ring();
        is_answered
    }

    /// Passes the current state of the interfaces to the announcer.
    pub fn links(&self, links: Links) {
        hand_over(&self.shared, links);
    }

    /// Passes the state of the interfaces to the announcer, now and after every change; ends when the sender
    /// is dropped.
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

fn hand_over(shared: &AnnouncerShared, links: Links) {
    shared.mailbox().links = Some(links);
    shared.ring();
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.shared.mailbox().is_over = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // The thread has already printed a panic.
            let _ended = thread.join();
        }
    }
}

/// Sockets and state machine, owned by the announcer thread.
struct Turn {
    shared: Arc<AnnouncerShared>,
    machine: Machine,
    interfaces: Interfaces,
    conflicts: mpsc::Sender<L2Conflict>,
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
                    error!(%error, "announcing stopped: cannot poll for frames");
                    return;
                }
            }
            // The counter is irrelevant, and may be absent.
            let _count = self.shared.bell.read();
            let mailbox = std::mem::take(&mut *self.shared.mailbox());
            if mailbox.is_over {
                return;
            }
            self.turn(mailbox, Instant::now());
        }
    }

    /// Applies the pending requests of the mailbox: first opens sockets, then sends frames, then replies to
    /// the requester.
    fn turn(&mut self, mailbox: Mailbox, now: Instant) {
        let Mailbox { changes, changed, again, quiet, links, probes, asked, is_over: _ } = mailbox;
        if let Some(links) = links {
            self.machine.links(&links, now);
        }
        let refused = self.machine.set(changes, now);
        for address in again {
            self.machine.announce_again(address, now);
        }
        for address in quiet {
            self.machine.quiet(address, now);
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
        // The caller may have dropped the receiver.
        for done in changed {
            let _gone = done.send(refused.clone());
        }
        for answer in asked {
            let _gone = answer.send(self.status(now));
        }
    }

    fn carry_out(&mut self, output: L2Output) {
        match output {
            L2Output::Send { index, family, frame } => {
                if !self.interfaces.send((index, family), &frame) {
                    self.machine.not_sent(index);
                }
            }
            L2Output::Conflict(conflict) => {
                // If the channel is full, the conflict is reported again in the next second.
                let _full = self.conflicts.try_send(conflict);
            }
            L2Output::Probed(id, answer) => {
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
