//! File with secrets that a program keeps for restarts.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use serde::{Serialize, de::DeserializeOwned};

/// Mode of the file: only the user of the program may read the secrets.
const FILE_MODE: u32 = 0o600;

/// File with secrets, which only its owner can read. It is complete or absent.
#[derive(Debug, Clone)]
pub struct PrivateFile {
    /// Directory of the file, which exists.
    pub directory: PathBuf,
    /// Name of the file.
    pub file: &'static str,
}

impl PrivateFile {
    /// Reads the contents. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or decoded.
    pub fn load<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match fs::read(self.directory.join(self.file)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. The previous file remains.
    pub fn save<T: Serialize>(&self, contents: &T) -> io::Result<()> {
        let new = self.directory.join(format!("{}.new", self.file));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
        file.write_all(&serde_json::to_vec(contents)?)?;
        file.sync_all()?;
        fs::rename(new, self.directory.join(self.file))
    }
}
