//! Baseline of the fan-out benchmark: a sender without any processing, which sends messages of the same size
//! to the same number of sockets at the same rate as the control server.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lab::{
    host::netns::Namespace,
    load::{
        feed_load::{Fleet, Role, Start, now_ns},
        http_load::CompletedWrite,
    },
};

use nix::sys::{
    socket::{Backlog, setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};

use super::{Options, measured::RoundResults};

/// Listening address of the baseline sender inside its namespace.
const SENDER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7441);

/// Timeout in seconds until the next socket connects. Long, because a lost connection request is
/// retransmitted only after 1, 3 and 7 seconds.
const PATIENCE_SECS: i64 = 60;

/// Measures the delivery of messages of `bytes` bytes to `count` sockets.
pub(super) fn measure(options: &Options, count: u16, bytes: usize) -> Result<RoundResults> {
    let namespace = Namespace::new("bound")?;
    let listener = namespace.inside(listen).context("the sender cannot listen")?;
    let start = Start { program: &options.program, role: Role::Socket, server: SENDER, count, resume: None };
    let mut fleet = Fleet::start(&namespace, &start)?;
    let mut message = vec![0; bytes.max(size_of::<u64>())];
    let mut streams = (0..count).map(|_| accept(&listener, message.len())).collect::<Result<Vec<_>>>()?;
    let mut written = Vec::new();
    let begun = Instant::now();
    for number in 1..=options.changes {
        let due = begun + Duration::from_secs(1) * (number - 1) / options.per_second;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let end = message.len() - size_of::<u64>();
        message[end..].copy_from_slice(&u64::from(number).to_be_bytes());
        let sent_ns = now_ns();
        for stream in &mut streams {
            stream.write_all(&message).context("a socket does not accept data")?;
        }
        written.push(CompletedWrite { sent_ns, answered_ns: now_ns(), revision: number.into() });
    }
    fleet.wait(options.changes.into())?;
    let seen = fleet.take()?;
    // Dropped before the sockets; otherwise each of them would report the end of the sender.
    drop(fleet);
    Ok(RoundResults::of(&written, &seen))
}

fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SENDER)?;
    // All sockets connect at once. With the default backlog of the standard library, a client beyond it
    // considers itself connected, waits for the first byte, and is forgotten here.
    nix::sys::socket::listen(&listener, Backlog::MAXALLOWABLE)?;
    // The timeout applies to `accept` too.
    setsockopt(&listener, ReceiveTimeout, &TimeVal::seconds(PATIENCE_SECS))?;
    Ok(listener)
}

fn accept(listener: &TcpListener, bytes: usize) -> Result<TcpStream> {
    let (mut stream, _) = listener.accept().context("nobody connects")?;
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    stream.write_all(&(bytes as u64).to_be_bytes()).context("a socket does not accept data")?;
    Ok(stream)
}
