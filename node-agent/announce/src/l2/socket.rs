//! Packet socket (`packet(7)`) that receives filtered ARP or IPv6 frames on one interface.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use kernel::{
    packet,
    socket_option::{self, sock_filter},
};
use model::primitives::net::IpFamily;
use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socket, sockopt},
};

use super::{
    filter::{FRAME_BYTES_MAX, Instruction},
    wire::{ETHERTYPE_ARP, ETHERTYPE_IPV6},
};

/// Socket buffer size in bytes, enough for some thousand queued requests or announcements.
const BUFFER_BYTES: usize = 2 << 20;
/// Packet socket bound to one interface and one EtherType, with a classic BPF filter.
#[derive(Debug)]
pub(super) struct PacketSocket {
    descriptor: OwnedFd,
}

/// Result of one non-blocking read from a packet socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A frame with this number of bytes.
    Frame(usize),
    /// No frame has been received.
    Nothing,
    /// The socket has failed and must be reopened.
    Broken(Errno),
}

impl PacketSocket {
    /// Opens a socket in the network namespace of the calling thread. The filter is set before the first
    /// frame can arrive.
    pub(super) fn open(index: u32, family: IpFamily, program: &[Instruction]) -> io::Result<Self> {
        // With protocol 0 the kernel delivers nothing until the socket is bound.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let descriptor = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        // If the kernel refuses the size, the smaller buffer only loses frames earlier in a flood.
        let _ = setsockopt(&descriptor, sockopt::RcvBufForce, &BUFFER_BYTES);
        let _ = setsockopt(&descriptor, sockopt::SndBufForce, &BUFFER_BYTES);
        // Not supported by kernels before 4.20; the filter drops our own frames as well.
        let _ = socket_option::ignore_outgoing(descriptor.as_fd());
        let socket = Self { descriptor };
        socket.set_filter(program)?;
        bind(socket.descriptor.as_fd(), index, family)?;
        Ok(socket)
    }

    /// Replaces the socket's filter program atomically.
    pub(super) fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        let instructions: Vec<_> = program
            .iter()
            .map(|instruction| {
                let Instruction { code, jump_true, jump_false, operand } = *instruction;
                sock_filter { code, jt: jump_true, jf: jump_false, k: operand }
            })
            .collect();
        socket_option::attach_filter(self.descriptor.as_fd(), &instructions)
    }

    /// Reads one frame from the socket without blocking.
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

    /// Sends one frame without blocking. The frame is dropped if the socket buffer is full.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        send(self.descriptor.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).map(|_| ())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn bind(descriptor: BorrowedFd<'_>, index: u32, family: IpFamily) -> io::Result<()> {
    packet::bind(
        descriptor,
        index,
        match family {
            IpFamily::V4 => ETHERTYPE_ARP,
            IpFamily::V6 => ETHERTYPE_IPV6,
        },
    )
}
