//! The database file and the lock beside it: one process at a time, and never somebody else's file.
//!
//! SQLite's own locks let several processes write in turns. Here a second writer is a mistake (its decisions would rest
//! on a state it does not follow), so it is refused at the door. The lock is the kernel's (`flock` on `PATH.lock`): it
//! ends with the process, however that ends. The lock file itself stays, because removing it would race with the next.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::OpenError;

/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Only the user that runs the control server reads the state: it will hold passwords of BGP peers.
const MODE: u32 = 0o600;
/// Bytes of a lock file that are worth reading: a process id.
const HOLDER_BYTES_MAX: u64 = 32;

/// A database file that this process alone may write, as long as this value lives.
#[derive(Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    _lock: File,
}

impl StoreFile {
    /// Locks the file, and makes it, empty, if it does not exist. Blocks on the disk.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let resolved = resolve(path)
            .map_err(|cause| OpenError::Directory { path: path.to_owned(), cause: Arc::new(cause) })?;
        let lock = lock(&resolved)?;
        create(&resolved).map_err(|cause| failed(&resolved, "make the file", cause))?;
        if !is_sqlite(&resolved).map_err(|cause| failed(&resolved, "read the file", cause))? {
            return Err(OpenError::NotOurs { path: resolved });
        }
        Ok(Self { path: resolved, _lock: lock })
    }

    /// The file, absolute and without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// What is found at a path.
#[derive(Debug)]
pub(super) enum Found {
    /// No file.
    Nothing,
    /// A file that another process has open.
    Locked {
        /// Who, as far as is known.
        holder: String,
    },
    /// A database, or an empty file; absolute.
    File(PathBuf),
}

/// Looks at a path, without making anything. Who opens it a moment later may find it changed.
pub(super) fn look(path: &Path) -> Result<Found, OpenError> {
    let resolved = resolve(path)
        .map_err(|cause| OpenError::Directory { path: path.to_owned(), cause: Arc::new(cause) })?;
    if !resolved.exists() {
        return Ok(Found::Nothing);
    }
    // Opened only: a lock is not made by looking for it.
    if let Ok(mut lock) = File::open(lock_path(&resolved))
        && matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
    {
        return Ok(Found::Locked { holder: holder(&mut lock) });
    }
    if !is_sqlite(&resolved).map_err(|cause| failed(&resolved, "read the file", cause))? {
        return Err(OpenError::NotOurs { path: resolved });
    }
    Ok(Found::File(resolved))
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Gives every name of one file the same form, so that all of them meet at the same lock.
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
    let mut file = opened.map_err(|cause| failed(path, "make the lock file beside it", cause))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::InUse { path: path.to_owned(), holder: holder(&mut file) });
        }
        Err(TryLockError::Error(cause)) => return Err(failed(path, "lock it", cause)),
    }
    // The number is only for the message of whoever comes second; the lock holds without it.
    let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    noted.map_err(|cause| failed(path, "write the lock file beside it", cause))?;
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
        // The name of a new file is durable only once its directory is.
        Ok(_) => File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// An empty file counts: SQLite takes it as a database without tables.
fn is_sqlite(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == MAGIC)
}

fn failed(path: &Path, action: &'static str, cause: io::Error) -> OpenError {
    OpenError::Unavailable { path: path.to_owned(), action, cause: Arc::new(cause) }
}
