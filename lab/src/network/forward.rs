//! Port forwarding from the loopback interface of this machine to a server in a namespace, so that browsers
//! and `curl` can be used outside of namespaces.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result};

use crate::host::netns::Namespace;

/// Maximum number of concurrent connections. A user with a browser needs a handful; a broken client must not
/// exhaust threads.
const CONNECTIONS_MAX: usize = 64;

/// Listens on loopback, on port `wanted` or else on any free port, and forwards every connection to `to` in
/// the namespace until the process ends. Returns the listening address.
///
/// # Errors
/// Returns an error if no port is free.
pub fn to_namespace(wanted: u16, namespace: &Namespace, to: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted))
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .context("no free port on loopback")?;
    let address = listener.local_addr()?;
    let (hand_over, accepted) = mpsc::sync_channel::<TcpStream>(CONNECTIONS_MAX);
    thread::Builder::new().name("forward-accept".to_owned()).spawn(move || {
        for connection in listener.incoming().flatten() {
            if hand_over.send(connection).is_err() {
                return;
            }
        }
    })?;
    namespace.spawn("forward-connect", move || {
        for outside in accepted {
            // Threads started here inherit the namespace and end with either side.
            let _ = thread::Builder::new().name("forward".to_owned()).spawn(move || carry(&outside, to));
        }
    })?;
    Ok(address)
}

fn carry(outside: &TcpStream, to: SocketAddr) {
    let Ok(inside) = TcpStream::connect(to) else { return };
    thread::scope(|scope| {
        scope.spawn(|| copy(outside, &inside));
        copy(&inside, outside);
    });
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _either_side_may_end_it = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
