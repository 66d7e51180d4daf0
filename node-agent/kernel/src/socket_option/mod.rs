//! Socket options without a safe wrapper in the libraries used. The only module that calls `setsockopt`
//! directly.
//!
//! Each function sets one option, and its parameter has the type that the kernel expects. So no caller can
//! pass a value of another type or a dangling pointer.

mod md5;

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use model::primitives::net::IpFamily;
use nix::{errno::Errno, libc};

pub use self::md5::{MD5_KEY_BYTES_MAX, TcpMd5};
pub use nix::libc::sock_filter;

/// Option that excludes a machine's own frames from a packet socket (`PACKET_IGNORE_OUTGOING`,
/// `linux/if_packet.h`).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Option that filters ICMPv6 messages by type (`ICMP6_FILTER`, `linux/icmpv6.h`).
const ICMP6_FILTER: libc::c_int = 1;

/// Excludes the frames that this machine sends from a packet socket.
///
/// # Errors
/// Returns an I/O error if the kernel is older than 4.20, which introduced the option.
pub fn ignore_outgoing(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
}

/// Attaches a classic BPF program to a socket, replacing a previous one atomically.
///
/// # Errors
/// Returns an I/O error if the kernel rejects the program.
#[allow(unsafe_code, reason = "no library in use has this option")]
pub fn attach_filter(socket: BorrowedFd<'_>, program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: pointer and length in `program` describe the borrowed slice. The kernel copies the instructions
    // during the call and does not write to them.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Sets the minimum hop limit of received packets (`IP_MINTTL`, `IPV6_MINHOPCOUNT`); 0 allows any.
///
/// # Errors
/// Returns an I/O error if the socket is not of this family.
pub fn set_hop_limit_min(socket: BorrowedFd<'_>, family: IpFamily, hop_limit: u8) -> io::Result<()> {
    let (level, option) = match family {
        IpFamily::V4 => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpFamily::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    };
    set_int(socket, level, option, hop_limit.into())
}

/// Sets the maximum number of unsent bytes in the send buffer of a TCP connection (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// Returns an I/O error if the socket is not a TCP socket.
pub fn set_not_sent_max(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Sets the hop limit of multicast packets that an IPv6 socket sends (`IPV6_MULTICAST_HOPS`).
///
/// # Errors
/// Returns an I/O error if the socket is not an IPv6 socket.
pub fn set_multicast_hop_limit(socket: BorrowedFd<'_>, hop_limit: u8) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hop_limit.into())
}

/// Disables the delivery of an IPv6 socket's multicast packets to the sending machine
/// (`IPV6_MULTICAST_LOOP`).
///
/// # Errors
/// Returns an I/O error if the socket is not an IPv6 socket.
pub fn disable_multicast_loop(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 0)
}

/// Makes a raw ICMPv6 socket receive only messages of these types.
///
/// # Errors
/// Returns an I/O error if the socket is not a raw ICMPv6 socket.
#[allow(unsafe_code, reason = "no library in use has this option")]
pub fn receive_icmpv6_types(socket: BorrowedFd<'_>, types: &[u8]) -> io::Result<()> {
    // A set bit blocks a type.
    let mut filter = [u32::MAX; 8];
    for kind in types {
        filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    }
    // SAFETY: the value is a plain `struct icmp6_filter`.
    unsafe { set(socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter) }
}

#[allow(unsafe_code, reason = "no library in use has these options")]
fn set_int(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is a plain integer.
    unsafe { set(socket, level, name, &value) }
}

/// Sets a socket option to the bytes of a value (`setsockopt(2)`).
///
/// # Safety
/// `T` must have no padding, and every pointer in `value` must be valid for reads during the call.
#[allow(unsafe_code, reason = "no library in use has these options")]
unsafe fn set<T>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: pointer and length describe a whole `T` that outlives the call, as does the borrowed
    // descriptor. The caller guarantees the validity of pointers in it.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    Ok(Errno::result(answer).map(|_| ())?)
}
