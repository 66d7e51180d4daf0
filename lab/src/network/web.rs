//! Minimal web server for `curl`: replies to every request with the name of the workload and closes the
//! connection.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::host::netns::Namespace;

/// Timeout for receiving a request. Clients are served one at a time, so others wait meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

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
