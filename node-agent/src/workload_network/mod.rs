//! Workload network of the node: starts its thread and its socket, and derives its input from the state of the cluster.

pub mod command;
pub mod report;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use model::primitives::name::Name;
use network::{
    attach::gate::AttachGate,
    desired::DesiredNetwork,
    follow,
    run::{self, NetworkConfig, NetworkHandle},
    serve,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle as TaskHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::state::{State, workload_networks::desired};

/// Name of the socket for attachments in the state directory.
pub const SOCKET_FILE: &str = "network.sock";

/// Running thread and socket of the workload network.
pub struct WorkloadNetwork {
    /// Handle of the thread.
    pub handle: NetworkHandle,
    /// Sender of the desired state, used by the control loop.
    pub desired: watch::Sender<Option<DesiredNetwork>>,
    thread: JoinHandle<()>,
    socket: Option<TaskHandle<io::Result<()>>>,
    socket_path: PathBuf,
}

impl WorkloadNetwork {
    /// Starts the thread and the socket in the network namespace of the calling thread. Must be called inside a runtime.
    /// Without the socket, the routes are still kept. Each attachment passes `gate` before its interface exists.
    ///
    /// # Errors
    /// Returns an error if the journal of attachments or the kernel cannot be used.
    pub fn start(
        own: &Name,
        state_dir: &Path,
        state: &State,
        gate: AttachGate,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let boot = network::cleanup::boot()?;
        let config = NetworkConfig { own: own.clone(), state_dir: state_dir.to_owned(), boot };
        let (sender, receiver) = watch::channel(state.position().map(|_| desired(state)));
        let events = Arc::new(Notify::new());
        follow::start(Arc::clone(&events))?;
        let (handle, thread) = run::start_behind(&config, receiver, events, gate)?;
        let path = state_dir.join(SOCKET_FILE);
        let socket = match serve::listen(&path) {
            Ok(listener) => Some(tokio::spawn(serve::run(listener, handle.clone(), stop))),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot listen for attachments of workloads");
                None
            }
        };
        Ok(Self { handle, desired: sender, thread, socket, socket_path: path })
    }

    /// Waits until the socket and the thread have ended, after `stop` was canceled. The kernel stays as it is.
    pub async fn join(self) {
        let Self { handle, desired, thread, socket, socket_path } = self;
        drop((handle, desired));
        if let Some(socket) = socket {
            if let Ok(Err(error)) = socket.await {
                warn!(%error, "the socket for attachments has failed");
            }
            // A file that stays is replaced by the next process.
            let _stays = std::fs::remove_file(socket_path);
        }
        // The panic message was already printed by the thread.
        let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}
