//! Server on a loopback port for the tests, and clients that send raw bytes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use api::base::config::Settings;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::support;

/// Time limit for expected events: far longer than every timeout of the server, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum peak memory of the test program in KiB, with several attacks at once.
const MEMORY_MAX_KIB: u64 = 640 * 1024;

/// Server in the process of the test that listens on a TCP port.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    _server: support::Server,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(support::settings(30000..=32767)).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        let server = support::start_with(settings).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(api::server::serve::serve(
            listener,
            Arc::clone(&server.running.app),
            None,
            stop.clone(),
        ));
        Self { address, stop, _server: server }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects from the loopback address 127.0.0.`host`, which the server counts as a separate client.
    pub(crate) async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Sends raw bytes on a new connection and returns all received bytes as text.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // After an early rejection the server may stop reading; the response counts.
        let _sent = stream.write_all(bytes).await;
        rest(&mut stream).await
    }

    /// Sends a request with a body on a new connection and returns the response as text.
    pub(crate) async fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> String {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
             If-Match: *\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.say(&[head.as_bytes(), body].concat()).await
    }

    /// Asserts that a client from another address is served.
    pub(crate) async fn serves_others(&self) {
        let mut stream = self.connect_from(9).await;
        let request = b"GET /v1/services HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let answer = rest(&mut stream).await;
        assert_eq!(status(&answer), 200, "{answer}");
    }
}

/// Reads until the peer closes or resets the connection, and returns the received text.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset after a response does not discard it.
    let _cut = read.expect("the server says nothing and does not close either");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the status code of a raw HTTP response; 0 if there is none.
pub(crate) fn status(answer: &str) -> u16 {
    let line = answer.strip_prefix("HTTP/1.1 ").or_else(|| answer.strip_prefix("HTTP/1.0 "));
    line.and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

/// Asserts that all attempts were rejected (`count` of `of`), and prints their number and the peak memory.
pub(crate) fn refused(what: &str, count: usize, of: usize) {
    println!("abuse: {what}: {count} of {of} refused; {} KiB", memory_kib());
    assert_eq!(count, of, "{what}");
}

/// Returns the peak memory of this program in KiB, and asserts that it is within the limit.
pub(crate) fn memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < MEMORY_MAX_KIB, "{kib} KiB of memory");
    kib
}
