//! TCP MD5 signature keys (RFC 2385) in the kernel, for an address or a network.
//!
//! A listening socket has the keys of all peers that may connect; a connection has the key of its peer. The
//! kernel silently drops segments with a wrong, missing or unexpected signature and only counts them.

use std::{io, os::fd::BorrowedFd};

use ipnet::IpNet;
use kernel::socket_option::{MD5_KEY_BYTES_MAX, TcpMd5};
use model::{kinds::bgp_peer::PASSWORD_BYTES_MAX, primitives::secret::Secret};
use nix::errno::Errno;

/// Sets the key that a socket uses for the addresses of a network, or removes the key if `password` is
/// `None`. Removing a missing key is not an error.
///
/// # Errors
///
/// Returns an I/O error if the kernel rejects the key, for example because it does not support MD5
/// signatures.
pub(super) fn set(socket: BorrowedFd<'_>, network: &IpNet, password: Option<&Secret>) -> io::Result<()> {
    let key = password.map_or(&[][..], |password| password.reveal().as_bytes());
    match (TcpMd5 { network, key }).set(socket) {
        Err(error) if key.is_empty() && error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
        outcome => outcome,
    }
}

/// Compile-time check that every valid password fits into the kernel's key structure.
const _: () = assert!(PASSWORD_BYTES_MAX <= MD5_KEY_BYTES_MAX);
