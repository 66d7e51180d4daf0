//! Netlink socket: sends requests and receives responses. Callers interpret the messages.

use std::{
    io::{self, ErrorKind},
    os::fd::AsFd,
    time::Duration,
};

use netlink_sys::{
    Socket, SocketAddr,
    protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE},
};
use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};

use super::{
    uapi,
    wire::{MalformedMessage, Message, Messages, ReceivedMessage},
};

/// Size of the send and receive buffers in bytes. A new table is sent as one batch of up to 300,000
/// elements. Responses must fit into the buffer as well, because they would be lost while this process is
/// not scheduled.
const SOCKET_BUFFER_BYTES: usize = 64 << 20;
/// Maximum size of a datagram from the kernel; a dump consists of datagrams of at most 32 KiB.
const DATAGRAM_BYTES: usize = 128 << 10;
/// Timeout for a response. The kernel responds at once, but a transaction may wait for other writers.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum number of attempts at an operation that another writer or a full buffer can interrupt.
const ATTEMPTS_MAX: u32 = 8;

/// Kernel subsystem to which a netlink socket is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Subsystem of links, addresses and routes (`NETLINK_ROUTE`).
    Route,
    /// Subsystem of nf_tables, conntrack and ipset (`NETLINK_NETFILTER`).
    Netfilter,
    /// Generic netlink (`NETLINK_GENERIC`), whose families, such as IPVS, are found by name.
    Generic,
}

/// Socket of one netlink protocol, in one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel denies it; `CAP_NET_ADMIN` is required.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let mut socket = Socket::new(match protocol {
            Protocol::Route => NETLINK_ROUTE,
            Protocol::Netfilter => NETLINK_NETFILTER,
            Protocol::Generic => NETLINK_GENERIC,
        })?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        setsockopt(&socket.as_fd(), sockopt::SndBufForce, &SOCKET_BUFFER_BYTES)?;
        setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES)?;
        let seconds = i64::try_from(ANSWER_TIME_MAX.as_secs()).unwrap_or(i64::MAX);
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &TimeVal::new(seconds, 0))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(DATAGRAM_BYTES) })
    }

    /// Reads a dump message by message. If another process changes the dumped objects meanwhile, the dump is
    /// repeated. `begin` creates the value that collects the messages of one attempt.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects the request, or every attempt was interrupted.
    pub fn dump<T>(
        &mut self,
        request: &Message,
        begin: impl Fn() -> T,
        mut each: impl FnMut(&mut T, &ReceivedMessage<'_>) -> Result<(), MalformedMessage>,
    ) -> io::Result<T> {
        for _ in 0..ATTEMPTS_MAX {
            let mut collected = begin();
            match self.dump_once(request, |answer| each(&mut collected, answer)) {
                Ok(true) => return Ok(collected),
                Ok(false) => {}
                Err(error) if error.raw_os_error() == Some(errno_enobufs()) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            ErrorKind::Interrupted,
            "every attempt at the dump was interrupted by another writer",
        ))
    }

    /// Reads a dump once. Returns false if another writer changed the dumped objects meanwhile, so that the
    /// dump must be repeated.
    fn dump_once(
        &mut self,
        request: &Message,
        mut each: impl FnMut(&ReceivedMessage<'_>) -> Result<(), MalformedMessage>,
    ) -> io::Result<bool> {
        let sequence = self.next_sequence();
        let mut datagram = Vec::new();
        request.encode_into(sequence, &mut datagram);
        self.send(&datagram)?;
        let (mut is_whole, mut errno) = (true, 0);
        self.receive(|answer| {
            if answer.sequence != sequence {
                return Ok(false);
            }
            is_whole &= answer.flags & uapi::NLM_F_DUMP_INTR == 0;
            if answer.kind == uapi::NLMSG_DONE || answer.kind == uapi::NLMSG_ERROR {
                errno = answer.errno();
                return Ok(true);
            }
            each(answer)?;
            Ok(false)
        })?;
        match errno {
            0 => Ok(is_whole),
            errno if errno == errno_eintr() => Ok(false),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Sends single requests, each with `NLM_F_ACK`, and passes each response to `each` with the index of its
    /// request. Returns the `errno` of each request in order, 0 for success.
    ///
    /// # Errors
    /// Returns an error if the socket fails. Rejections by the kernel are in the returned list.
    pub fn ask(
        &mut self,
        requests: &[Message],
        mut each: impl FnMut(usize, &ReceivedMessage<'_>) -> Result<(), MalformedMessage>,
    ) -> io::Result<Vec<i32>> {
        let mut errnos = Vec::with_capacity(requests.len());
        for (start, window) in
            (0..).step_by(REQUESTS_IN_FLIGHT_MAX).zip(requests.chunks(REQUESTS_IN_FLIGHT_MAX))
        {
            let first = self.sequence.wrapping_add(1);
            let mut datagram = Vec::new();
            for request in window {
                request.encode_into(self.next_sequence(), &mut datagram);
            }
            self.send(&datagram)?;
            let mut acknowledged = 0;
            self.receive(|answer| {
                let index = answer.sequence.wrapping_sub(first);
                let Some(index) = usize::try_from(index).ok().filter(|index| *index < window.len()) else {
                    return Ok(false);
                };
                if answer.kind == uapi::NLMSG_ERROR {
                    errnos.push(answer.errno());
                    acknowledged += 1;
                } else {
                    each(start + index, answer)?;
                }
                Ok(acknowledged == window.len())
            })?;
        }
        Ok(errnos)
    }

    /// Returns a new sequence number. The kernel repeats it in its responses to the message.
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends one datagram, which contains one or more encoded messages.
    ///
    /// # Errors
    /// Returns an error if the kernel does not accept the datagram.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.socket.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(errno_enobufs()) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(errno_enobufs()))
    }

    /// Receives messages and passes each to `is_last`, until that returns true.
    ///
    /// # Errors
    /// Returns an error after the timeout, or if a message is malformed.
    pub fn receive(
        &mut self,
        mut is_last: impl FnMut(&ReceivedMessage<'_>) -> Result<bool, MalformedMessage>,
    ) -> io::Result<()> {
        let invalid = |malformed: MalformedMessage| io::Error::new(ErrorKind::InvalidData, malformed);
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            for message in Messages::new(&self.buffer) {
                if is_last(&message.map_err(invalid)?).map_err(invalid)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Maximum number of requests sent before their responses are read, so that the responses fit into the
/// receive buffer.
const REQUESTS_IN_FLIGHT_MAX: usize = 64;

const fn errno_eintr() -> i32 {
    nix::errno::Errno::EINTR as i32
}
const fn errno_enobufs() -> i32 {
    nix::errno::Errno::ENOBUFS as i32
}
