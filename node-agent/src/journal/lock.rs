//! Lock of a state directory, so that only one agent uses it. The kernel releases the lock when the process
//! ends.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

const LOCK_FILE: &str = "lock";

/// Exclusive lock of a state directory, held until dropped.
#[derive(Debug)]
pub struct StateDirLock {
    /// Locked file. Closing it releases the lock.
    _file: Flock<File>,
}

/// Reason why the lock cannot be acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent holds the lock.
    #[error("a running agent (process {pid}) holds the state directory")]
    Held {
        /// Process ID of the agent that holds the lock, as written in the lock file.
        pid: String,
    },
    /// The lock file cannot be opened.
    #[error("cannot open the lock file of the state directory")]
    Io(#[from] io::Error),
}

impl StateDirLock {
    /// Acquires the lock of an existing state directory.
    ///
    /// # Errors
    /// Returns [`LockError`] if another agent holds the lock, or the lock file cannot be opened.
    pub fn acquire(dir: &Path) -> Result<Self, LockError> {
        let path = dir.join(LOCK_FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid)?;
                return Err(LockError::Held { pid: pid.trim().to_owned() });
            }
            Err((_, errno)) => return Err(LockError::Io(errno.into())),
        };
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(*lock, "{}", std::process::id())?;
        Ok(Self { _file: lock })
    }
}
