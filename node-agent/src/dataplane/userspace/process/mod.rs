//! The backend in a process of its own, so that connections go on when the agent ends.
//!
//! ```text
//! agent ──RelayClient──[ STATE/relay/PID.socket ]── relay process: UserspaceBackend ── capture rules, listeners
//!   └─ may end, and another one finds the relay again
//! ```
//! The agent starts a relay process (`tidegate-agent relay`, the same program file) in its own network namespace when it
//! runs in userspace mode and finds none. The process has a session of its own; nothing ends it but its agent's word, the
//! loss of its machine, or whoever kills it. It goes on with what it was told last.
//!
//! A relay of another program file, or with another mark, is not talked to: a new one is started beside it, and only when
//! that has everything in its rules, the old one resigns. It touches no rule then, takes no new connection, and ends with
//! its last connection, or after half an hour.
//!
//! One relay per state directory and network namespace takes new connections; it holds the lock there. The directory is
//! the agent's user's alone, and both sides look at who is on the other one.

mod client;
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
    serve::{Orders, run},
    start::READY,
};
use self::{frames::greet, place::Place, wire::Intent};
use crate::{
    agent::Opener,
    dataplane::{self, KernelError},
};

/// The program file of this process, also when another one has taken its name.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where relay processes are, and how they are started.
#[derive(Debug, Clone)]
pub struct Relays {
    /// The state directory of the agent.
    pub state_dir: PathBuf,
    /// The program file to start: [`OWN_PROGRAM`], or another `tidegate-agent`.
    pub program: PathBuf,
    /// What the command line says of the log.
    pub log_arguments: Vec<OsString>,
}

impl Relays {
    /// Opens backends as [`dataplane::open`] does, with the relay of userspace mode in a process of its own.
    #[must_use]
    pub fn opener(self) -> Opener {
        Box::new(move |mode, options| match mode {
            ProxyMode::Userspace => {
                Ok(Box::new(RelayClient::open(self.clone(), options.masquerade_mark)?) as _)
            }
            ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs => dataplane::open(mode, options),
        })
    }
}

/// What [`end_all`] has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many processes.
    pub processes: u64,
    /// Kernel objects that they have removed.
    pub objects: u64,
}

/// Ends every relay process of a state directory with its connections, removes their rules, and what they left in the
/// directory. One that does not answer is killed.
///
/// # Errors
/// When the directory cannot be used.
pub fn end_all(state_dir: &Path) -> Result<Ended, KernelError> {
    let failed = |source| KernelError { action: "ending the relay processes".to_owned(), source };
    let place = Place::of(state_dir);
    let mut ended = Ended::default();
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

/// Ends a relay process; answers how many kernel objects it removed, or `None` when it was gone already.
fn end(place: &Place, pid: u32) -> io::Result<Option<u64>> {
    let farewell = match greet(place, pid, Intent::End) {
        Ok(None) => return Ok(None),
        Ok(Some((mut stream, _))) => frames::read::<wire::Farewell>(&mut stream, wire::GREETING_BYTES_MAX)
            // The connection ends with the process.
            .and_then(|farewell| frames::read::<wire::Farewell>(&mut stream, 0).map(|_| farewell)),
        Err(error) => Err(error),
    };
    match farewell {
        Ok(Some((wire::Farewell { objects, failure: None, .. }, _))) => Ok(Some(objects)),
        Ok(_) | Err(_) => {
            let Some(stream) = place.connect(pid)? else { return Ok(Some(0)) };
            // Its own word for who it is could be that of an earlier process.
            let pid = Pid::from_raw(place::peer_pid(&stream)?);
            tracing::warn!(%pid, "a relay process does not answer and is killed");
            kill(pid, Signal::SIGKILL)?;
            Ok(Some(0))
        }
    }
}
