//! Packet sockets (`packet(7)`): binding to one protocol on one interface.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use nix::{errno::Errno, libc};

/// Binds a packet socket to an interface, by index, and an EtherType (`linux/if_ether.h`).
///
/// # Errors
/// Returns an I/O error if the kernel rejects the address, for example because the interface no longer
/// exists.
#[allow(unsafe_code, reason = "no library in use creates a sockaddr_ll")]
pub fn bind(descriptor: BorrowedFd<'_>, index: u32, ethertype: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET.unsigned_abs().try_into().map_err(|_| Errno::EINVAL)?,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index.try_into().map_err(|_| Errno::ENODEV)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the pointer and the length describe a complete `sockaddr_ll` that outlives the call, as does
    // the borrowed descriptor.
    let answer = unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
    Ok(Errno::result(answer).map(|_| ())?)
}
