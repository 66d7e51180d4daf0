//! The first bytes of a connection: what decides between HTTP/1 and HTTP/2 must come within a time, too.
//!
//! The library reads the preface of HTTP/2 (RFC 9113, 3.4) without a clock, so a client that says nothing, or half of the
//! preface, would keep its connection for ever.

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

/// What every connection of HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose first bytes have to come in time.
pub(super) struct Opening<S> {
    stream: S,
    /// Nothing once it is known what the client speaks.
    undecided: Option<Undecided>,
}

struct Undecided {
    /// How many bytes of the preface have come.
    matched: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Opening<S> {
    /// Gives the client of a stream this long to say what it speaks.
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, undecided: Some(Undecided { matched: 0, deadline: Box::pin(sleep(patience)) }) }
    }
}

impl Undecided {
    /// Whether it is still open what the client speaks after more bytes.
    fn is_still(&mut self, bytes: &[u8]) -> bool {
        let rest = &PREFACE[self.matched..];
        self.matched += bytes.len();
        // At the end of the stream there is nothing to wait for.
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
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")))
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
            // Who is not cut would be by now; who is may take as long as this machine needs.
            let wait = if is_cut { Duration::from_secs(60) } else { 4 * PATIENCE };
            assert_eq!(tokio::time::timeout(wait, reading).await.is_ok(), is_cut, "{said:?}");
            drop(client);
        }
    }
}
