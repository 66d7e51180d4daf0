//! userspace backend in a separate process, so that connections survive the end of the agent.
//!
//! ```text
//! agent ──RelayClient──[ STATE/relay/PID.socket ]── relay process: UserspaceBackend ── capture rules, listeners
//!   └─ may end; the next agent finds the relay again
//! ```
//! In userspace mode the agent starts a relay process (`tidegate-agent relay`, the same executable) in its
//! own network namespace if none is running. The process runs in a session of its own (`setsid`). The
//! process ends only on request of an agent, with the machine, or when killed. Without an agent it continues
//! with its last configuration.
//!
//! A relay of a different executable, or with a different packet mark, is not reused. A new relay is started
//! in addition, and the old one resigns only after the new one has programmed everything. From then on the
//! old relay touches no rule and accepts no new connection. The old relay ends with its last connection, or
//! after half an hour.
//!
//! One relay per state directory and network namespace accepts new connections; it holds a lock in the
//! directory. The directory is accessible only to the agent's user, and both sides verify the user of the
//! peer.

mod client;
mod find;
mod frames;
mod link;
mod place;
mod serve;
mod start;
pub mod wire;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use model::kinds::node::ProxyMode;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub use self::{
    client::RelayClient,
    find::{relays_of_namespace, remaining},
    serve::{RelayOrders, run},
    start::READY,
};
use self::{frames::greet, place::RelayDirectory, wire::Intent};
use crate::{KernelError, Opener, open};

/// Path of this process's executable, which stays valid when the file is replaced.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Directory of the relay processes, and the parameters to start one.
#[derive(Debug, Clone)]
pub struct Relays {
    /// State directory of the agent, which contains the relay directory.
    pub state_dir: PathBuf,
    /// Executable to start: [`OWN_PROGRAM`], or a different `tidegate-agent`.
    pub program: PathBuf,
    /// Command line arguments by which a relay process gets the log settings of the agent.
    pub log_arguments: Vec<OsString>,
}

impl Relays {
    /// Returns a function that opens backends. Unlike [`crate::open`], the function runs the relay of
    /// userspace mode in a separate process.
    #[must_use]
    pub fn opener(self) -> Opener {
        Box::new(move |mode, options| {
            if mode == ProxyMode::Userspace {
                return Ok(Box::new(RelayClient::open(self.clone(), options.masquerade_mark)?) as _);
            }
            open(mode, options)
        })
    }
}

/// Numbers of relay processes that [`end_all`] ended and of kernel objects that they removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedRelays {
    /// Number of ended relay processes.
    pub processes: u64,
    /// Number of kernel objects (rules, set elements, chains, tables) that the relay processes removed when they
    /// ended.
    pub objects: u64,
}

/// Ends every relay process of a state directory with its connections, and removes their rules and files. A
/// process that does not respond is killed.
///
/// # Errors
/// Returns an error if the directory cannot be used.
pub fn end_all(state_dir: &Path) -> Result<EndedRelays, KernelError> {
    let failed = |source| KernelError { action: "ending the relay processes".to_owned(), source };
    let place = RelayDirectory::of(state_dir);
    let mut ended = EndedRelays::default();
    for pid in place.pids().map_err(failed)? {
        if let Some(objects) = end(&place, pid).map_err(failed)? {
            ended.processes += 1;
            ended.objects += objects;
        }
    }
    if state_dir.exists() {
        place.remove().map_err(failed)?;
    }
    Ok(ended)
}

/// Ends a relay process. Returns the number of kernel objects that it removed, or `None` if it was already
/// gone.
fn end(place: &RelayDirectory, pid: u32) -> io::Result<Option<u64>> {
    let farewell = match greet(place, pid, Intent::End) {
        Ok(None) => return Ok(None),
        Ok(Some((mut stream, _))) => frames::read::<wire::Farewell>(&mut stream, wire::GREETING_BYTES_MAX)
            // The connection closes when the process ends.
            .and_then(|farewell| frames::read::<wire::Farewell>(&mut stream, 0).map(|_| farewell)),
        Err(error) => Err(error),
    };
    match farewell {
        Ok(Some((wire::Farewell { objects, failure: None, .. }, _))) => Ok(Some(objects)),
        Ok(_) | Err(_) => {
            let Some(stream) = place.connect(pid)? else { return Ok(Some(0)) };
            // The process id comes from the socket: the one in the file name may belong to an earlier
            // process.
            let pid = Pid::from_raw(place::peer_pid(&stream)?);
            tracing::warn!(%pid, "a relay process does not respond and is killed");
            kill(pid, Signal::SIGKILL)?;
            Ok(Some(0))
        }
    }
}
