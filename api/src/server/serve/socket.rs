//! Unix socket for users of this machine. The permissions of the socket decide who has access: its owner, its
//! group, and root. Every client has all permissions, unless it sends a token.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream as StdStream,
    },
    path::Path,
};

use listenfd::ListenFd;
use tokio::net::{UnixListener, UnixSocket};

use super::BACKLOG;

/// Mode of the socket: access for the owner and the group.
const MODE: u32 = 0o660;

/// Creates the socket at a path and listens on it. A socket that an earlier process has left there is replaced.
///
/// # Errors
/// Returns an error if another process listens on the socket, if the path is something else, or if the directory is
/// not writable.
pub fn listen_socket(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
        }
        Ok(_) if StdStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on the socket"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // A client can connect only after `listen`, when the mode is set.
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

/// Returns the Unix socket that the service manager has opened for this process (`tidegate-api.socket`, see
/// `sd_listen_fds(3)`), if any.
///
/// # Errors
/// Returns an error if it has passed something else, or more than one socket.
pub fn passed_socket() -> io::Result<Option<UnixListener>> {
    let mut passed = ListenFd::from_env();
    if passed.len() > 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than one socket"));
    }
    let Some(socket) = passed.take_unix_listener(0)? else { return Ok(None) };
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_used_one_and_a_file_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = listen_socket(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(listen_socket(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        drop(listen_socket(&path).unwrap());
        let file = directory.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert_eq!(listen_socket(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
}
