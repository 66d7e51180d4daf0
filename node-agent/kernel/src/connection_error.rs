//! Classification of connection failures by the error number of the kernel.

use std::io;

use nix::errno::Errno;

/// Cause of a failed connection, derived from the error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionError {
    /// Lack of file descriptors, memory or ports on this machine. No evidence about the peer.
    OwnFault,
    /// Rejection of the packets by a router, a firewall or the routing table.
    Unreachable,
    /// Refusal by the peer (TCP reset or ICMP port unreachable).
    Refused,
    /// Timeout without a response of the peer.
    TimedOut,
    /// Reset of an established connection by the peer.
    Reset,
    /// End of the connection by the peer before a response.
    Closed,
    /// Any other error number.
    Other,
}

impl ConnectionError {
    /// Returns the cause that an I/O error indicates.
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

/// Error numbers caused by this machine: out of file descriptors, memory or ports.
const OWN_FAULTS: [Errno; 6] =
    [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL, Errno::EAGAIN];
/// Error numbers caused by routers and firewalls on the path. EPERM and EACCES come from the firewall of this
/// machine, which is also on the path of clients.
const NO_WAY: [Errno; 6] =
    [Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EHOSTDOWN, Errno::ENETDOWN, Errno::EPERM, Errno::EACCES];
