//! Packet socket (`packet(7)`) that receives filtered ARP or IPv6 frames on one interface.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, SystemTime},
};

use kernel::{
    packet,
    socket_option::{self, sock_filter},
};
use model::primitives::net::IpFamily;
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, send, setsockopt,
            socket, sockopt,
        },
        time::TimeSpec,
    },
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
    /// A frame with this number of bytes, and the time since the kernel received it; zero if unknown.
    Frame(usize, Duration),
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
        // Without timestamps every frame counts as new.
        let _ = setsockopt(&descriptor, sockopt::ReceiveTimestampns, &true);
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
        let mut control = nix::cmsg_space!(TimeSpec);
        loop {
            let (descriptor, flags) = (self.descriptor.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            match recvmsg::<()>(descriptor, &mut [IoSliceMut::new(buffer)], Some(&mut control), flags) {
                Ok(message) => {
                    let received_at = message.cmsgs().ok().and_then(|mut all| all.find_map(timestamp));
                    return Read::Frame(message.bytes, received_at.map(age).unwrap_or_default());
                }
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

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn timestamp(control: ControlMessageOwned) -> Option<Duration> {
    match control {
        ControlMessageOwned::ScmTimestampns(at) => Some(at.into()),
        _ => None,
    }
}

/// Returns the time since `received_at`, given as time since the Unix epoch; zero if this is in the future
/// because the clock was set.
fn age(received_at: Duration) -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + received_at).unwrap_or_default()
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
