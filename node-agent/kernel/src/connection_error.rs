//! Causes of failed connections, by the error number of the kernel.

use std::io;

use nix::errno::Errno;

/// Cause of a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionError {
    /// This machine is out of file descriptors, memory or ports. No evidence about the peer.
    OwnFault,
    /// A router, a firewall or the routing table rejects the packets.
    Unreachable,
    /// The peer refused the connection.
    Refused,
    /// The peer did not respond.
    TimedOut,
    /// The peer reset the connection.
    Reset,
    /// The peer closed the connection without a response.
    Closed,
    /// Any other error.
    Other,
}

impl ConnectionError {
    /// Returns the cause of an I/O error.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        let is_any =
            |all: &[Errno]| error.raw_os_error().is_some_and(|raw| all.contains(&Errno::from_raw(raw)));
        if is_any(&OWN_FAULTS) {
            return Self::OwnFault;
        }
        if is_any(&NO_WAY) {
            return Self::Unreachable;
        }
        if is_any(&[Errno::ECONNREFUSED]) {
            return Self::Refused;
        }
        if is_any(&[Errno::ETIMEDOUT]) {
            return Self::TimedOut;
        }
        if is_any(&[Errno::ECONNRESET, Errno::EPIPE, Errno::ECONNABORTED]) {
            return Self::Reset;
        }
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Closed } else { Self::Other }
    }
}

/// Errors caused by this machine: out of file descriptors, memory or ports.
const OWN_FAULTS: [Errno; 6] =
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL, Errno::EAGAIN];
/// Errors from routers and firewalls on the path. EPERM and EACCES come from this machine, which is also on
/// the path of clients.
const NO_WAY: [Errno; 6] =
    [Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EHOSTDOWN, Errno::ENETDOWN, Errno::EPERM, Errno::EACCES];
