//! TCP proxy that delivers a certain request to a server and loses the reply, so that a caller does not learn the
//! outcome of a write.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Proxy for one server.
pub(crate) struct LossyProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Bytes of the request whose reply is lost.
    marker: Vec<u8>,
    is_cut: bool,
    connections: Vec<TcpStream>,
}

impl LossyProxy {
    /// Starts a proxy for `server`. From the request on that contains `marker`, replies are lost and connections
    /// refused until [`Self::heal`]; requests on existing connections are delivered.
    pub(crate) fn start(server: SocketAddr, marker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let marker = marker.as_bytes().to_vec();
        let state = Arc::new(Mutex::new(State { marker, is_cut: false, connections: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if !lock(&shared).is_cut {
                    connect(&shared, client, server);
                }
            }
        });
        Self { address, state }
    }

    /// Returns the address on which the proxy listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true if the marked request was delivered and its reply lost.
    pub(crate) fn is_cut(&self) -> bool {
        lock(&self.state).is_cut
    }

    /// Lets new connections pass, and closes those whose replies were lost.
    pub(crate) fn heal(&self) {
        let mut state = lock(&self.state);
        (state.is_cut, state.marker) = (false, Vec::new());
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(state: &Arc<Mutex<State>>, client: TcpStream, server: SocketAddr) {
    let Ok(upstream) = TcpStream::connect(server) else { return };
    let copies = [client.try_clone(), upstream.try_clone(), client.try_clone(), upstream.try_clone()];
    let [Ok(from), Ok(to), Ok(kept), Ok(kept_upstream)] = copies else { return };
    lock(state).connections.extend([kept, kept_upstream]);
    let requests = Arc::clone(state);
    thread::spawn(move || pass_requests(&requests, from, to));
    let replies = Arc::clone(state);
    thread::spawn(move || pass_replies(&replies, upstream, client));
}

/// Delivers requests. Cuts the proxy before it delivers the marked one, so that its reply cannot pass.
fn pass_requests(state: &Mutex<State>, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    // The marker may be in two reads.
    let mut recent = Vec::new();
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        recent.extend_from_slice(&buffer[..count]);
        let mut locked = lock(state);
        let length = locked.marker.len();
        locked.is_cut |= length > 0 && recent.windows(length).any(|part| part == locked.marker);
        recent.drain(..recent.len().saturating_sub(length));
        drop(locked);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn pass_replies(state: &Mutex<State>, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let is_lost = lock(state).is_cut;
        if is_lost {
            continue;
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
