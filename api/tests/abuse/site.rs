//! A server on a port of loopback, and clients that speak bytes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use api::base::config::Settings;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::common;

/// Longest wait for what must come: far beyond every limit of the server, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Memory that the whole test program may ever have used, with several attacks at once.
const MEMORY_MAX_KIB: u64 = 512 * 1024;

/// A server that serves a port.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    _server: common::Server,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(common::settings(30000..=32767)).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        let server = common::start_with(settings).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(api::server::serve::serve(listener, server.router.clone(), None, stop.clone()));
        Self { address, stop, _server: server }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection from another address of loopback.
    pub(crate) async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Sends bytes and reads everything that comes back.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // Refused early, the rest may not be taken any longer; what was answered counts.
        let _sent = stream.write_all(bytes).await;
        rest(&mut stream).await
    }

    /// Sends a request with a body.
    pub(crate) async fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> String {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
             If-Match: *\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.say(&[head.as_bytes(), body].concat()).await
    }

    /// Somebody else asks, from an address of its own, and is answered.
    pub(crate) async fn serves_others(&self) {
        let mut stream = self.connect_from(9).await;
        let request = b"GET /v1/services HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let answer = rest(&mut stream).await;
        assert_eq!(status(&answer), 200, "{answer}");
    }
}

/// Everything until the other side closes, or cuts.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset after an answer takes nothing of it back.
    let _cut = read.expect("the server says nothing and does not close either");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status of an answer; 0 for none.
pub(crate) fn status(answer: &str) -> u16 {
    let line = answer.strip_prefix("HTTP/1.1 ").or_else(|| answer.strip_prefix("HTTP/1.0 "));
    line.and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

/// Says how many of what was tried were refused, and how much memory that took; all of them have to be.
pub(crate) fn refused(what: &str, count: usize, of: usize) {
    println!("abuse: {what}: {count} of {of} refused; {} KiB", memory_kib());
    assert_eq!(count, of, "{what}");
}

/// The memory that this program has ever used, in KiB; within its bound.
pub(crate) fn memory_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib = line.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < MEMORY_MAX_KIB, "{kib} KiB of memory");
    kib
}
