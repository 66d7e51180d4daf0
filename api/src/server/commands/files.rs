//! Backups as files.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::Context;
use store::backup::{self, Backup};

/// Only the owner reads a file with every secret of a cluster.
const MODE: u32 = 0o600;

/// Writes a new file that is whole and durable, or not there.
pub(super) fn create(path: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    let written = write(file, lines).and_then(|()| {
        // The name of a new file is durable only once its directory is.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    });
    if written.is_err() {
        // It was made here a moment ago; what cannot be removed is told by the error that follows.
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

/// Reads a backup, if it is intact.
pub(super) fn read(path: &Path) -> anyhow::Result<Backup> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("{shown} cannot be opened"))?;
    backup::read(BufReader::new(file)).with_context(|| format!("{shown} is not taken"))
}
