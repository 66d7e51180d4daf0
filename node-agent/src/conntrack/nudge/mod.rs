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
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto, socket,
};
use tracing::debug;

use self::wire::Nudge;

/// Clients that are asked at a time. Each answers with a packet of its own, and these come back to this node; more of them
/// would be a storm.
const NUDGES_MAX: usize = 50_000;

/// Asks clients to speak; those beyond [`NUDGES_MAX`] are left to themselves.
pub(super) fn send(nudges: &[Nudge]) {
    let families = [(AddressFamily::Inet, true), (AddressFamily::Inet6, false)];
    for (family, is_v4) in families {
        let mut of_family = nudges.iter().take(NUDGES_MAX).filter(|nudge| nudge.client.is_ipv4() == is_v4);
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
