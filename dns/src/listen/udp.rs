//! Questions over UDP, in batches: one system call receives the questions that wait, and one sends their responses.
//!
//! Each socket has a thread of its own, which sleeps in the receiving call: a question then costs neither a readiness
//! notification of the runtime nor a change of threads. Work that must wait runs in the runtime.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
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
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg, sendto},
};
use socket2::SockRef;
use tokio::runtime::Handle;

use super::error_limit::{ErrorDecision, ErrorLimit};
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
    /// Returns an error if the operating system cannot start another thread.
    pub(super) fn start(sockets: Vec<UdpSocket>, responder: &Arc<Responder>) -> io::Result<Self> {
        let (errors, runtime) = (Arc::<ErrorGate>::default(), Handle::current());
        let mut threads = Self(Vec::with_capacity(sockets.len()));
        for socket in sockets {
            let (responder, errors) = (Arc::clone(responder), Arc::clone(&errors));
            let endpoint =
                Arc::new(UdpEndpoint { socket, responder, errors, stopped: AtomicBool::new(false) });
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
        let (mut questions, mut responses) = (QuestionBatch::default(), ResponseBatch::default());
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
            for (packet, client) in questions.packets() {
                if direct.answer(packet, client.ip(), &mut responses.bytes) {
                    responses.end(client);
                } else {
                    self.answer(packet, client, &mut responses);
                }
            }
            // Questions are counted before their clients have the responses.
            drop(direct);
            responses.send(&self.socket);
        }
    }

    /// Adds the response to a question to `responses`, or starts the job that finds it.
    fn answer(self: &Arc<Self>, packet: &[u8], client: SocketAddr, responses: &mut ResponseBatch) {
        match self.responder.begin(packet, client.ip(), Transport::Udp) {
            Step::Respond(response) => {
                if let Some(response) = self.errors.pass(response, client, &self.responder) {
                    responses.add(&response, client);
                }
            }
            Step::Forward(job) => {
                let endpoint = Arc::clone(self);
                tokio::spawn(async move {
                    let response = endpoint.responder.finish(job).await;
                    endpoint.respond(response, client);
                });
            }
            Step::Update(job) => {
                let endpoint = Arc::clone(self);
                tokio::spawn(async move {
                    let response = endpoint.responder.update(*job).await;
                    endpoint.respond(response, client);
                });
            }
            // Zones are transferred over TCP only.
            Step::Transfer(_) | Step::Discard => {}
        }
    }

    /// Sends the response of a job.
    fn respond(&self, response: Vec<u8>, client: SocketAddr) {
        if let Some(response) = self.errors.pass(response, client, &self.responder) {
            send(&self.socket, &response, client);
        }
    }
}

/// Sends a response if the buffer of the socket has room for it. No response is worth a wait, in which other questions get none:
/// packets to clients that the link does not resolve may fill the buffer for seconds.
fn send(socket: &UdpSocket, response: &[u8], client: SocketAddr) {
    if let Err(error) = sendto(socket, response, SendFlags::DONTWAIT, &client) {
        tracing::debug!(%client, %error, "cannot send a response");
    }
}

/// Questions that were received at once.
struct QuestionBatch {
    headers: MultiHeaders<SockaddrStorage>,
    buffers: Box<[[u8; QUESTION_BYTES_MAX]]>,
    /// Sizes and clients of the questions, in the order of their buffers.
    received: Vec<(usize, SocketAddr)>,
}

impl Default for QuestionBatch {
    fn default() -> Self {
        Self {
            headers: MultiHeaders::preallocate(BATCH_MAX, None),
            buffers: vec![[0; QUESTION_BYTES_MAX]; BATCH_MAX].into(),
            received: Vec::with_capacity(BATCH_MAX),
        }
    }
}

impl QuestionBatch {
    /// Waits for a question, and receives it with all others that wait. Receives none if the endpoint is stopped.
    fn receive(&mut self, endpoint: &UdpEndpoint) -> io::Result<()> {
        let Self { headers, buffers, received } = self;
        received.clear();
        let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let (socket, flags) = (endpoint.socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
        let messages = recvmmsg(socket, headers, slices.iter_mut(), flags, None)?;
        if endpoint.stopped.load(Ordering::Acquire) {
            // Messages of a socket that was shut down have no address.
            return Ok(());
        }
        for message in messages {
            // Sockets have addresses of the two families only.
            let client = message.address.as_ref().and_then(address_of).unwrap_or(UNKNOWN_CLIENT);
            received.push((message.bytes, client));
        }
        Ok(())
    }

    /// Returns the questions with their clients.
    fn packets(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        let questions = self.buffers.iter().zip(&self.received);
        let cut = questions.map(|(buffer, (size, client))| (buffer.get(..*size).unwrap_or(buffer), *client));
        // No client uses port 0; a response would go nowhere.
        cut.filter(|(_, client)| client.port() != 0)
    }
}

/// Client that gets no response.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0));

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddrV4::from(*address).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddrV6::from(*address).into()))
}

/// Responses that are sent at once.
struct ResponseBatch {
    bytes: Vec<u8>,
    /// Ends of the responses in the bytes, with their clients.
    ends: Vec<(usize, SocketAddr)>,
}

impl Default for ResponseBatch {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(BATCH_MAX * RESPONSE_BYTES), ends: Vec::with_capacity(BATCH_MAX) }
    }
}

impl ResponseBatch {
    fn add(&mut self, response: &[u8], client: SocketAddr) {
        self.bytes.extend_from_slice(response);
        self.end(client);
    }

    /// Ends a response that was appended to the bytes.
    fn end(&mut self, client: SocketAddr) {
        self.ends.push((self.bytes.len(), client));
    }

    /// Sends all responses, and removes them. A response that cannot be sent does not prevent the others.
    fn send(&mut self, socket: &UdpSocket) {
        match self.ends[..] {
            [] => return,
            [(_, client)] => {
                send(socket, &self.bytes, client);
            }
            _ => self.send_several(socket),
        }
        self.bytes.clear();
        self.ends.clear();
    }

    fn send_several(&self, socket: &UdpSocket) {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let places = starts.zip(&self.ends).map(|(start, (end, _))| start..*end);
        let slices: Vec<_> =
            places.map(|place| [IoSlice::new(self.bytes.get(place).unwrap_or_default())]).collect();
        let addresses: Vec<_> = self.ends.iter().map(|(_, client)| SocketAddrAny::from(*client)).collect();
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
                    let client = self.ends.get(sent).map(|(_, client)| *client);
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

    /// A response that cannot be sent does not prevent the others of its batch.
    #[test]
    fn a_response_that_cannot_be_sent_is_left_out() {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (server, clients) = (bind(), [bind(), bind()]);
        let mut responses = ResponseBatch::default();
        responses.add(b"a", clients[0].local_addr().unwrap());
        // Of the other IP family.
        responses.add(b"b", "[2001:db8::1]:5353".parse().unwrap());
        responses.add(b"c", clients[1].local_addr().unwrap());
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
