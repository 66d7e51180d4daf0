//! One TCP connection with a BGP neighbor: a receive buffer for bytes not parsed yet, and a send buffer for
//! bytes that the kernel has not accepted yet.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    task::{Context as TaskContext, Poll, ready},
};

use ::bgp::{Notification, session::ConnectionId, wire::Context};
use tokio::net::TcpStream;

use super::frames::Frames;

/// TCP connection with a BGP neighbor, with its receive and send buffers.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    stream: TcpStream,
    frames: Frames,
    unsent: Vec<u8>,
    /// Number of bytes at the start of `unsent` that the kernel has already accepted.
    taken: usize,
    /// True if the kernel's send buffer was full at the last write.
    pub(super) is_stalled: bool,
}

/// Direction in which a connection can make progress: reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Read,
    Write,
}

/// Result of one non-blocking read.
#[derive(Debug)]
pub(super) enum Read {
    /// The read returned zero or more bytes, and the connection is still open.
    Bytes,
    /// The connection was closed or lost, for this reason.
    End(String),
}

impl Connection {
    pub(super) fn new(id: ConnectionId, stream: TcpStream) -> io::Result<Self> {
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        let (frames, unsent) = (Frames::default(), Vec::new());
        Ok(Self { id, local, remote, stream, frames, unsent, taken: 0, is_stalled: false })
    }

    /// Waits until the connection can be read or, if there are unsent bytes, written.
    pub(super) fn poll_ready(&self, context: &mut TaskContext<'_>) -> Poll<Ready> {
        if self.stream.poll_read_ready(context).is_ready() {
            return Poll::Ready(Ready::Read);
        }
        if self.unsent_bytes() == 0 {
            return Poll::Pending;
        }
        // An error is reported by the write attempt.
        let _tried = ready!(self.stream.poll_write_ready(context));
        Poll::Ready(Ready::Write)
    }

    /// Reads waiting bytes, at most as many as the buffer holds, so that other neighbors are served as well.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Read {
        match self.stream.try_read(buffer) {
            Ok(0) => Read::End("the neighbour closed the connection".to_owned()),
            Ok(bytes) => {
                self.frames.push(&buffer[..bytes]);
                Read::Bytes
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Read::Bytes
            }
            Err(error) => Read::End(super::words::lost(&error)),
        }
    }

    /// Returns the next complete message in the receive buffer, or the NOTIFICATION that rejects an invalid
    /// header; `None` if the message is incomplete.
    pub(super) fn frame(&mut self, context: &Context) -> Option<Result<&[u8], Notification>> {
        self.frames.next(context)
    }

    /// Appends an encoded message to the send buffer.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.unsent.len() {
            self.unsent.clear();
            self.taken = 0;
        }
        self.unsent.extend_from_slice(bytes);
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.taken
    }

    /// Writes as much of the send buffer as the kernel accepts, and returns the number of bytes written.
    pub(super) fn write(&mut self) -> io::Result<usize> {
        let before = self.taken;
        while self.taken < self.unsent.len() {
            match self.stream.try_write(&self.unsent[self.taken..]) {
                Ok(written) => self.taken += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.taken - before)
    }

    /// Returns the TCP stream and the unsent bytes.
    pub(super) fn into_parts(mut self) -> (TcpStream, Vec<u8>) {
        self.unsent.drain(..self.taken);
        (self.stream, self.unsent)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
