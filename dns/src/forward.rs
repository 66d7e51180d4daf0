//! Forwarding of questions to upstream servers, over UDP and, if the response is truncated, over TCP.
//!
//! Each question uses a socket of its own, whose port the kernel chooses at random, and a random id (RFC 5452). A
//! response counts only if it comes from the server, repeats the id and repeats the question.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

/// Maximum number of questions that wait for upstream servers at once.
const WAITING_MAX: usize = 1000;
/// Maximum time for the response of one server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Size of the buffer for a response over UDP in bytes. A longer response is requested again over TCP.
const UDP_BYTES_MAX: usize = 4097;
/// Size of the header of a message in bytes.
const HEADER_BYTES: usize = 12;

/// Client of the upstream servers.
#[derive(Debug)]
pub(crate) struct Forwarder {
    upstreams: Vec<SocketAddr>,
    permits: Semaphore,
}

/// Reason why no upstream server answered a question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// Too many questions wait already.
    #[error("more than {WAITING_MAX} questions wait for upstream servers")]
    Busy,
    /// The packet is no question.
    #[error("the question is too short")]
    Malformed,
    /// No server sent a valid response.
    #[error("no upstream server responded")]
    Unanswered(#[source] Option<io::Error>),
}

impl Forwarder {
    /// Creates a client of upstream servers, which are tried in this order. Returns `None` without servers.
    pub(crate) fn new(upstreams: Vec<SocketAddr>) -> Option<Self> {
        (!upstreams.is_empty()).then(|| Self { upstreams, permits: Semaphore::new(WAITING_MAX) })
    }

    /// Sends a question to the upstream servers, one after another, and returns the first response, with an id of
    /// its own.
    pub(crate) async fn ask(&self, mut packet: Vec<u8>) -> Result<Vec<u8>, ForwardError> {
        let _permit = self.permits.try_acquire().map_err(|_| ForwardError::Busy)?;
        let id = packet.first_chunk_mut::<2>().ok_or(ForwardError::Malformed)?;
        *id = fastrand::u16(..).to_be_bytes();
        let mut last = None;
        for upstream in &self.upstreams {
            match exchange(*upstream, &packet).await {
                Ok(response) => return Ok(response),
                Err(error) => {
                    tracing::debug!(%upstream, %error, "an upstream server did not answer");
                    last = Some(error);
                }
            }
        }
        Err(ForwardError::Unanswered(last))
    }
}

async fn exchange(upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let response = timeout(PATIENCE, over_udp(upstream, packet)).await??;
    let is_truncated = response.get(2).is_some_and(|flags| flags & 0x02 != 0);
    if is_truncated { timeout(PATIENCE, over_tcp(upstream, packet)).await? } else { Ok(response) }
}

async fn over_udp(upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if upstream.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    // The kernel then drops datagrams from other addresses.
    socket.connect(upstream).await?;
    socket.send(packet).await?;
    let mut buffer = vec![0; UDP_BYTES_MAX];
    loop {
        let size = socket.recv(&mut buffer).await?;
        let response = buffer.get(..size).unwrap_or_default();
        if is_response_to(packet, response) {
            // A datagram that fills the buffer was cut.
            let is_cut = size == buffer.len();
            return if is_cut { over_tcp(upstream, packet).await } else { Ok(response.to_vec()) };
        }
    }
}

async fn over_tcp(upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(upstream).await?;
    let size = u16::try_from(packet.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.write_all(&[&size.to_be_bytes(), packet].concat()).await?;
    let mut response = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut response).await?;
    let error = || io::Error::new(io::ErrorKind::InvalidData, "the response does not belong to the question");
    if is_response_to(packet, &response) { Ok(response) } else { Err(error()) }
}

/// Returns true if `response` is a response, has the id of the question `packet`, and repeats its question.
fn is_response_to(packet: &[u8], response: &[u8]) -> bool {
    let Some((header, rest)) = response.split_at_checked(HEADER_BYTES) else { return false };
    let Some(question) = question(packet) else { return false };
    let is_response = header[2] & 0x80 != 0;
    is_response
        && header.first_chunk::<2>() == packet.first_chunk::<2>()
        && rest.get(..question.len()).is_some_and(|echoed| echoed.eq_ignore_ascii_case(question))
}

/// Returns the bytes of the only question of a packet: name, type and class. `None` if the name is malformed.
fn question(packet: &[u8]) -> Option<&[u8]> {
    let rest = packet.get(HEADER_BYTES..)?;
    let mut at = 0;
    loop {
        let length = usize::from(*rest.get(at)?);
        // A question is the first name of a message, so it cannot contain a pointer to another one.
        match length {
            0 => return rest.get(..at + 5),
            1..=63 => at += 1 + length,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x03org\x00\x00\x01\x00\x01";

    #[test]
    fn a_response_must_repeat_id_and_question() {
        let response = |edit: fn(&mut Vec<u8>)| {
            let mut response = QUESTION.to_vec();
            response[2] |= 0x80;
            edit(&mut response);
            is_response_to(QUESTION, &response)
        };
        assert!(response(|_| {}));
        assert!(response(|bytes| bytes[13] = b'W'));
        assert!(response(|bytes| bytes.extend([0xc0, 0x0c])));
        assert!(!response(|bytes| bytes[0] = 0));
        assert!(!response(|bytes| bytes[2] = 0x01));
        assert!(!response(|bytes| bytes[13] = b'x'));
        assert!(!response(|bytes| bytes.truncate(HEADER_BYTES + 3)));
        assert!(!response(|bytes| bytes.truncate(5)));
    }

    /// A question without end, with a pointer or with a label that is too long is no question.
    #[test]
    fn malformed_questions_are_recognized() {
        assert_eq!(question(QUESTION), QUESTION.get(HEADER_BYTES..));
        for end in 0..QUESTION.len() {
            assert_eq!(question(&QUESTION[..end]), None, "{end}");
        }
        let mut pointer = QUESTION.to_vec();
        pointer[12] = 0xc0;
        assert_eq!(question(&pointer), None);
    }
}
