//! Messages between the two processes: a byte each, with a socket or a revision.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::TcpListener,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use model::primitives::quantity::Revision;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::InheritedSockets;

/// Version of the protocol, which a new process sends first.
const VERSION: u8 = 1;
/// Byte that a listening socket accompanies.
const SOCKET: u8 = b'S';
/// Byte after the last socket, which the revision follows.
const END: u8 = b'E';
/// Byte of a new process that accepts connections.
pub(super) const READY: u8 = b'R';
/// Maximum number of sockets.
const SOCKETS_MAX: usize = 4096;

pub(super) fn send_version(mut connection: &UnixStream) -> io::Result<()> {
    connection.write_all(&[VERSION])
}

pub(super) fn receive_version(mut connection: &UnixStream) -> io::Result<()> {
    let mut byte = [0];
    connection.read_exact(&mut byte)?;
    if byte == [VERSION] { Ok(()) } else { Err(invalid("it uses another version of the handover")) }
}

pub(super) fn send_sockets(
    mut connection: &UnixStream,
    sockets: &[Arc<OwnedFd>],
    revision: Revision,
) -> io::Result<()> {
    for socket in sockets {
        let descriptors = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // The space is that of one descriptor.
        let _ = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(connection, &[IoSlice::new(&[SOCKET])], &mut control, SendFlags::NOSIGNAL)?;
    }
    connection.write_all(&[END])?;
    connection.write_all(&revision.0.to_be_bytes())
}

/// Receives the sockets by their addresses, and the revision of the state of the sender.
///
/// # Errors
/// Returns an error if the connection ends, or if something else is received.
pub(super) fn receive_sockets(mut connection: &UnixStream) -> io::Result<(InheritedSockets, Revision)> {
    let mut sockets = InheritedSockets::new();
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            RecvAncillaryMessage::ScmCredentials(_) | _ => None,
        });
        match (received.bytes, byte, descriptor) {
            (1, [SOCKET], Some(descriptor)) if sockets.len() < SOCKETS_MAX => {
                let socket = listener(descriptor)?;
                sockets.insert(socket.local_addr()?, socket);
            }
            (1, [END], None) => {
                let mut revision = [0; 8];
                connection.read_exact(&mut revision)?;
                return Ok((sockets, Revision(u64::from_be_bytes(revision))));
            }
            (0, _, None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => return Err(invalid("a message is malformed")),
        }
    }
}

/// Returns a descriptor as a listening TCP socket.
fn listener(descriptor: OwnedFd) -> io::Result<TcpListener> {
    let socket = socket2::Socket::from(descriptor);
    if !socket.is_listener()? || socket.local_addr()?.as_socket().is_none() {
        return Err(invalid("a descriptor is no listening socket"));
    }
    Ok(socket.into())
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
