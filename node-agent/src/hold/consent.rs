//! Consent from this machine: `tidegate-agent confirm` puts a file into the state directory, which only those can write who
//! may stop the agent as well, and the agent takes it.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use model::primitives::quantity::Epoch;

const FILE: &str = "confirm";
const NEW_FILE: &str = "confirm.new";
/// The longest number, and the end of its line.
const BYTES_MAX: u64 = 21;

/// Puts consent to the state of an epoch into a state directory.
///
/// # Errors
/// When it cannot be written.
pub fn give(dir: &Path, epoch: Epoch) -> io::Result<()> {
    let mut file = File::create(dir.join(NEW_FILE))?;
    writeln!(file, "{epoch}")?;
    file.sync_all()?;
    fs::rename(dir.join(NEW_FILE), dir.join(FILE))
}

/// What is consented to, if anything that can be read.
#[must_use]
pub fn given(dir: &Path) -> Option<Epoch> {
    let mut text = String::new();
    File::open(dir.join(FILE)).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok().map(Epoch)
}

/// Takes consent back, or notes that it was used; says whether there was any.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(dir: &Path) -> io::Result<bool> {
    match fs::remove_file(dir.join(FILE)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
