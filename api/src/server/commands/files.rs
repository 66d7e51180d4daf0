//! Reader and writer of backup files.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::Context;
use store::backup::{self, Backup};

/// Mode of created backup files: only the owner can read and write them, because a backup contains every secret of
/// the cluster.
const MODE: u32 = 0o600;

/// Creates a backup file, which must not exist yet, with the given lines. On success the file is complete and
/// durable; if writing fails, it is removed.
pub(super) fn create(path: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    let written = write(file, lines).and_then(|()| {
        // The entry of a new file is durable only after its directory is synced.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    });
    if written.is_err() {
        // Best effort; the error below names the file.
        let _left = fs::remove_file(path);
    }
    written
}

fn write(file: File, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    for line in lines {
        file.write_all(line.as_bytes())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Reads a backup file and verifies its integrity.
pub(super) fn read(path: &Path) -> anyhow::Result<Backup> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("{shown} cannot be opened"))?;
    backup::read(BufReader::new(file)).with_context(|| format!("{shown} is not accepted"))
}
