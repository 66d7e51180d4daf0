//! One agent per state directory, held by a lock that the kernel drops with the process.

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

/// Holds a state directory.
#[derive(Debug)]
pub struct StateDirLock {
    /// Only held: the kernel frees the lock when the file is closed.
    _file: Flock<File>,
}

/// Why a state directory cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent holds it.
    #[error("a running agent (process {pid}) holds the state directory")]
    Held {
        /// What the holder wrote into the lock file.
        pid: String,
    },
    /// The lock file cannot be made.
    #[error("the lock file of the state directory cannot be opened")]
    Io(#[from] io::Error),
}

impl StateDirLock {
    /// Takes the lock of an existing directory, or says who holds it.
    ///
    /// # Errors
    /// When it is held, or the lock file cannot be opened.
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
