//! Database file and its lock. Only one process at a time can open a store; files of other programs are rejected.
//!
//! SQLite's own locks let several processes write in turn. A second process would decide
//! its writes on an outdated state, so it cannot open the store. The lock is a kernel
//! lock (`flock` on `PATH.lock`), which ends with the process in any case. The lock file itself stays,
//! because removing it would race with the next process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::OpenError;

/// First bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Mode of a created file: accessible only to the control server's user, because it contains passwords of BGP
/// peers.
const MODE: u32 = 0o600;
/// Maximum number of bytes read from a lock file, which contains a process id.
const HOLDER_BYTES_MAX: u64 = 32;

/// Database file locked for exclusive use by this process.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    _lock: File,
}

impl StoreFile {
    /// Locks the file, and creates it empty if it does not exist. Blocking I/O.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let resolved = resolve(path)
            .map_err(|cause| OpenError::Directory { path: path.to_owned(), cause: Arc::new(cause) })?;
        let lock = lock(&resolved)?;
        create(&resolved).map_err(|cause| failed(&resolved, "create the file", cause))?;
        if !is_sqlite(&resolved).map_err(|cause| failed(&resolved, "read the file", cause))? {
            return Err(OpenError::NotOurs { path: resolved });
        }
        Ok(Self { path: resolved, _lock: lock })
    }

    /// Returns the absolute path of the file, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// State of the file at a path.
#[derive(Debug)]
pub(super) enum FileState {
    /// No file exists.
    Nothing,
    /// Another process has locked the file.
    Locked {
        /// Description of the other process, as far as known.
        holder: String,
    },
    /// A database or an empty file exists at this absolute path.
    File(PathBuf),
}

/// Inspects a path without creating anything. The result may be outdated immediately.
pub(super) fn inspect(path: &Path) -> Result<FileState, OpenError> {
    let resolved = resolve(path)
        .map_err(|cause| OpenError::Directory { path: path.to_owned(), cause: Arc::new(cause) })?;
    if !resolved.exists() {
        return Ok(FileState::Nothing);
    }
    // Opened only, so that the inspection does not create a lock file.
    if let Ok(mut lock) = File::open(lock_path(&resolved))
        && matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
    {
        return Ok(FileState::Locked { holder: holder(&mut lock) });
    }
    if !is_sqlite(&resolved).map_err(|cause| failed(&resolved, "read the file", cause))? {
        return Err(OpenError::NotOurs { path: resolved });
    }
    Ok(FileState::File(resolved))
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Returns a canonical path, so that all names of a file share one lock.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(existing) = fs::canonicalize(path) {
        return Ok(existing);
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::canonicalize(directory)?.join(name))
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(MODE);
    let opened = options.open(lock_path(path));
    let mut file = opened.map_err(|cause| failed(path, "create its lock file", cause))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::InUse { path: path.to_owned(), holder: holder(&mut file) });
        }
        Err(TryLockError::Error(cause)) => return Err(failed(path, "lock it", cause)),
    }
    // The process id is only for the error message of another process; the lock does not depend on it.
    let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    noted.map_err(|cause| failed(path, "write its lock file", cause))?;
    Ok(file)
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    match read.ok().and_then(|_| text.parse::<u32>().ok()) {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

fn create(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        // The name of a new file is durable only after syncing its directory.
        Ok(_) => File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns true for SQLite files and empty files, which SQLite opens as a database without tables.
fn is_sqlite(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

fn failed(path: &Path, action: &'static str, cause: io::Error) -> OpenError {
    OpenError::Unavailable { path: path.to_owned(), action, cause: Arc::new(cause) }
}
