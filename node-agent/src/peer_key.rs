//! Private key of this node for BFD between nodes, saved in the state directory.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use announce::peer_keys::PeerIdentity;
use model::primitives::name::Name;
use tracing::warn;

/// File in the state directory with the key: 32 bytes (RFC 7748 §5).
const FILE: &str = "peer.key";
const NEW_FILE: &str = "peer.key.new";
const KEY_BYTES: usize = 32;
/// Permissions of the file: only the user of the agent may read the key.
const MODE: u32 = 0o600;

/// Reads the private key of this node from its state directory, or creates it. The caller must hold the lock of
/// the directory. Without a key, which is logged, BFD with other nodes uses the key of all nodes.
#[must_use]
pub fn open(state_dir: &Path, node: &Name) -> Option<PeerIdentity> {
    let secret = read(state_dir).and_then(|known| known.map_or_else(|| create(state_dir), Ok));
    match secret {
        Ok(secret) => Some(PeerIdentity::new(node.clone(), secret)),
        Err(error) => {
            warn!(%error, file = FILE, "no key for BFD with single nodes; the key of all nodes is used");
            None
        }
    }
}

/// Returns the saved key, or `None` if there is no file or its content is no key, as after a failed disk.
fn read(state_dir: &Path) -> io::Result<Option<[u8; KEY_BYTES]>> {
    let mut file = match File::open(state_dir.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if metadata.permissions().mode() & 0o777 != MODE {
        // Others may have read a key with wider permissions.
        warn!(file = FILE, "the file had other permissions than 0600; a new key is created");
        return Ok(None);
    }
    let mut key = [0; KEY_BYTES];
    if metadata.len() != KEY_BYTES as u64 || file.read_exact(&mut key).is_err() || key == [0; KEY_BYTES] {
        warn!(file = FILE, "the file contains no key; a new key is created");
        return Ok(None);
    }
    Ok(Some(key))
}

/// Creates and saves a key. The file is replaced atomically, so that after a crash it is absent or complete.
fn create(state_dir: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let new = state_dir.join(NEW_FILE);
    // A file left by a crash may have another mode.
    remove_if_there(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    file.write_all(&key)?;
    file.sync_all()?;
    std::fs::rename(&new, state_dir.join(FILE))?;
    File::open(state_dir)?.sync_all()?;
    Ok(key)
}

/// Removes the private key from a state directory. Returns true if there was one.
///
/// # Errors
/// Returns an I/O error if a file cannot be removed.
pub fn remove(state_dir: &Path) -> io::Result<bool> {
    let mut found = false;
    for name in [FILE, NEW_FILE] {
        found |= remove_if_there(&state_dir.join(name))?;
    }
    Ok(found)
}

fn remove_if_there(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_key_is_created_once_and_only_its_user_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, node) = (dir.path().join(FILE), Name::parse("n1").unwrap());
        let public = || open(dir.path(), &node).unwrap().public_key();
        let first = public();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(public(), first, "after a restart");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let second = public();
        assert_ne!(second, first, "others could read the key");
        for damaged in [&[7; 31][..], &[7; 33], &[0; 32], b""] {
            fs::write(&path, damaged).unwrap();
            let fresh = public();
            assert_ne!(fresh, second);
            assert_eq!((public(), fs::read(&path).unwrap().len()), (fresh, KEY_BYTES));
        }
    }

    #[test]
    fn without_a_directory_there_is_no_key() {
        let node = Name::parse("n1").unwrap();
        assert!(open(Path::new("/proc/none"), &node).is_none());
    }
}
