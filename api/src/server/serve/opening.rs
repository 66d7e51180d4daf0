//! Timeout for the first bytes of a connection, which determine if it uses HTTP/1 or HTTP/2.
//!
//! The HTTP library reads the HTTP/2 preface (RFC 9113, 3.4) without a timeout, so a client that sends no
//! bytes, or half of the preface, would keep its connection forever.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Connection preface of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Connection whose first bytes, which determine the HTTP version, must arrive in time.
pub(super) struct Opening<S> {
    stream: S,
    /// State of the detection of the HTTP version; `None` once the version is known.
    undecided: Option<UndecidedConnection>,
}

struct UndecidedConnection {
    /// Number of bytes of the HTTP/2 preface received so far.
    matched: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Opening<S> {
    /// Wraps a connection whose first bytes must arrive within the time `patience`.
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            undecided: Some(UndecidedConnection { matched: 0, deadline: Box::pin(sleep(patience)) }),
        }
    }
}

impl UndecidedConnection {
    /// Processes further bytes. Returns true if the HTTP version is still unknown.
    fn is_still(&mut self, bytes: &[u8]) -> bool {
        let rest = &PREFACE[self.matched..];
        self.matched += bytes.len();
        // At the end of the stream there is no need to wait.
        !bytes.is_empty() && bytes.len() < rest.len() && rest.starts_with(bytes)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, undecided } = &mut *self;
        let begin = buffer.filled().len();
        let read = Pin::new(stream).poll_read(context, buffer);
        let Some(open) = undecided else { return read };
        match read {
            Poll::Ready(Ok(())) => {
                if !open.is_still(&buffer.filled()[begin..]) {
                    *undecided = None;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(open.deadline.as_mut().poll(context));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sent no request")))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn silence_and_half_a_preface_end_and_whatever_else_stays() {
        const PATIENCE: Duration = Duration::from_millis(50);
        for (said, is_cut) in [
            (&b""[..], true),
            (b"P", true),
            (&PREFACE[..PREFACE.len() - 1], true),
            (PREFACE, false),
            (b"PUT", false),
            (b"G", false),
        ] {
            let (mut client, server) = duplex(64);
            client.write_all(said).await.unwrap();
            let mut server = Opening::new(server, PATIENCE);
            let mut bytes = [0; 64];
            let reading = async { while server.read(&mut bytes).await.is_ok() {} };
            // Connections that are not closed by then stay open; a closing one may take as long as a slow
            // machine needs.
            let wait = if is_cut { Duration::from_secs(60) } else { 4 * PATIENCE };
            assert_eq!(tokio::time::timeout(wait, reading).await.is_ok(), is_cut, "{said:?}");
            drop(client);
        }
    }
}
