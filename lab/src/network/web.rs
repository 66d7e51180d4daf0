//! Minimal web server: replies to every request with the name of the workload and closes the connection. Minimal client
//! for one request.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::host::netns::Namespace;

/// Timeout for receiving a request. Clients are served one at a time, so others wait meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a client for the connection and for each part of the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Body.
    pub body: String,
}

/// Sends a request from a namespace over a connection of its own, and reads the response until the server closes the
/// connection.
///
/// # Errors
/// Returns an error if the connection is refused, times out, is reset, or ends before the response is complete.
pub fn get(from: &Namespace, to: SocketAddr, host: &str, path: &str) -> Result<Page> {
    let connect = || TcpStream::connect_timeout(&to, CLIENT_TIMEOUT);
    let mut stream = from.inside(connect).with_context(|| format!("HTTP to {to} from {}", from.name()))?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).with_context(|| format!("HTTP to {to}: no complete response"))?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("not a response: {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("not a response: {text:?}"))?;
    let length = head
        .to_ascii_lowercase()
        .split("content-length: ")
        .nth(1)
        .map(|rest| rest.split("\r\n").next().and_then(|digits| digits.parse::<usize>().ok()));
    if let Some(length) = length {
        ensure!(length == Some(body.len()), "HTTP to {to}: incomplete response {text:?}");
    }
    Ok(Page { status, head: head.to_owned(), body: body.to_owned() })
}

/// Running web server. Dropping it closes the port.
#[derive(Debug)]
pub struct WebServer {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Listens on every address of the namespace, IPv4 and IPv6.
    ///
    /// # Errors
    /// Returns an error if the port is in use.
    pub fn start(namespace: &Namespace, name: &str, port: u16) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair().context("cannot make a pair of sockets")?;
        let (report, started) = mpsc::channel();
        let page = format!("{name}\n");
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let thread =
            namespace.spawn(&format!("web-{name}"), move || match TcpListener::bind(everywhere) {
                Ok(listener) => {
                    let _ = report.send(Ok(()));
                    serve(&listener, &page, &stopped);
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            })?;
        started
            .recv()
            .map_err(|_| anyhow!("the web server of {name} did not start"))?
            .with_context(|| format!("the web server of {name} cannot listen on port {port}"))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, page: &str, stopped: &UnixStream) {
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut waiting = [readable(listener.as_fd()), readable(stopped.as_fd())];
        if poll(&mut waiting, PollTimeout::NONE).is_err() {
            continue;
        }
        let [on_client, on_stop] = waiting.map(|fd| fd.any().unwrap_or(false));
        if on_stop {
            return;
        }
        if on_client && let Ok((connection, _)) = listener.accept() {
            let _client_may_be_gone = answer(&connection, page);
        }
    }
}

/// Reads a request up to its blank line (RFC 9112 §2.1), and responds with `page`.
fn answer(mut connection: &TcpStream, page: &str) -> std::io::Result<()> {
    connection.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = String::new();
    let mut reader = BufReader::new(connection);
    while reader.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    let length = page.len();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
    )
}
