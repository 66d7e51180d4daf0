//! Local confirmation of a state that the state guard holds: `tidegate-agent confirm` writes a file into the
//! state directory, and the agent reads the file. Writing it requires the same permission as stopping the
//! agent.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use model::primitives::quantity::Epoch;

const FILE: &str = "confirm";
const NEW_FILE: &str = "confirm.new";
/// Maximum number of bytes in the confirmation file: the largest epoch and a line feed.
const BYTES_MAX: u64 = 21;

/// Writes the file that confirms the held state of this epoch.
///
/// # Errors
/// Returns an I/O error if the file cannot be written.
pub fn give(dir: &Path, epoch: Epoch) -> io::Result<()> {
    let mut file = File::create(dir.join(NEW_FILE))?;
    writeln!(file, "{epoch}")?;
    file.sync_all()?;
    fs::rename(dir.join(NEW_FILE), dir.join(FILE))
}

/// Returns the confirmed epoch, or `None` if there is no readable confirmation file.
#[must_use]
pub fn given(dir: &Path) -> Option<Epoch> {
    let mut text = String::new();
    File::open(dir.join(FILE)).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok().map(Epoch)
}

/// Removes the confirmation file. Returns true if it existed.
///
/// # Errors
/// Returns an I/O error if the file cannot be removed.
pub fn remove(dir: &Path) -> io::Result<bool> {
    match fs::remove_file(dir.join(FILE)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
