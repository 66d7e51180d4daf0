//! Clients whose connections were cut are made to speak, so that they are told.
//!
//! ```text
//!  node ── SYN+ACK, out of place, as the virtual address ──▶ client
//!  node ◀──────────── ACK: "this is what I expect" ───────── client
//!   │ belongs to no known connection: placed anew
//!  target or rule ── RST with exactly that number ─────────▶ client
//! ```
//! Without its entry a connection ends at the client's next packet. One that only receives sends none any more: it acknowledges
//! what comes, and nothing comes. It would wait until a timeout of its own, which few have.
//!
//! Nobody rests on it. What is lost, or filtered by somebody, is as before: the client is told when it says something.

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

/// Clients that are asked at a time. Each answers with a packet of its own, and these come back to this node; more of them
/// would be a storm.
pub(crate) const NUDGES_MAX: usize = 50_000;
/// Time until a client is asked once more: longer than that for which one keeps quiet after it has answered something that
/// was out of place (half a second in Linux, `tcp_invalid_ratelimit`), and short enough for the next turn a second later.
const AGAIN_AFTER: Duration = Duration::from_millis(750);
/// How often a client is asked again. What it says first may be lost: IPVS ends the connection of a target that is gone with
/// the next packet, and drops that.
const AGAIN: u8 = 2;

/// Clients that are asked, and asked again. One that has been told by then answers with a reset, which ends nowhere.
#[derive(Debug, Default)]
pub(super) struct Nudger {
    waiting: Vec<Asked>,
}

/// Clients that have been asked at one time.
#[derive(Debug)]
struct Asked {
    clients: Vec<Nudge>,
    next: Instant,
    left: u8,
}

impl Nudger {
    /// Asks clients to speak; those beyond [`NUDGES_MAX`] are left to themselves, and only so many are asked again.
    pub(super) fn ask(&mut self, mut clients: Vec<Nudge>, now: Instant) {
        if clients.is_empty() {
            return;
        }
        clients.truncate(NUDGES_MAX);
        send(&clients);
        let waiting: usize = self.waiting.iter().map(|asked| asked.clients.len()).sum();
        clients.truncate(NUDGES_MAX.saturating_sub(waiting));
        if !clients.is_empty() {
            self.waiting.push(Asked { clients, next: now + AGAIN_AFTER, left: AGAIN });
        }
    }

    /// Asks those again whose time has come.
    pub(super) fn ask_again(&mut self, now: Instant) {
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
            Err(error) => debug!(%error, "clients of cut connections are told when they say something"),
        }
    }
}

/// A socket for whole packets.
fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Raw, flags, SockProtocol::Raw)?)
}

fn send_one(socket: &OwnedFd, nudge: &Nudge) {
    let Some(packet) = nudge.packet() else { return };
    // The port is none of TCP's here: it has to be 0.
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
    // A client that cannot be reached keeps no other from being told.
    if let Err(error) = sent {
        debug!(%error, client = %nudge.client, "a client cannot be told");
    }
}
