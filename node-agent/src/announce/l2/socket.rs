//! Packet socket: filtered frames of one protocol on one interface.
//!
//! One system call has no safe wrapper in the libraries used; it is isolated in a function of this file.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use model::primitives::net::IpFamily;
use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socket, sockopt},
};

use super::{
    filter::{FRAME_BYTES_MAX, Instruction},
    wire::{ETHERTYPE_ARP, ETHERTYPE_IPV6},
};
use crate::socket_option;

/// Socket buffer size in bytes, for some thousand queued requests or announcements.
const BUFFER_BYTES: usize = 2 << 20;
/// `PACKET_IGNORE_OUTGOING` (`linux/if_packet.h`).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const ON: libc::c_int = 1;

/// A socket bound to one interface and one protocol.
#[derive(Debug)]
pub(super) struct PacketSocket {
    descriptor: OwnedFd,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A frame with this number of bytes.
    Frame(usize),
    /// No frame is waiting.
    Nothing,
    /// The socket has failed and must be reopened.
    Broken(Errno),
}

impl PacketSocket {
    /// Opens a socket in the network namespace of the calling thread. The filter is set before the first
    /// frame arrives.
    pub(super) fn open(index: u32, family: IpFamily, program: &[Instruction]) -> io::Result<Self> {
        // With protocol 0 the kernel delivers nothing until the socket is bound.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        // If the kernel refuses the size, the smaller buffer only loses frames earlier in a flood.
        let _ = setsockopt(&descriptor, sockopt::RcvBufForce, &BUFFER_BYTES);
        let _ = setsockopt(&descriptor, sockopt::SndBufForce, &BUFFER_BYTES);
        // Not supported by kernels before 4.20; the filter drops our own frames as well.
        let _ = socket_option::set(descriptor.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &ON);
        let socket = Self { descriptor };
        socket.set_filter(program)?;
        bind(socket.descriptor.as_fd(), index, family)?;
        Ok(socket)
    }

    /// Replaces the filter atomically.
    pub(super) fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        let mut instructions: Vec<libc::sock_filter> = program
            .iter()
            .map(|instruction| {
                let Instruction { code, jump_true, jump_false, operand } = *instruction;
                libc::sock_filter { code, jt: jump_true, jf: jump_false, k: operand }
            })
            .collect();
        let len = u16::try_from(instructions.len()).map_err(|_| io::Error::from(Errno::EINVAL))?;
        let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
        socket_option::set(self.descriptor.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Reads one frame without blocking.
    pub(super) fn read(&self, buffer: &mut [u8; FRAME_BYTES_MAX as usize]) -> Read {
        loop {
            match recv(self.descriptor.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(bytes) => return Read::Frame(bytes),
                Err(Errno::EAGAIN) => return Read::Nothing,
                // Reported once when the interface goes down; the socket works again when it comes up.
                Err(Errno::EINTR | Errno::ENETDOWN | Errno::ENOBUFS) => {}
                Err(error) => return Read::Broken(error),
            }
        }
    }

    /// Sends one frame without blocking; it is dropped if the buffer is full.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        send(self.descriptor.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).map(|_| ())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[allow(unsafe_code, reason = "no library in use creates a sockaddr_ll")]
fn bind(descriptor: BorrowedFd<'_>, index: u32, family: IpFamily) -> io::Result<()> {
    let protocol = match family {
        IpFamily::V4 => ETHERTYPE_ARP,
        IpFamily::V6 => ETHERTYPE_IPV6,
    };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET.unsigned_abs().try_into().map_err(|_| Errno::EINVAL)?,
        sll_protocol: protocol.to_be(),
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
