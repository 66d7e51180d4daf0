//! Exchange with an upstream server over TLS (RFC 7858).
//!
//! A connection carries several questions at once, whose responses may come in any order (RFC 7766 §6.2.1.1), and stays
//! open for later questions. Each connection is a task:
//!
//! ```text
//! ask ──question──▶ write ──▶ server
//!  ▲                  │ waiting by id
//!  └────response──── read ◀── server
//! ```
//! Invariant: a question is sent only after the certificate of the server was verified.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::{exchange::is_response_to, upstream::RESPONSE_TIME_MAX};

/// Maximum number of open connections to one server.
const CONNECTIONS_MAX: usize = 8;
/// Number of questions that wait on a connection from which on another connection is opened. Some servers process fewer
/// at once.
const QUESTIONS_WANTED: usize = 32;
/// Maximum number of questions that wait on one connection.
const QUESTIONS_MAX: usize = 1024;
/// Time after which a connection without questions is closed. Servers allow at least as much.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);

/// Upstream server that is asked over TLS.
#[derive(Debug)]
pub(super) struct TlsServer {
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Held while a connection is opened, so that questions at the same time share it.
    opening: tokio::sync::Mutex<()>,
}

/// Open connection.
#[derive(Debug)]
struct Connection {
    questions: mpsc::Sender<WaitingQuestion>,
    waiting: Arc<AtomicUsize>,
    /// Time of the last message of the server.
    last_response: Arc<Mutex<Option<Instant>>>,
}

/// Question with the receiver of its response.
#[derive(Debug)]
struct WaitingQuestion {
    packet: Vec<u8>,
    response: oneshot::Sender<Vec<u8>>,
}

/// Decrements the number of questions of a connection when it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TlsServer {
    pub(super) fn new(address: SocketAddr, name: ServerName<'static>, config: Arc<ClientConfig>) -> Self {
        Self { address, name, config, connections: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Sends a question and returns the response.
    ///
    /// # Errors
    /// Returns an error if there is no connection to a server with a valid certificate, or no response in time.
    pub(super) async fn ask(&self, packet: &[u8]) -> io::Result<Vec<u8>> {
        let start = Instant::now();
        let mut used = None;
        let outcome = timeout(RESPONSE_TIME_MAX, async {
            let (connection, is_new) = self.connection().await?;
            used = Some(Arc::clone(&connection));
            match connection.ask(packet).await {
                Ok(response) => Ok(response),
                // The server may close a connection at any time, which says nothing about its state (RFC 7766 §6.2.4).
                Err(_) if !is_new => {
                    self.forget(&connection);
                    let (connection, _) = self.connection().await?;
                    used = Some(Arc::clone(&connection));
                    connection.ask(packet).await
                }
                Err(error) => Err(error),
            }
        });
        let outcome = outcome.await.map_err(io::Error::from).flatten();
        if let (Err(_), Some(connection)) = (&outcome, used)
            && !connection.has_responded_since(start)
        {
            self.forget(&connection);
        }
        outcome
    }

    /// Returns a connection, and true if it was opened for the caller.
    async fn connection(&self) -> io::Result<(Arc<Connection>, bool)> {
        if let Some(connection) = self.open_connection() {
            return Ok((connection, false));
        }
        let _opening = self.opening.lock().await;
        if let Some(connection) = self.open_connection() {
            return Ok((connection, false));
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await?;
        let connection = Arc::new(Connection::start(stream, IDLE_TIME_MAX));
        self.lock().push(Arc::clone(&connection));
        Ok((connection, true))
    }

    /// Returns the open connection with the fewest questions. `None` if another one must be opened.
    fn open_connection(&self) -> Option<Arc<Connection>> {
        let mut connections = self.lock();
        connections.retain(|connection| !connection.questions.is_closed());
        let is_full = connections.len() >= CONNECTIONS_MAX;
        let least = connections.iter().min_by_key(|connection| connection.waiting.load(Ordering::Relaxed))?;
        (is_full || least.waiting.load(Ordering::Relaxed) < QUESTIONS_WANTED).then(|| Arc::clone(least))
    }

    /// Uses a connection for no further question. It ends after the responses that are still expected.
    fn forget(&self, unusable: &Arc<Connection>) {
        self.lock().retain(|connection| !Arc::ptr_eq(connection, unusable));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Starts the task of a connection, which ends after a time without questions.
    fn start(stream: impl AsyncRead + AsyncWrite + Send + 'static, idle_time_max: Duration) -> Self {
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        let last_response = Arc::<Mutex<Option<Instant>>>::default();
        let last = Arc::clone(&last_response);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let waiting = Mutex::new(WaitingQuestions::default());
            let outcome = tokio::select! {
                outcome = send_questions(&mut writer, receiver, &waiting, idle_time_max) => outcome,
                outcome = receive_responses(&mut reader, &waiting, &last) => outcome,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection to an upstream server ended");
            }
            // Questions without a response end here.
            drop(waiting);
            // The server need not wait for the end of the connection.
            let _ = timeout(RESPONSE_TIME_MAX, writer.shutdown()).await;
        });
        Self { questions, waiting: Arc::default(), last_response }
    }

    async fn ask(&self, packet: &[u8]) -> io::Result<Vec<u8>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _guard = WaitingGuard(&self.waiting);
        let closed = || io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was closed");
        let (response, receiver) = oneshot::channel();
        let question = WaitingQuestion { packet: packet.to_vec(), response };
        self.questions.send(question).await.map_err(|_| closed())?;
        receiver.await.map_err(|_| closed())
    }

    fn has_responded_since(&self, start: Instant) -> bool {
        let last = *self.last_response.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last > start)
    }
}

/// Questions that wait for their responses, by the id on the connection.
#[derive(Debug, Default)]
struct WaitingQuestions {
    next: u16,
    questions: HashMap<u16, WaitingQuestion>,
}

impl WaitingQuestions {
    /// Removes the questions of clients that do not wait any longer.
    fn purge(&mut self) {
        self.questions.retain(|_, question| !question.response.is_closed());
    }

    /// Adds a question. Returns its message with an id that no other question of the connection has; `None` if too many
    /// questions wait.
    fn add(&mut self, question: WaitingQuestion) -> Option<Vec<u8>> {
        if self.questions.len() >= QUESTIONS_MAX {
            self.purge();
        }
        if self.questions.len() >= QUESTIONS_MAX {
            return None;
        }
        while self.questions.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let packet = with_id(&question.packet, id.to_be_bytes());
        self.questions.insert(id, question);
        Some(packet)
    }

    /// Passes a response to the question to which it belongs, with the id of the question. Other messages are ignored.
    fn respond(&mut self, response: &[u8]) {
        let Some(id) = response.first_chunk::<2>().map(|id| u16::from_be_bytes(*id)) else { return };
        let Some(question) = self.questions.get(&id) else { return };
        let Some(asked) = question.packet.first_chunk::<2>() else { return };
        let response = with_id(response, *asked);
        if is_response_to(&question.packet, &response)
            && let Some(question) = self.questions.remove(&id)
        {
            // A client that does not wait any longer needs no response.
            let _ = question.response.send(response);
        }
    }
}

/// Returns a message with another id.
fn with_id(message: &[u8], id: [u8; 2]) -> Vec<u8> {
    [&id[..], message.get(2..).unwrap_or_default()].concat()
}

/// Sends the questions until no more come, or none has come for a time.
async fn send_questions(
    writer: &mut (impl AsyncWrite + Unpin),
    mut questions: mpsc::Receiver<WaitingQuestion>,
    waiting: &Mutex<WaitingQuestions>,
    idle_time_max: Duration,
) -> io::Result<()> {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match timeout(idle_time_max, questions.recv()).await {
            Ok(Some(question)) => {
                let Some(packet) = lock().add(question) else { continue };
                let size =
                    u16::try_from(packet.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                // In one record, which some servers expect (RFC 7766 §8).
                writer.write_all(&[&size.to_be_bytes(), &packet[..]].concat()).await?;
                writer.flush().await?;
            }
            Ok(None) => {
                sleep(RESPONSE_TIME_MAX).await;
                return Ok(());
            }
            Err(_) => {
                let mut waiting = lock();
                waiting.purge();
                if waiting.questions.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

/// Receives responses until the server closes the connection.
async fn receive_responses(
    reader: &mut (impl AsyncRead + Unpin),
    waiting: &Mutex<WaitingQuestions>,
    last: &Mutex<Option<Instant>>,
) -> io::Result<()> {
    loop {
        let size = match reader.read_u16().await {
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut response = vec![0; usize::from(size)];
        reader.read_exact(&mut response).await?;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        waiting.lock().unwrap_or_else(PoisonError::into_inner).respond(&response);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    /// Message with one question for a name of one letter.
    fn message(id: u16, letter: u8, flags: u8) -> Vec<u8> {
        let header = [&id.to_be_bytes()[..], &[flags, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        [&header[..], &[1, letter, 0, 0, 1, 0, 1]].concat()
    }

    async fn read(server: &mut DuplexStream) -> Vec<u8> {
        let mut packet = vec![0; usize::from(server.read_u16().await.unwrap())];
        server.read_exact(&mut packet).await.unwrap();
        packet
    }

    async fn write(server: &mut DuplexStream, message: &[u8]) {
        server.write_u16(u16::try_from(message.len()).unwrap()).await.unwrap();
        server.write_all(message).await.unwrap();
    }

    /// Two clients whose questions have the same id, and a server that answers in the other order, after a message for
    /// another question and one without a question.
    #[tokio::test]
    async fn responses_in_any_order_reach_their_questions() {
        let (client, mut server) = tokio::io::duplex(1024);
        let connection = Arc::new(Connection::start(client, IDLE_TIME_MAX));
        let ask = |letter: u8| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.ask(&message(7, letter, 1)).await.unwrap() })
        };
        let (a, b) = (ask(b'a'), ask(b'b'));
        let mut received = [read(&mut server).await, read(&mut server).await];
        received.sort_by_key(|packet| std::cmp::Reverse(packet[13]));
        assert_ne!(received[0][..2], received[1][..2]);
        let id = |packet: &[u8]| u16::from_be_bytes([packet[0], packet[1]]);
        write(&mut server, &message(id(&received[0]), b'x', 0x80)).await;
        write(&mut server, &[0]).await;
        for packet in &received {
            write(&mut server, &message(id(packet), packet[13], 0x80)).await;
        }
        assert_eq!(a.await.unwrap(), message(7, b'a', 0x80));
        assert_eq!(b.await.unwrap(), message(7, b'b', 0x80));
        assert_eq!(connection.waiting.load(Ordering::Relaxed), 0);
        // A closed connection is an error at once.
        drop(server);
        assert!(connection.ask(&message(8, b'c', 1)).await.is_err());
    }

    /// An idle connection is closed, and questions without a response are removed if there are too many.
    #[tokio::test]
    async fn connections_and_questions_are_bounded() {
        let (client, mut server) = tokio::io::duplex(1024);
        let connection = Connection::start(client, Duration::from_millis(50));
        let abandoned = timeout(Duration::from_millis(5), connection.ask(&message(1, b'a', 1))).await;
        assert!(abandoned.is_err());
        read(&mut server).await;
        timeout(Duration::from_secs(10), connection.questions.closed()).await.unwrap();

        let mut waiting = WaitingQuestions::default();
        let add = |waiting: &mut WaitingQuestions| {
            let (response, receiver) = oneshot::channel();
            (waiting.add(WaitingQuestion { packet: message(1, b'a', 1), response }).is_some(), receiver)
        };
        let mut receivers: Vec<_> = (0..QUESTIONS_MAX).map(|_| add(&mut waiting)).collect();
        assert!(receivers.iter().all(|(is_added, _)| *is_added));
        assert!(!add(&mut waiting).0);
        receivers.pop();
        assert!(add(&mut waiting).0);
    }
}
