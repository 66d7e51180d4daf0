//! Reader of backups, which verifies their integrity.

use std::{
    collections::BTreeMap,
    io::{BufRead, Read},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{
    Backup, BackupError, FILE_BYTES_MAX, LINE_BYTES_MAX, VERSION,
    wire::{self, AnyBackupHeader, BackupHeader, END, FORMAT, Line},
};
use crate::{Contents, error::StoreError};

/// Reads a complete backup file. Returns the backup only if every byte is intact.
///
/// # Errors
/// Returns an error with the cause and the remedy.
pub fn read(file: impl BufRead) -> Result<Backup, BackupError> {
    let mut file = file.take(FILE_BYTES_MAX);
    let mut digest = Sha256::new();
    let first = next_line(&mut file)?.ok_or(BackupError::NotABackup)?;
    digest.update(&first);
    let BackupHeader { format: _, version: _, made_at, position, history_floor } = head(&first)?;
    let mut gathering = Gathering::default();
    let mut count = 1;
    loop {
        let Some(line) = next_line(&mut file)? else {
            return Err(BackupError::Broken("the last line is missing".to_owned()));
        };
        if line.starts_with(END) {
            // Compared as a whole, so that changes in the last line itself are detected too.
            let expected = wire::end(count, &digest.finalize());
            if line != expected.as_bytes() {
                return Err(BackupError::Broken("the checksum does not match".to_owned()));
            }
            break;
        }
        digest.update(&line);
        count += 1;
        gathering.add(&line, count);
    }
    if next_line(&mut file)?.is_some() {
        return Err(BackupError::Broken("there is data after the last line".to_owned()));
    }
    let Gathering { objects, history, vault, failure } = gathering;
    if let Some(failure) = failure {
        return Err(BackupError::Unknown(failure));
    }
    let contents = Contents { revision: position.revision, objects, history, history_floor, vault };
    contents.check().map_err(|error| BackupError::Broken(error.to_string()))?;
    Ok(Backup { made_at, position, contents })
}

/// Contents of the backup lines that have been read so far.
#[derive(Default)]
struct Gathering {
    objects: Vec<Arc<model::kinds::resource::Object>>,
    history: Vec<model::cluster::history::RevisionEntry>,
    vault: BTreeMap<String, Vec<u8>>,
    /// Error of the first line that cannot be decoded. Returned only if the checksum is correct; otherwise
    /// the file is reported as damaged.
    failure: Option<StoreError>,
}

impl Gathering {
    fn add(&mut self, line: &[u8], number: u64) {
        if self.failure.is_some() {
            return;
        }
        match wire::parse(line) {
            Ok(Line::Object(object)) => self.objects.push(Arc::from(object)),
            Ok(Line::History(entry)) => self.history.push(entry),
            Ok(Line::Vault(key, body)) => {
                self.vault.insert(key, body);
            }
            Err(StoreError::Unreadable { key, reason }) => {
                let reason = format!("line {number}: {reason}");
                self.failure = Some(StoreError::Unreadable { key, reason });
            }
            Err(error @ StoreError::Unavailable { .. }) => self.failure = Some(error),
        }
    }
}

fn head(line: &[u8]) -> Result<BackupHeader, BackupError> {
    let AnyBackupHeader { format, version } =
        serde_json::from_slice(line).map_err(|_| BackupError::NotABackup)?;
    if format != FORMAT || version == 0 {
        return Err(BackupError::NotABackup);
    }
    if version > VERSION {
        return Err(BackupError::Newer { found: version });
    }
    serde_json::from_slice(line).map_err(|_| BackupError::NotABackup)
}

/// Returns the next line with its line end, or `None` at the end of the file.
fn next_line(file: &mut impl BufRead) -> Result<Option<Vec<u8>>, BackupError> {
    let mut line = Vec::new();
    let limit = LINE_BYTES_MAX as u64;
    file.by_ref().take(limit).read_until(b'\n', &mut line).map_err(BackupError::Unreadable)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() == LINE_BYTES_MAX => {
            Err(BackupError::TooLarge { unit: "bytes in one line", limit })
        }
        Some(_) => Err(BackupError::Broken("the last line is truncated".to_owned())),
    }
}
