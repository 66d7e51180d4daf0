//! Questions over UDP, in batches: one system call receives the questions that wait, and one sends their responses.
//!
//! Each socket has a thread of its own, which sleeps in the receiving call: a question then costs neither a readiness
//! notification of the runtime nor a change of threads. Work that must wait runs in the runtime.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr, UdpSocket},
    ops::Range,
    os::fd::AsRawFd as _,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use rustix::{
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg},
};
use socket2::SockRef;
use tokio::runtime::Handle;

use super::{
    error_limit::{ErrorDecision, ErrorLimit},
    peer::{UdpPeer, control_buffer, request_local_addresses},
};
use crate::{
    message::{Transport, is_error, truncate_error},
    responder::{Responder, Step},
};

/// Maximum size of a question in bytes. Longer datagrams are cut and then malformed.
const QUESTION_BYTES_MAX: usize = 4096;
/// Maximum number of questions that are received at once. More save little, and delay the first response of a batch.
const BATCH_MAX: usize = 32;
/// Expected size of a response in bytes, to reserve memory. Larger ones are possible.
const RESPONSE_BYTES: usize = 512;
/// Delay after an error of the socket, such as a lack of memory.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Limit on error responses of all sockets.
#[derive(Debug)]
pub(super) struct ErrorGate {
    limit: Mutex<ErrorLimit>,
    start: Instant,
}

impl Default for ErrorGate {
    fn default() -> Self {
        Self { limit: Mutex::default(), start: Instant::now() }
    }
}

impl ErrorGate {
    /// Returns the response that may be sent to a client instead of this one; `None` if none may be sent.
    fn pass(&self, mut response: Vec<u8>, client: SocketAddr, responder: &Responder) -> Option<Vec<u8>> {
        if !is_error(&response) {
            return Some(response);
        }
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let decision = limit.decide(client.ip(), self.start.elapsed());
        drop(limit);
        if decision != ErrorDecision::Send {
            responder.metrics().limited_errors.inc();
        }
        match decision {
            ErrorDecision::Send => Some(response),
            ErrorDecision::Truncate => {
                truncate_error(&mut response);
                Some(response)
            }
            ErrorDecision::Drop => None,
        }
    }
}

/// Socket with the parts that answer its questions.
#[derive(Debug)]
struct UdpEndpoint {
    socket: UdpSocket,
    /// True if the socket has all addresses, so that each response needs the address that was asked.
    is_everywhere: bool,
    responder: Arc<Responder>,
    errors: Arc<ErrorGate>,
    stopped: AtomicBool,
}

/// Threads that answer the questions of sockets until dropped.
#[derive(Debug)]
pub(super) struct UdpThreads(Vec<(Arc<UdpEndpoint>, JoinHandle<()>)>);

impl UdpThreads {
    /// Starts a thread for each socket; the sockets block. Jobs that wait run in the runtime of the caller.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot start another thread, or does not return the addresses that are asked.
    pub(super) fn start(sockets: Vec<UdpSocket>, responder: &Arc<Responder>) -> io::Result<Self> {
        let (errors, runtime) = (Arc::<ErrorGate>::default(), Handle::current());
        let mut threads = Self(Vec::with_capacity(sockets.len()));
        for socket in sockets {
            let is_everywhere = request_local_addresses(&socket)?;
            let (responder, errors) = (Arc::clone(responder), Arc::clone(&errors));
            let stopped = AtomicBool::new(false);
            let endpoint = Arc::new(UdpEndpoint { socket, is_everywhere, responder, errors, stopped });
            let (served, runtime) = (Arc::clone(&endpoint), runtime.clone());
            let thread = thread::Builder::new().name("udp".to_owned()).spawn(move || {
                let _context = runtime.enter();
                served.serve_always();
            })?;
            threads.0.push((endpoint, thread));
        }
        Ok(threads)
    }
}

impl Drop for UdpThreads {
    fn drop(&mut self) {
        for (endpoint, _) in &self.0 {
            endpoint.stopped.store(true, Ordering::Release);
            // Ends the receiving call, although the result is an error because the socket is not connected.
            let _ = SockRef::from(&endpoint.socket).shutdown(Shutdown::Read);
        }
        for (_, thread) in self.0.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread for questions over UDP failed");
            }
        }
    }
}

impl UdpEndpoint {
    /// Answers questions until the endpoint is stopped. A panic ends the batch, not the thread: the kernel would give its share of
    /// the clients to a socket that nobody reads.
    fn serve_always(self: &Arc<Self>) {
        while !self.stopped.load(Ordering::Acquire) {
            if panic::catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
                tracing::error!(
                    "a thread for questions over UDP failed, and goes on with the next questions"
                );
                thread::sleep(ERROR_PAUSE);
            }
        }
    }

    /// Answers questions until the endpoint is stopped.
    fn serve(self: &Arc<Self>) {
        let mut questions = QuestionBatch::new(self.is_everywhere);
        let mut responses = ResponseBatch::default();
        while !self.stopped.load(Ordering::Acquire) {
            match questions.receive(self) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot receive a question");
                    thread::sleep(ERROR_PAUSE);
                    continue;
                }
            }
            let mut direct = self.responder.direct();
            for (packet, peer) in questions.packets() {
                if direct.answer(packet, peer.client.ip(), &mut responses.bytes) {
                    responses.end(peer);
                } else {
                    self.answer(packet, peer, &mut responses);
                }
            }
            // Questions are counted before their clients have the responses.
            drop(direct);
            responses.send(&self.socket);
        }
    }

    /// Adds the response to a question to `responses`, or starts the job that finds it.
    fn answer(self: &Arc<Self>, packet: &[u8], peer: UdpPeer, responses: &mut ResponseBatch) {
        match self.responder.begin(packet, peer.client.ip(), Transport::Udp) {
            Step::Respond(response) => {
                if let Some(response) = self.errors.pass(response, peer.client, &self.responder) {
                    responses.add(&response, peer);
                }
            }
            Step::Forward(job) => {
                let endpoint = Arc::clone(self);
                tokio::spawn(async move {
                    let response = endpoint.responder.finish(job).await;
                    endpoint.respond(response, peer);
                });
            }
            Step::Update(job) => {
                let endpoint = Arc::clone(self);
                tokio::spawn(async move {
                    let response = endpoint.responder.update(*job).await;
                    endpoint.respond(response, peer);
                });
            }
            // Zones are transferred over TCP only.
            Step::Transfer(_) | Step::Discard => {}
        }
    }

    /// Sends the response of a job.
    fn respond(&self, response: Vec<u8>, peer: UdpPeer) {
        if let Some(response) = self.errors.pass(response, peer.client, &self.responder) {
            send(&self.socket, &response, peer);
        }
    }
}

/// Sends a response if the buffer of the socket has room for it. No response is worth a wait, in which other questions get none:
/// packets to clients that the link does not resolve may fill the buffer for seconds.
fn send(socket: &UdpSocket, response: &[u8], peer: UdpPeer) {
    if let Err(error) = peer.send(socket, response) {
        tracing::debug!(client = %peer.client, %error, "cannot send a response");
    }
}

/// Questions that were received at once.
struct QuestionBatch {
    headers: MultiHeaders<SockaddrStorage>,
    /// True if the address that was asked is received with each question.
    has_local_addresses: bool,
    buffers: Box<[[u8; QUESTION_BYTES_MAX]]>,
    /// Sizes and addresses of the questions, in the order of their buffers.
    received: Vec<(usize, UdpPeer)>,
}

/// Returns the headers of the messages of a batch.
fn headers(has_local_addresses: bool) -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(BATCH_MAX, has_local_addresses.then(control_buffer))
}

impl QuestionBatch {
    fn new(has_local_addresses: bool) -> Self {
        Self {
            headers: headers(has_local_addresses),
            has_local_addresses,
            buffers: vec![[0; QUESTION_BYTES_MAX]; BATCH_MAX].into(),
            received: Vec::with_capacity(BATCH_MAX),
        }
    }

    /// Waits for a question, and receives it with all others that wait. Receives none if the endpoint is stopped.
    fn receive(&mut self, endpoint: &UdpEndpoint) -> io::Result<()> {
        let Self { headers, has_local_addresses, buffers, received } = self;
        received.clear();
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let (socket, flags) = (endpoint.socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
        let messages = recvmmsg(socket, headers, slices.iter_mut(), flags, None)?;
        if endpoint.stopped.load(Ordering::Acquire) {
            // Messages of a socket that was shut down have no address.
            return Ok(());
        }
        received.extend(messages.map(|message| (message.bytes, UdpPeer::of(&message))));
        if *has_local_addresses && received.iter().any(|(_, peer)| peer.local.is_none()) {
            // The kernel has shortened the room for the address in the header, which would stay so.
            *headers = self::headers(true);
        }
        Ok(())
    }

    /// Returns the questions with their clients.
    fn packets(&self) -> impl Iterator<Item = (&[u8], UdpPeer)> {
        let questions = self.buffers.iter().zip(&self.received);
        let cut = questions.map(|(buffer, (size, peer))| (buffer.get(..*size).unwrap_or(buffer), *peer));
        // No client uses port 0; a response would go nowhere.
        cut.filter(|(_, peer)| peer.client.port() != 0)
    }
}

/// Responses that are sent at once.
struct ResponseBatch {
    bytes: Vec<u8>,
    /// Ends of the responses in the bytes, with the addresses of their questions.
    ends: Vec<(usize, UdpPeer)>,
}

impl Default for ResponseBatch {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(BATCH_MAX * RESPONSE_BYTES), ends: Vec::with_capacity(BATCH_MAX) }
    }
}

impl ResponseBatch {
    fn add(&mut self, response: &[u8], peer: UdpPeer) {
        self.bytes.extend_from_slice(response);
        self.end(peer);
    }

    /// Ends a response that was appended to the bytes.
    fn end(&mut self, peer: UdpPeer) {
        self.ends.push((self.bytes.len(), peer));
    }

    /// Sends all responses, and removes them. A response that cannot be sent does not prevent the others.
    fn send(&mut self, socket: &UdpSocket) {
        match self.ends[..] {
            [] => return,
            [(_, peer)] => send(socket, &self.bytes, peer),
            // Responses with a source of their own cannot be sent together.
            _ if self.ends.iter().any(|(_, peer)| peer.local.is_some()) => {
                for (place, (_, peer)) in self.places().zip(&self.ends) {
                    send(socket, self.bytes.get(place).unwrap_or_default(), *peer);
                }
            }
            _ => self.send_several(socket),
        }
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the places of the responses in the bytes.
    fn places(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, _))| start..*end)
    }

    fn send_several(&self, socket: &UdpSocket) {
        let places = self.places();
        let slices: Vec<_> =
            places.map(|place| [IoSlice::new(self.bytes.get(place).unwrap_or_default())]).collect();
        let addresses: Vec<_> = self.ends.iter().map(|(_, peer)| SocketAddrAny::from(peer.client)).collect();
        let mut controls: Vec<_> = slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let parts = addresses.iter().zip(&slices).zip(&mut controls);
        let mut messages: Vec<_> = parts
            .map(|((address, slice), control)| MMsgHdr::new_with_addr(address, slice, control))
            .collect();
        let mut sent = 0;
        while let Some(rest) = messages.get_mut(sent..).filter(|rest| !rest.is_empty()) {
            match sendmmsg(socket, rest, SendFlags::DONTWAIT) {
                Ok(count) => sent += count.max(1),
                Err(Errno::INTR) => {}
                Err(error) => {
                    let client = self.ends.get(sent).map(|(_, peer)| peer.client);
                    tracing::debug!(?client, %error, "cannot send a response");
                    sent += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responder::tests::{question, responder, zone};

    /// Many questions at once to sockets of both IP families are all answered, each to its client, and the threads end.
    #[tokio::test]
    async fn many_questions_at_once_are_answered() {
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let sockets = vec![bind("127.0.0.1:0"), bind("[::1]:0")];
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let threads = UdpThreads::start(sockets, &Arc::new(responder(Some(zone())))).unwrap();
        let mut answers = 0;
        for server in &addresses {
            let clients = [(); 3].map(|()| bind(if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }));
            for number in 0..20 {
                for client in &clients {
                    // The clients are outside of the cluster, so that all ways of the server are taken.
                    let name = if number % 2 == 0 { "www.example.org" } else { "web.shop.svc.cluster.local" };
                    let mut packet = question(name, 1);
                    packet[0] = number;
                    client.send_to(&packet, server).unwrap();
                    client.send_to(&packet[..5], server).unwrap();
                }
            }
            for client in &clients {
                client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let mut ids: Vec<_> = (0..20)
                    .map(|_| {
                        let mut buffer = [0; 512];
                        let (size, from) = client.recv_from(&mut buffer).unwrap();
                        assert!(from == *server && size > 12);
                        answers += 1;
                        buffer[0]
                    })
                    .collect();
                ids.sort_unstable();
                assert_eq!(ids, (0..20).collect::<Vec<_>>());
            }
        }
        assert_eq!(answers, 120);
        // Waits for the threads, which sleep.
        drop(threads);
        // The addresses are free again.
        for address in addresses {
            UdpSocket::bind(address).unwrap();
        }
    }

    /// Each response of a socket for all addresses comes from the address that was asked, alone and in batches.
    #[tokio::test]
    async fn responses_come_from_the_address_that_was_asked() {
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let threads = UdpThreads::start(vec![server], &Arc::new(responder(Some(zone())))).unwrap();
        for round in 0..3 {
            let clients = ["127.0.0.2", "127.0.0.3", "127.0.0.1"].map(|address| {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.connect((address, port)).unwrap();
                client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                client
            });
            for client in &clients {
                for _ in 0..20 {
                    client.send(&question("www.example.org", 1)).unwrap();
                }
            }
            // A connected socket receives from the address of its server only.
            for client in &clients {
                for number in 0..20 {
                    assert!(client.recv(&mut [0; 512]).is_ok(), "{round} {number} {client:?}");
                }
            }
        }
        drop(threads);
    }

    /// A response that cannot be sent does not prevent the others of its batch.
    #[test]
    fn a_response_that_cannot_be_sent_is_left_out() {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (server, clients) = (bind(), [bind(), bind()]);
        let mut responses = ResponseBatch::default();
        let peer = |client| UdpPeer { client, local: None };
        responses.add(b"a", peer(clients[0].local_addr().unwrap()));
        // Of the other IP family.
        responses.add(b"b", peer("[2001:db8::1]:5353".parse().unwrap()));
        responses.add(b"c", peer(clients[1].local_addr().unwrap()));
        responses.send(&server);
        for (client, expected) in clients.iter().zip([b"a", b"c"]) {
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut buffer = [0; 16];
            assert_eq!(client.recv(&mut buffer).unwrap(), 1);
            assert_eq!(buffer[..1], expected[..]);
        }
        assert!(responses.ends.is_empty() && responses.bytes.is_empty());
    }
}
