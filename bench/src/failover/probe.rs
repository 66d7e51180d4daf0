//! Continuous UDP probe that records the time of each reply and the node it came through.
//!
//! One UDP socket with a fixed port sends a datagram to the address every [`INTERVAL`]. The node that owns the
//! address forwards the datagram, masqueraded, to a backend elsewhere. The reply contains the source address
//! observed by the backend, which is that of the node. So a reply proves the whole path (the client's neighbor
//! entry, the bridge, the node's rules, the return path) and identifies the node.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lab::{host::netns::Namespace, network::client::Reply as Answer};
use nix::sys::socket::{MsgFlags, send};

/// Interval between probes, the resolution of the measured silence.
pub const INTERVAL: Duration = Duration::from_millis(5);
/// Interval at which the receiver checks for the stop flag.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);

/// Running probe that ends when dropped.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<ProbeLog>>,
    threads: Vec<JoinHandle<()>>,
}

/// Datagrams sent and replies received by a probe.
#[derive(Debug, Clone, Default)]
pub struct ProbeLog {
    /// Send times of the datagrams.
    pub sent: Vec<Instant>,
    /// Replies in the order of arrival.
    pub replies: Vec<Reply>,
    /// Delay of each datagram behind its schedule, which reveals other load on the machine.
    pub lateness: Vec<Duration>,
}

/// Reply to a probe datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Time at which the reply arrived.
    pub at: Instant,
    /// Address of the node that forwarded the datagram.
    pub via: IpAddr,
}

impl Probe {
    /// Starts to probe `to` from a namespace.
    ///
    /// # Errors
    /// Returns an error if there is no route to the address or no thread can be started.
    pub fn start(client: &Namespace, to: SocketAddr) -> Result<Self> {
        let socket = client.inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
            Ok::<_, std::io::Error>(socket)
        });
        let socket = socket.with_context(|| format!("cannot probe {to} from {}", client.name()))?;
        let receiving = socket.try_clone().context("cannot share the probe's socket")?;
        let mut probe = Self { stop: Arc::default(), seen: Arc::default(), threads: Vec::new() };
        let (stop, seen) = (Arc::clone(&probe.stop), Arc::clone(&probe.seen));
        probe.threads.push(client.spawn("probe-receive", move || receive(&receiving, &stop, &seen))?);
        let (stop, seen) = (Arc::clone(&probe.stop), Arc::clone(&probe.seen));
        probe.threads.push(client.spawn("probe-send", move || ask(&socket, &stop, &seen))?);
        Ok(probe)
    }

    /// Returns the datagrams and replies recorded so far.
    #[must_use]
    pub fn seen(&self) -> ProbeLog {
        lock(&self.seen).clone()
    }

    /// Returns the newest reply, or `None` before the first reply.
    #[must_use]
    pub fn last_reply(&self) -> Option<Reply> {
        lock(&self.seen).replies.last().copied()
    }

    /// Returns the node through which the newest `replies` replies came, or `None` unless they all came through
    /// one node after `since`.
    #[must_use]
    pub fn steady_owner(&self, since: Instant, replies: usize) -> Option<IpAddr> {
        let seen = lock(&self.seen);
        let newest = &seen.replies[seen.replies.len().checked_sub(replies.max(1))?..];
        let first = newest.first()?;
        (first.at >= since && newest.iter().all(|reply| reply.via == first.via)).then_some(first.via)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

fn ask(socket: &UdpSocket, stop: &AtomicBool, seen: &Mutex<ProbeLog>) {
    let mut planned = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(planned.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        // While the address has no owner, datagrams queue at the neighbor entry until the socket buffer is
        // full. Blocking would stop the probe; a datagram that does not fit counts as one without a reply.
        let _no_owner = send(socket.as_raw_fd(), b"who?\n", MsgFlags::MSG_DONTWAIT);
        let mut seen = lock(seen);
        seen.sent.push(now);
        seen.lateness.push(now.saturating_duration_since(planned));
        drop(seen);
        while planned <= now {
            planned += INTERVAL;
        }
    }
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, seen: &Mutex<ProbeLog>) {
    let mut datagram = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        // An error is a timeout, or an ICMP error without a reply.
        let Ok(bytes) = socket.recv(&mut datagram) else { continue };
        let at = Instant::now();
        if let Ok(answer) = Answer::parse(&String::from_utf8_lossy(&datagram[..bytes])) {
            lock(seen).replies.push(Reply { at, via: answer.peer.ip() });
        }
    }
}

fn lock(seen: &Mutex<ProbeLog>) -> MutexGuard<'_, ProbeLog> {
    // Lists of times stay consistent if another thread panicked while holding the lock.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProbeLog {
    /// Returns the longest time between two consecutive replies, of those intervals that overlap the time
    /// from `from` to `to`; zero if there are none.
    #[must_use]
    pub fn silence(&self, from: Instant, to: Instant) -> Duration {
        let pairs = self.replies.windows(2).filter(|pair| pair[1].at >= from && pair[0].at <= to);
        pairs.map(|pair| pair[1].at - pair[0].at).max().unwrap_or_default()
    }

    /// Returns the time from `from` to the first later reply through a node other than `owner`, or `None`
    /// without such a reply.
    #[must_use]
    pub fn moved_after(&self, from: Instant, owner: IpAddr) -> Option<Duration> {
        let reply = self.replies.iter().find(|reply| reply.at >= from && reply.via != owner)?;
        Some(reply.at - from)
    }

    /// Returns the number of lost datagrams: those sent from `from` to `to`, minus the replies that arrived
    /// in that time.
    #[must_use]
    pub fn unanswered(&self, from: Instant, to: Instant) -> usize {
        let within = |at: Instant| at >= from && at <= to;
        let sent = self.sent.iter().filter(|&&at| within(at)).count();
        sent.saturating_sub(self.replies.iter().filter(|reply| within(reply.at)).count())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// The silence is the time from the last reply before a gap to the next reply. Input: a probe every 10 ms, no
    /// replies from 30 ms to 80 ms, then replies through another node.
    #[test]
    fn silence_is_what_lies_between_the_last_reply_and_the_next() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let node = |last| IpAddr::V4(Ipv4Addr::new(172, 17, 8, last));
        let replies = [0, 10, 20, 80, 90, 100]
            .map(|ms| Reply { at: at(ms), via: node(if ms < 50 { 101 } else { 102 }) });
        let sent = (0..=10).map(|step| at(step * 10)).collect();
        let seen = ProbeLog { sent, replies: replies.to_vec(), lateness: Vec::new() };
        assert_eq!(seen.silence(at(25), at(100)), Duration::from_millis(60));
        assert_eq!(seen.silence(at(85), at(100)), Duration::from_millis(10));
        assert_eq!(seen.silence(at(101), at(200)), Duration::ZERO);
        assert_eq!(seen.moved_after(at(25), node(101)), Some(Duration::from_millis(55)));
        assert_eq!(seen.moved_after(at(25), node(102)), None);
        assert_eq!(seen.unanswered(at(25), at(100)), 5);
    }
}
