//! Packet sockets of the interfaces. A socket is open only while an address is announced on its interface or
//! watched for other announcers there.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use model::primitives::net::IpFamily;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{debug, warn};

use super::{
    filter::{FRAME_BYTES_MAX, Filter},
    groups::Groups,
    machine::{Listening, Machine},
    socket::{PacketSocket, Read},
};

/// Maximum number of interfaces with an open socket, per address family.
const INTERFACES_MAX: usize = 256;
/// Maximum number of frames read from one socket per loop iteration.
const FRAMES_PER_TURN_MAX: usize = 64;
/// Maximum number of ready sockets processed per loop iteration.
const READY_MAX: usize = 64;
/// Delay before a failed operation (opening a socket, setting its filter, joining a group) is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Epoll token of the descriptor that interrupts waiting. Interface indexes have 31 bits, so it cannot
/// collide with a socket's token.
const BELL: u64 = u64::MAX;

/// Key of a socket: interface index and address family.
type Place = (u32, IpFamily);

/// Packet sockets of all interfaces, and the epoll instance that waits for frames on them.
pub(super) struct Interfaces {
    epoll: Epoll,
    listeners: BTreeMap<Place, Listener>,
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    addresses: BTreeMap<IpAddr, Listening>,
    filter: Filter,
    socket: Option<PacketSocket>,
    groups: Groups,
    error: Option<String>,
}

impl Interfaces {
    /// Creates the epoll instance without sockets. Writing to the descriptor `bell` interrupts
    /// [`Self::wait`].
    pub(super) fn new(bell: impl AsFd) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self { epoll, listeners: BTreeMap::new(), retry_at: None })
    }

    /// Waits until a frame arrives, the descriptor `bell` is signaled, or the time `until` is reached.
    /// Returns the sockets with frames.
    pub(super) fn wait(&self, until: Option<Instant>) -> io::Result<Vec<(u32, IpFamily)>> {
        let until = until.into_iter().chain(self.retry_at).min();
        let timeout = until.map_or(EpollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            // Rounded up, so that `until` has passed when the wait ends.
            let millis = left.as_micros().div_ceil(1000).min(60_000);
            EpollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
        });
        let mut ready = [EpollEvent::empty(); READY_MAX];
        let count = match self.epoll.wait(&mut ready, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(ready.iter().take(count).filter_map(|event| place_of(event.data())).collect())
    }

    /// Reads at most [`FRAMES_PER_TURN_MAX`] frames from a socket and passes them to the state machine.
    pub(super) fn read(&mut self, place: Place, machine: &mut Machine) {
        let Some(listener) = self.listeners.get_mut(&place) else { return };
        let mut buffer = [0; FRAME_BYTES_MAX as usize];
        for _ in 0..FRAMES_PER_TURN_MAX {
            let Some(socket) = &listener.socket else { return };
            match socket.read(&mut buffer) {
                Read::Frame(bytes, age) => {
                    machine.receive(place.0, buffer.get(..bytes).unwrap_or_default(), age, Instant::now());
                }
                Read::Nothing => return,
                Read::Broken(error) => {
                    debug!(index = place.0, %error, "packet socket failed and is reopened later");
                    listener.socket = None;
                    listener.error = Some(error.to_string());
                    self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                }
            }
        }
    }

    /// Sends a frame on a socket. Returns true if the kernel accepted the frame.
    pub(super) fn send(&self, place: Place, frame: &[u8]) -> bool {
        let socket = self.listeners.get(&place).and_then(|listener| listener.socket.as_ref());
        socket.is_some_and(|socket| match socket.send(frame) {
            Ok(()) => true,
            Err(error) => {
                debug!(index = place.0, %error, "cannot send a frame");
                false
            }
        })
    }

    /// Opens, closes and reconfigures the sockets for the `changed` pairs of interface and address, and
    /// retries failed operations.
    pub(super) fn follow(&mut self, changed: BTreeSet<(u32, IpAddr)>, machine: &Machine, now: Instant) {
        let mut touched = BTreeSet::new();
        for (index, address) in changed {
            let place = (index, IpFamily::of(address));
            self.note(place, address, machine.listening(index, address));
            touched.insert(place);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            let failed = self.listeners.iter().filter(|(_, listener)| listener.error.is_some());
            touched.extend(failed.map(|(place, _)| *place));
        }
        for place in touched {
            self.bring_in_line(place, now);
        }
    }

    fn note(&mut self, place: Place, address: IpAddr, listening: Listening) {
        if listening == Listening::No && !self.listeners.contains_key(&place) {
            return;
        }
        let listener = self.listeners.entry(place).or_insert_with(|| Listener {
            addresses: BTreeMap::new(),
            filter: Filter::new(place.1, []),
            socket: None,
            groups: Groups::default(),
            error: None,
        });
        match listening {
            Listening::No => listener.addresses.remove(&address),
            Listening::Overheard | Listening::Answered => listener.addresses.insert(address, listening),
        };
        if let IpAddr::V6(v6) = address {
            match listening {
                Listening::Answered => listener.groups.add(v6),
                Listening::No | Listening::Overheard => listener.groups.remove(v6, place.0),
            }
        }
    }

    fn bring_in_line(&mut self, place: Place, now: Instant) {
        let of_family = self.listeners.keys().filter(|(_, family)| *family == place.1).count();
        let Some(listener) = self.listeners.get_mut(&place) else { return };
        if listener.addresses.is_empty() {
            self.listeners.remove(&place);
            return;
        }
        let outcome = if of_family > INTERFACES_MAX && listener.socket.is_none() {
            Err(io::Error::other(format!("the limit of {INTERFACES_MAX} listening interfaces is reached")))
        } else {
            listener.bring_in_line(place, &self.epoll)
        };
        match outcome {
            Ok(()) => listener.error = None,
            Err(error) => {
                let text = error.to_string();
                if listener.error.as_ref() != Some(&text) {
                    warn!(
                        index = place.0,
                        family = place.1.as_str(),
                        error = text,
                        "cannot listen on an interface"
                    );
                }
                listener.error = Some(text);
                self.retry_at = Some(now + RETRY_INTERVAL);
            }
        }
    }

    /// Returns the error that prevents listening on an interface, or `None`.
    pub(super) fn error(&self, index: u32) -> Option<&str> {
        let both = IpFamily::ALL.into_iter().filter_map(|family| self.listeners.get(&(index, family)));
        both.filter_map(|listener| listener.error.as_deref()).next()
    }
}

impl Listener {
    fn bring_in_line(&mut self, (index, family): Place, epoll: &Epoll) -> io::Result<()> {
        let filter = Filter::new(family, self.addresses.keys().copied());
        match &self.socket {
            Some(socket) if filter != self.filter => socket.set_filter(&filter.program())?,
            Some(_) => {}
            None => {
                let socket = PacketSocket::open(index, family, &filter.program())?;
                epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, number_of((index, family))))?;
                self.socket = Some(socket);
            }
        }
        self.filter = filter;
        self.groups.join(index)
    }
}

const fn number_of((index, family): Place) -> u64 {
    let family = match family {
        IpFamily::V4 => 0,
        IpFamily::V6 => 1,
    };
    (index as u64) << 1 | family
}

fn place_of(number: u64) -> Option<Place> {
    let index = u32::try_from(number >> 1).ok()?;
    Some((index, if number & 1 == 0 { IpFamily::V4 } else { IpFamily::V6 }))
}
