//! Exchange with upstream servers, over UDP and, if the response is truncated, over TCP, or over TLS.
//!
//! Each question over UDP uses a socket of its own, whose port the kernel chooses at random, and a random id (RFC 5452). A
//! response counts only if it comes from the server, repeats the id and repeats the question. Since responses are kept
//! whole, a record for a name that was not asked is never an answer to another question.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::{Instant, timeout, timeout_at},
};

use hickory_proto::rr::Name;
use model::wire::dns_server::{DnsUpstream, DnsUpstreamState};
use rustls::ClientConfig;

use super::{loops::LoopGuard, tls::TlsServer};
use crate::{
    args::UpstreamServer,
    message::{QuestionKey, Reply, ReplyKind, TtlLimits},
};

/// Maximum time for the response of one server.
pub(super) const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Times after which an unanswered datagram is sent again: it or its response may have been lost.
const REPEATS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(1200)];
/// Time for which a server that did not respond is asked after the others.
const AVOIDANCE: Duration = Duration::from_secs(10);
/// Size of the buffer for a response over UDP in bytes. A longer response is requested again over TCP.
const UDP_BYTES_MAX: usize = 4097;
/// Size of the header of a message in bytes.
const HEADER_BYTES: usize = 12;

/// Upstream servers.
#[derive(Debug)]
pub(super) struct Upstreams {
    servers: Vec<Upstream>,
    loops: LoopGuard,
    ttl_limits: TtlLimits,
    /// Secret from which the ids of questions are derived, so that they cannot be predicted.
    secret: RandomState,
    questions: AtomicU64,
}

#[derive(Debug)]
struct Upstream {
    index: usize,
    /// Setting of the server, for the log.
    setting: String,
    transport: UpstreamTransport,
    avoided_until: Mutex<Option<Instant>>,
}

/// Transport over which a server is asked.
#[derive(Debug)]
enum UpstreamTransport {
    Plain(SocketAddr),
    Tls(Box<TlsServer>),
}

/// Reason why no upstream server answered a question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// Too many questions wait already.
    #[error("too many questions wait for upstream servers")]
    Busy,
    /// The question cannot be encoded.
    #[error("the question cannot be encoded")]
    Malformed,
    /// No server sent a valid response.
    #[error("no upstream server responded")]
    Unanswered(#[source] Option<io::Error>),
}

impl Upstreams {
    /// Creates the state of servers. Those over TLS are verified by `tls`.
    pub(super) fn new(servers: Vec<UpstreamServer>, tls: &Arc<ClientConfig>, ttl_limits: TtlLimits) -> Self {
        let loops = LoopGuard::new(servers.len());
        let server = |(index, server): (usize, UpstreamServer)| {
            let setting = server.to_string();
            let transport = match server {
                UpstreamServer::Plain(address) => UpstreamTransport::Plain(address),
                UpstreamServer::Tls(address, name) => {
                    UpstreamTransport::Tls(Box::new(TlsServer::new(address, name, Arc::clone(tls))))
                }
            };
            Upstream { index, setting, transport, avoided_until: Mutex::new(None) }
        };
        let servers = servers.into_iter().enumerate().map(server).collect();
        Self { servers, loops, ttl_limits, secret: RandomState::new(), questions: AtomicU64::new(0) }
    }

    /// Asks the servers one after another, first those that responded last time, and returns the first response that is
    /// no failure.
    ///
    /// # Errors
    /// Returns an error if no server sent a valid response.
    pub(super) async fn ask(&self, key: &QuestionKey) -> Result<Reply, ForwardError> {
        let servers = self.servers.iter().filter(|server| !self.loops.is_looping(server.index));
        let (avoided, usable): (Vec<_>, Vec<_>) = servers.partition(|server| server.is_avoided());
        let (mut failure, mut last) = (None, None);
        for server in usable.into_iter().chain(avoided) {
            let packet = key.encode(self.next_id()).ok_or(ForwardError::Malformed)?;
            let response = server.exchange(&packet).await;
            server.note_outcome(response.as_ref().err());
            match response.map(|response| Reply::parse(key, &response, self.ttl_limits)) {
                Ok(Some(reply)) if reply.kind == ReplyKind::Failure => failure = failure.or(Some(reply)),
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {
                    tracing::debug!(
                        upstream = server.setting,
                        "the response of an upstream server is malformed"
                    );
                }
                Err(error) => {
                    tracing::debug!(upstream = server.setting, %error, "an upstream server did not answer");
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.loops.suspect(server.index);
                    }
                    last = Some(error);
                }
            }
        }
        failure.ok_or(ForwardError::Unanswered(last))
    }

    /// Returns the servers with their states, in the order in which they are tried.
    pub(super) fn states(&self) -> Vec<DnsUpstream> {
        let state = |server: &Upstream| {
            if self.loops.is_looping(server.index) {
                DnsUpstreamState::Looping
            } else if server.is_avoided() {
                DnsUpstreamState::Failing
            } else {
                DnsUpstreamState::Ok
            }
        };
        let upstream =
            |server: &Upstream| DnsUpstream { server: server.setting.clone(), state: state(server) };
        self.servers.iter().map(upstream).collect()
    }

    /// Returns true if a name is that of a check for loops.
    pub(super) fn is_loop_check(&self, name: &Name) -> bool {
        self.loops.observe(name)
    }

    /// Checks the servers that may have a loop. Returns the number of those that have one.
    pub(super) async fn check_loops(&self) -> usize {
        for server in &self.servers {
            let question = self.loops.start(server.index);
            let Some(packet) = question.and_then(|question| question.encode(self.next_id())) else {
                continue;
            };
            // The response does not matter; there is none if the server does not know the name.
            let _ = server.exchange(&packet).await;
            match self.loops.end(server.index) {
                Some(true) => tracing::error!(
                    upstream = server.setting,
                    "the upstream server forwards questions back to this server, so it is not used: set --upstream to a \
                     server that does not"
                ),
                Some(false) => {
                    tracing::info!(
                        upstream = server.setting,
                        "the loop through the upstream server has ended"
                    )
                }
                None => {}
            }
        }
        self.loops.looping()
    }

    fn next_id(&self) -> u16 {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        // The lowest bits of the hash.
        (self.secret.hash_one(number) & u64::from(u16::MAX)) as u16
    }
}

impl Upstream {
    async fn exchange(&self, packet: &[u8]) -> io::Result<Vec<u8>> {
        match &self.transport {
            UpstreamTransport::Plain(address) => exchange(*address, packet).await,
            UpstreamTransport::Tls(server) => server.ask(packet).await,
        }
    }

    fn is_avoided(&self) -> bool {
        let until = *self.avoided_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Avoids the server for a time after an error. Logs the error of TLS, such as an invalid certificate, if the server
    /// responded before: the server must be corrected, or its setting.
    fn note_outcome(&self, error: Option<&io::Error>) {
        let until = error.map(|_| Instant::now() + AVOIDANCE);
        let before =
            std::mem::replace(&mut *self.avoided_until.lock().unwrap_or_else(PoisonError::into_inner), until);
        let tls = error.and_then(|error| error.get_ref()?.downcast_ref::<rustls::Error>());
        if let (None, Some(error)) = (before, tls) {
            tracing::warn!(upstream = self.setting, %error, "an upstream server cannot be used over TLS");
        }
    }
}

async fn exchange(upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let response = timeout(RESPONSE_TIME_MAX, over_udp(upstream, packet)).await??;
    let is_truncated = response.get(2).is_some_and(|flags| flags & 0x02 != 0);
    if is_truncated { timeout(RESPONSE_TIME_MAX, over_tcp(upstream, packet)).await? } else { Ok(response) }
}

async fn over_udp(upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if upstream.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    // The kernel then drops datagrams from other addresses.
    socket.connect(upstream).await?;
    socket.send(packet).await?;
    let start = Instant::now();
    for repeat in REPEATS {
        match timeout_at(start + repeat, receive(&socket, upstream, packet)).await {
            Ok(outcome) => return outcome,
            Err(_) => drop(socket.send(packet).await?),
        }
    }
    receive(&socket, upstream, packet).await
}

/// Waits for the response to a question.
async fn receive(socket: &UdpSocket, upstream: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
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
pub(super) fn is_response_to(packet: &[u8], response: &[u8]) -> bool {
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
