//! Connections of a status server. Their number and duration are limited, so that clients cannot use up the file
//! descriptors of the program.
//!
//! A new connection is always accepted. If there are too many, the oldest one of the address with the most is
//! closed, so that idle connections do not delay a health check, even from the same address.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Maximum number of open connections. Clients are health checks and metric collectors, with one request each.
const CONNECTIONS_MAX: usize = 64;
/// Maximum time for the head of a request to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum duration of a connection. The largest responses have a few mebibytes.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause after an error of `accept`, so that the loop does not consume all CPU time while no file descriptor is
/// free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Open connections, oldest first.
#[derive(Debug, Default)]
struct StatusConnections {
    open: Vec<(IpAddr, AbortHandle)>,
    tasks: JoinSet<()>,
}

/// Serves one request per connection until `stop` is canceled.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = StatusConnections::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => connections.add(stream, peer.ip(), router.clone()),
            Err(error) => {
                debug!(%error, "cannot accept a connection of the status server");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl StatusConnections {
    fn add(&mut self, stream: TcpStream, address: IpAddr, router: Router) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= CONNECTIONS_MAX {
            self.close_one();
        }
        let task = self.tasks.spawn(async move {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
            builder.keep_alive(false);
            let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            // Client errors are ignored.
            let _ended = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
        });
        self.open.push((address, task));
    }

    /// Closes the oldest connection of the address with the most connections.
    fn close_one(&mut self) {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for (address, _) in &self.open {
            *counts.entry(*address).or_default() += 1;
        }
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address);
        if let Some(at) = self.open.iter().position(|(address, _)| Some(*address) == busiest) {
            self.open.remove(at).1.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, SocketAddr},
        time::Instant,
    };

    use axum::routing::get;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        task::JoinHandle,
    };

    use super::*;

    /// Time limit for responses on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start() -> (SocketAddr, JoinHandle<()>) {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/healthz", get(async || "well"));
        let router = crate::guard::guarded(router, address);
        (address, tokio::spawn(serve(listener, router, CancellationToken::new())))
    }

    async fn connect(server: SocketAddr, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(Ipv4Addr::new(127, 0, 0, host).into(), 0)).unwrap();
        socket.connect(server).await.unwrap()
    }

    async fn ask(server: SocketAddr, client: u8, head: &str) -> String {
        let mut stream = connect(server, client).await;
        stream.write_all(format!("GET /healthz {head}\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    }

    #[tokio::test]
    async fn idle_connections_neither_stop_health_checks_nor_use_up_descriptors() {
        const IDLE: usize = 1500;
        let (server, serving) = start().await;
        let mut idle = Vec::new();
        let mut last_to_close = Instant::now();
        for at in 0..IDLE {
            if at + CONNECTIONS_MAX < IDLE {
                last_to_close = Instant::now();
            }
            idle.push(connect(server, 2).await);
            if at % 100 == 0 {
                for client in [2, 3] {
                    let answer = ask(server, client, "HTTP/1.1\r\nHost: localhost").await;
                    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("well"), "{answer}");
                }
            }
        }
        let mut open = 0;
        let mut closed = 0;
        while closed + CONNECTIONS_MAX < IDLE {
            closed = 0;
            open = 0;
            for stream in &idle {
                match stream.try_read(&mut [0]) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => open += 1,
                    Ok(_) | Err(_) => closed += 1,
                }
            }
            let waited = last_to_close.elapsed();
            assert!(waited < HEAD_TIMEOUT, "{open} connections remained until the end of their time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(open <= CONNECTIONS_MAX, "{open} connections are open");
        serving.abort();
    }

    /// The bound does not depend on the time limits of connections.
    #[tokio::test]
    async fn no_more_than_the_maximum_number_of_connections_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut connections, mut clients) = (StatusConnections::default(), Vec::new());
        for _ in 0..2 * CONNECTIONS_MAX {
            clients.push(TcpStream::connect(address).await.unwrap());
            let (stream, peer) = listener.accept().await.unwrap();
            connections.add(stream, peer.ip(), Router::new());
            assert!(connections.open.len() <= CONNECTIONS_MAX, "{} connections", connections.open.len());
        }
    }

    #[tokio::test]
    async fn another_address_keeps_its_connection_while_one_floods() {
        let (server, serving) = start().await;
        let mut waiting = connect(server, 3).await;
        let mut idle = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            idle.push(connect(server, 2).await);
        }
        waiting.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        tokio::time::timeout(PATIENCE, waiting.read_to_string(&mut text)).await.unwrap().unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        serving.abort();
    }

    #[tokio::test]
    async fn foreign_host_names_are_rejected() {
        let (server, serving) = start().await;
        for (head, code) in [
            ("HTTP/1.1\r\nHost: localhost:7441", 200),
            ("HTTP/1.1\r\nHost: 127.0.0.1", 200),
            ("HTTP/1.0", 200),
            ("HTTP/1.1\r\nHost: evil.example", 400),
            ("HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 400),
            ("HTTP/1.1", 400),
        ] {
            let answer = ask(server, 2, head).await;
            assert!(
                answer.get(8..).is_some_and(|rest| rest.starts_with(&format!(" {code}"))),
                "{head}: {answer}"
            );
        }
        serving.abort();
    }
}
