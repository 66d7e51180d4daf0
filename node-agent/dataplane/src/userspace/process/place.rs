//! Directory `relay` in the state directory, with the files of the relay processes. Each process has a
//! socket named after its process id. Each network namespace has a lock, held by the relay that accepts new
//! connections.
//!
//! The socket of an ended process is removed by the next client that tries to connect.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::socket::{getsockopt, sockopt},
    unistd::geteuid,
};

const DIRECTORY: &str = "relay";
const SOCKET_SUFFIX: &str = ".socket";
const LOCK_PREFIX: &str = "lock-";
const DIRECTORY_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

/// Path of the directory that contains the sockets and locks of the relay processes of one state directory.
#[derive(Debug, Clone)]
pub(super) struct RelayDirectory {
    path: PathBuf,
}

impl RelayDirectory {
    pub(super) fn of(state_dir: &Path) -> Self {
        Self { path: state_dir.join(DIRECTORY) }
    }

    /// Creates the directory with access for the owner only.
    pub(super) fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.path)?;
        let is_ours = found.uid() == geteuid().as_raw();
        if found.is_dir() && is_ours && found.mode() & 0o077 == 0 {
            return Ok(());
        }
        let shown = self.path.display();
        let message = format!("{shown} must be a directory of the agent's own user with mode 0700");
        Err(io::Error::new(ErrorKind::PermissionDenied, message))
    }

    /// Creates the socket on which a relay process accepts connections of agents.
    pub(super) fn listen(&self, pid: u32) -> io::Result<UnixListener> {
        let directory = self.open()?;
        remove_if_there(&self.socket(pid))?;
        let listener = UnixListener::bind(short(&directory, pid))?;
        fs::set_permissions(self.socket(pid), Permissions::from_mode(SOCKET_MODE))?;
        Ok(listener)
    }

    /// Connects to a relay process; `None` if it is gone.
    pub(super) fn connect(&self, pid: u32) -> io::Result<Option<UnixStream>> {
        let stream = match UnixStream::connect(short(&self.open()?, pid)) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                remove_if_there(&self.socket(pid))?;
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        check_peer(&stream)?;
        Ok(Some(stream))
    }

    /// Returns the ids of the processes that have a socket in the directory; empty if the directory does not
    /// exist.
    pub(super) fn pids(&self) -> io::Result<BTreeSet<u32>> {
        match self.check() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        }
        let mut pids = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.strip_suffix(SOCKET_SUFFIX)?.parse::<u32>().ok());
            pids.extend(pid);
        }
        Ok(pids)
    }

    /// Acquires the lock of a network namespace. If another relay holds the lock, waits for it if
    /// `is_patient` is set and returns `None` otherwise.
    pub(super) fn lock(&self, namespace: u64, is_patient: bool) -> io::Result<Option<Flock<File>>> {
        let path = self.path.join(format!("{LOCK_PREFIX}{namespace}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let how = if is_patient { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
        match Flock::lock(file, how) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno.into()),
        }
    }

    /// Removes the socket of a relay process, so that agents no longer find the process.
    pub(super) fn leave(&self, pid: u32) -> io::Result<()> {
        remove_if_there(&self.socket(pid))
    }

    /// Removes the directory with the sockets and locks in it.
    pub(super) fn remove(&self) -> io::Result<()> {
        for pid in self.pids()? {
            self.leave(pid)?;
        }
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(LOCK_PREFIX)) {
                remove_if_there(&entry.path())?;
            }
        }
        fs::remove_dir(&self.path)
    }

    fn open(&self) -> io::Result<File> {
        self.check()?;
        File::open(&self.path)
    }

    fn socket(&self, pid: u32) -> PathBuf {
        self.path.join(format!("{pid}{SOCKET_SUFFIX}"))
    }
}

/// Returns a path of a socket through `/proc/self/fd`. This path fits into a socket address (108 bytes) even
/// if the path of the directory is longer.
fn short(directory: &File, pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{pid}{SOCKET_SUFFIX}", directory.as_raw_fd()))
}

/// Returns an error unless the peer process runs as the same user.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = getsockopt(stream, sockopt::PeerCredentials)?;
    if peer.uid() == geteuid().as_raw() {
        return Ok(());
    }
    let message = format!("the peer runs as user {}", peer.uid());
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}

/// Returns the process id of the peer.
pub(super) fn peer_pid(stream: &UnixStream) -> io::Result<i32> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.pid())
}

/// Returns the network namespace of the calling thread, as the inode number of `/proc/thread-self/ns/net`.
pub(super) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Returns an identifier of an executable file that does not depend on the file's name and differs between
/// files.
pub(super) fn build(program: &Path) -> io::Result<String> {
    let file = fs::metadata(program)?;
    let version = env!("CARGO_PKG_VERSION");
    let (device, inode) = (file.dev(), file.ino());
    Ok(format!("{version} {device:x}:{inode:x} {}.{:09} {}", file.mtime(), file.mtime_nsec(), file.size()))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
