//! Challenge packets: out-of-window segments to which the clients of terminated connections respond with a
//! challenge ACK (RFC 5961). That ACK belongs to no tracked connection any more, so the response to it is a
//! reset, which ends the connection at the client.
//!
//! ```text
//!  node ── out-of-window SYN+ACK from the virtual address ──▶ client
//!  node ◀──────────── challenge ACK with expected number ──── client
//!   │ belongs to no tracked connection: load-balanced anew
//!  target or rule ── RST with exactly that number ─────────▶ client
//! ```
//! Without its conntrack entry a connection ends at the client's next packet. A client that only receives
//! sends no packet any more, because it has nothing to acknowledge, and would wait for a timeout of its own,
//! which few applications have.
//!
//! Best effort: if a packet is lost or filtered, the client receives the reset with its next packet.

pub mod wire;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};
use tracing::debug;

use self::wire::Nudge;

/// Maximum number of clients challenged in one call. Each responds with a packet to this node; more would be
/// a packet storm.
pub const NUDGES_MAX: usize = 50_000;
/// Delay before a client is challenged again: longer than the rate limit of challenge ACKs (half a second in
/// Linux, `tcp_invalid_ratelimit`), and shorter than the second between two calls of [`Nudger::ask_again`].
const AGAIN_AFTER: Duration = Duration::from_millis(750);
/// Number of repetitions of a challenge. The response to the first challenge may be lost: IPVS ends the
/// connection of a removed server at the next packet, and drops that packet.
const AGAIN: u8 = 2;

/// Sender of challenge packets (see the module) and their repetitions. A client that has already received the
/// reset responds to a repetition with a reset, which has no effect.
#[derive(Debug, Default)]
pub struct Nudger {
    waiting: Vec<ChallengedClients>,
}

/// Clients challenged in one call, whose challenges are repeated together.
#[derive(Debug)]
struct ChallengedClients {
    clients: Vec<Nudge>,
    next: Instant,
    left: u8,
}

impl Nudger {
    /// Sends a challenge to each of the first [`NUDGES_MAX`] clients, and schedules its repetition. At most
    /// [`NUDGES_MAX`] clients of all calls together await a repetition; further ones are challenged only
    /// once.
    pub fn ask(&mut self, mut clients: Vec<Nudge>, now: Instant) {
        if clients.is_empty() {
            return;
        }
        clients.truncate(NUDGES_MAX);
        send(&clients);
        let waiting: usize = self.waiting.iter().map(|asked| asked.clients.len()).sum();
        clients.truncate(NUDGES_MAX.saturating_sub(waiting));
        if !clients.is_empty() {
            self.waiting.push(ChallengedClients { clients, next: now + AGAIN_AFTER, left: AGAIN });
        }
    }

    /// Repeats the challenges whose delay has passed.
    pub fn ask_again(&mut self, now: Instant) {
        self.waiting.retain_mut(|asked| {
            if now < asked.next {
                return true;
            }
            send(&asked.clients);
            asked.next = now + AGAIN_AFTER;
            asked.left = asked.left.saturating_sub(1);
            asked.left > 0
        });
    }
}

fn send(clients: &[Nudge]) {
    let families = [(AddressFamily::Inet, true), (AddressFamily::Inet6, false)];
    for (family, is_v4) in families {
        let mut of_family = clients.iter().filter(|nudge| nudge.client.is_ipv4() == is_v4);
        let Some(first) = of_family.next() else { continue };
        match open(family) {
            Ok(socket) => std::iter::once(first).chain(of_family).for_each(|nudge| send_one(&socket, nudge)),
            Err(error) => debug!(%error, "clients of terminated connections cannot be challenged; they \
                                          are reset when they next send a packet"),
        }
    }
}

/// Opens a raw IP socket for complete packets, including the IP header in IPv4.
fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Raw, flags, SockProtocol::Raw)?)
}

fn send_one(socket: &OwnedFd, nudge: &Nudge) {
    let Some(packet) = nudge.packet() else { return };
    // On a raw socket the port must be 0.
    let sent = match nudge.client {
        SocketAddr::V4(mut client) => {
            client.set_port(0);
            sendto(socket.as_raw_fd(), &packet, &SockaddrIn::from(client), MsgFlags::empty())
        }
        SocketAddr::V6(mut client) => {
            client.set_port(0);
            sendto(socket.as_raw_fd(), &packet, &SockaddrIn6::from(client), MsgFlags::empty())
        }
    };
    // An unreachable client does not stop the others.
    if let Err(error) = sent {
        debug!(%error, client = %nudge.client, "a client cannot be challenged");
    }
}
