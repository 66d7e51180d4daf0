//! Handover of the listening sockets to a new process of the same gateway, so that an update of the program refuses no
//! connection and fails no request.
//!
//! The new process asks for the sockets over a socket in the state directory, applies a state that is at least as new
//! as that of the old one, and says that it is ready. Both accept connections for a moment. Then the old process accepts
//! no more, and ends when its requests have ended.
//!
//! ```text
//! old process                                  new process
//!  ◀─────────────── version ────────────────────
//!  ── each socket (SCM_RIGHTS, unix(7)) ───────▶
//!  ── end of the list, revision of the state ──▶   opens its state, accepts connections
//!  ◀─────────────── ready ──────────────────────
//!  ── end of the connection ───────────────────▶   keeps the state on disk
//! ```

mod message;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use model::primitives::quantity::Revision;
use rustix::{
    net::sockopt::socket_peercred,
    process::{Pid, geteuid},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixListener},
    sync::watch,
    time::timeout,
};

use crate::state::SharedState;

/// Name of the socket in the state directory.
const FILE: &str = "handover.sock";
/// Maximum time for one message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for which a new process waits for a state as new as that of the old one. A control server may be away.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from the connection of a new process to its readiness.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Descriptors of the listening sockets that are open, by their addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenSockets(Arc<Mutex<BTreeMap<SocketAddr, Arc<OwnedFd>>>>);

impl OpenSockets {
    pub(crate) fn insert(&self, address: SocketAddr, socket: &TcpListener) {
        match socket.as_fd().try_clone_to_owned() {
            Ok(copy) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address, Arc::new(copy));
            }
            Err(error) => tracing::warn!(%address, %error, "a socket cannot be handed to a new process"),
        }
    }

    pub(crate) fn remove(&self, address: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    fn all(&self) -> Vec<Arc<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Listening sockets of the old process, by their addresses.
pub(crate) type InheritedSockets = BTreeMap<SocketAddr, std::net::TcpListener>;

/// Old process that has handed its sockets over, and serves until this one is ready.
#[derive(Debug)]
pub(crate) struct Predecessor {
    connection: UnixStream,
    /// Revision of its state.
    revision: Revision,
}

/// New process that is ready.
#[derive(Debug)]
pub(crate) struct Successor {
    /// Identifier of the process.
    pub(crate) pid: Pid,
    connection: tokio::net::UnixStream,
}

impl Successor {
    /// Tells the new process that this one keeps the state on disk no longer.
    pub(crate) fn release(self) {
        drop(self.connection);
    }
}

/// Asks the process that uses a state directory for its listening sockets. Returns `None` if there is no such process.
///
/// # Errors
/// Returns an error if the process does not hand over its sockets. It then goes on as before.
pub(crate) fn take(directory: &Path) -> io::Result<Option<(Predecessor, InheritedSockets)>> {
    let connection = match UnixStream::connect(directory.join(FILE)) {
        Ok(connection) => connection,
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    connection.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    connection.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
    message::send_version(&connection)?;
    let (sockets, revision) = message::receive_sockets(&connection)?;
    Ok(Some((Predecessor { connection, revision }, sockets)))
}

impl Predecessor {
    /// Waits until the sockets are open for a state that is new enough, and until the old process accepts no more.
    ///
    /// # Errors
    /// Returns an error if the old process does not wait any longer.
    pub(crate) async fn replace(self, opened: watch::Receiver<Option<Revision>>) -> io::Result<()> {
        self.connection.set_nonblocking(true)?;
        let mut connection = tokio::net::UnixStream::from_std(self.connection)?;
        tokio::select! {
            () = open_at(self.revision, opened) => {}
            received = connection.read_u8() => {
                return Err(received.err().unwrap_or_else(|| io::ErrorKind::InvalidData.into()));
            }
        }
        connection.write_u8(message::READY).await?;
        match timeout(MESSAGE_TIMEOUT, connection.read_u8()).await? {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Waits until the sockets are open, at a revision if it arrives in time.
async fn open_at(revision: Revision, mut opened: watch::Receiver<Option<Revision>>) {
    let is_new_enough = |opened: &Option<Revision>| *opened >= Some(revision);
    if timeout(STATE_TIMEOUT, opened.wait_for(is_new_enough)).await.is_err() {
        tracing::warn!("no state as new as that of the old process; starting with the state on disk");
    }
    // Without any state there is nothing to serve.
    if opened.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns true if another process offers its sockets in a directory.
pub(crate) fn is_offered(directory: &Path) -> bool {
    UnixStream::connect(directory.join(FILE)).is_ok()
}

/// Hands the sockets to new processes, until one of them is ready.
///
/// # Errors
/// Returns an error if the socket in the directory cannot be used.
pub(crate) async fn offer(
    directory: &Path,
    sockets: &OpenSockets,
    states: &watch::Receiver<SharedState>,
) -> io::Result<Successor> {
    let path = directory.join(FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    loop {
        let (connection, _) = listener.accept().await?;
        let revision = states.borrow().as_ref().map_or(Revision(0), |state| state.snapshot().revision());
        match timeout(READY_TIMEOUT, hand_over(connection, sockets.all(), revision)).await {
            Ok(Ok(successor)) => return Ok(successor),
            Ok(Err(error)) => tracing::warn!(%error, "a new process did not take over; this one goes on"),
            Err(_) => tracing::warn!("a new process is not ready in time; this one goes on"),
        }
    }
}

/// Hands the sockets to one process, and waits until it is ready.
async fn hand_over(
    connection: tokio::net::UnixStream,
    sockets: Vec<Arc<OwnedFd>>,
    revision: Revision,
) -> io::Result<Successor> {
    let peer = socket_peercred(&connection)?;
    if peer.uid != geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    let connection = connection.into_std()?;
    let send = move || {
        connection.set_nonblocking(false)?;
        connection.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        connection.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        message::receive_version(&connection)?;
        message::send_sockets(&connection, &sockets, revision)?;
        connection.set_nonblocking(true)?;
        Ok::<_, io::Error>(connection)
    };
    let connection = tokio::task::spawn_blocking(send).await.map_err(io::Error::other)??;
    let mut connection = tokio::net::UnixStream::from_std(connection)?;
    match connection.read_u8().await? {
        message::READY => Ok(Successor { pid: peer.pid, connection }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
