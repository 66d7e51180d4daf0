//! Journal of the last good state on disk, so that rules are correct at startup before the control server can
//! be reached.
//!
//! A write-ahead journal: changes are written before the kernel is programmed, so that a restarted agent has
//! every Service that the kernel has. Durability: a rewrite is synced before it replaces the file; appends
//! are synced one second after the last one, or every 30 seconds while they continue. A power failure may
//! lose the unsynced tail, but then the kernel's rules are lost as well: the agent programs the earlier
//! state, and the control server sends the missing changes. A process crash loses nothing.
//!
//! Invariant: the work for a small change does not grow with the number of Services. The file is rewritten on
//! a separate thread, and only after its size has doubled.

pub mod lock;
pub mod wire;

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use model::primitives::{name::Name, quantity::Position};
use tracing::{info, warn};

use self::{lock::StateDirLock, wire::Unreadable};
use crate::{
    feed::LINE_BYTES_MAX,
    state::{ChangedObjects, State},
};

/// Name of the journal file in the state directory.
pub const JOURNAL_FILE: &str = "state.ndjson";
const REWRITE_FILE: &str = "state.ndjson.new";
const DAMAGED_FILE: &str = "state.ndjson.damaged";
/// Permissions of the journal file: only its owner may read the keys in it.
const FILE_MODE: u32 = 0o600;

/// Number of bytes by which the journal file may exceed the limit given by [`GROWTH_FACTOR`] before it is
/// rewritten, so that a small file is not rewritten often.
const SLACK_BYTES: u64 = 1 << 20;
/// Growth factor of the journal file. The file is rewritten when it exceeds this multiple of its size after
/// the last rewrite by more than [`SLACK_BYTES`].
const GROWTH_FACTOR: u64 = 2;
/// Maximum number of bytes that are buffered during a rewrite. Beyond this limit the agent waits for the
/// rewrite.
const TAIL_BYTES_MAX: usize = 64 << 20;
/// Time without further appends after which appended records are synced to disk.
const SYNC_AFTER_QUIET: Duration = Duration::from_secs(1);
/// Maximum time for which appended records stay unsynced while others follow.
const SYNC_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Interval between attempts to rewrite a journal after a write has failed.
const REPAIR_INTERVAL: Duration = Duration::from_secs(10);

/// Journal of one agent (its last good state on disk), with the lock of the state directory.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    node: Name,
    file: File,
    bytes: u64,
    base_bytes: u64,
    rewrite: Option<Rewrite>,
    unsynced: Option<UnsyncedWrites>,
    broken_since: Option<Instant>,
    _lock: StateDirLock,
}

#[derive(Debug)]
struct Rewrite {
    thread: JoinHandle<io::Result<(File, u64)>>,
    tail: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct UnsyncedWrites {
    first: Instant,
    last: Instant,
}

impl Journal {
    /// Opens the journal in a locked state directory, and returns it with the state that results from its
    /// records.
    ///
    /// An incomplete tail is cut off. A file that is damaged in another way, or belongs to another node, is
    /// moved aside with a warning; the kernel is then left unchanged until the control server is reached.
    ///
    /// # Errors
    /// Returns an I/O error if the directory cannot be read or written.
    pub fn open(dir: &Path, node: &Name, lock: StateDirLock) -> io::Result<(Self, State)> {
        remove_if_there(&dir.join(REWRITE_FILE))?;
        let path = dir.join(JOURNAL_FILE);
        let loaded = match load(&mut open_file(&path)?, node)? {
            Ok(loaded) => loaded,
            Err(unreadable) => {
                fs::rename(&path, dir.join(DAMAGED_FILE))?;
                let path = path.display().to_string();
                warn!(path, moved_to = DAMAGED_FILE, reason = %unreadable, "cannot use the saved state; \
                                                                            starting empty");
                LoadedJournal::default()
            }
        };
        let LoadedJournal { state, bytes, base_bytes } = loaded;
        let mut file = open_file(&path)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        let journal = Self {
            dir: dir.to_owned(),
            node: node.clone(),
            file,
            bytes,
            base_bytes,
            rewrite: None,
            unsynced: None,
            broken_since: None,
            _lock: lock,
        };
        Ok((journal, state))
    }

    /// Returns the state directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the size of the journal file, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the journal file is incomplete because a write failed.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken_since.is_some()
    }

    /// Appends the changes of a batch. `state` is the state after the batch, `previous` the position (epoch
    /// and revision) before the batch.
    pub fn append(
        &mut self,
        previous: Option<Position>,
        state: &State,
        touched: &ChangedObjects,
        now: Instant,
    ) {
        let Some(position) = state.position() else { return };
        if self.broken_since.is_some() || previous == Some(position) && *touched == ChangedObjects::default()
        {
            return;
        }
        // A file contains one history: another epoch starts a new file.
        if self.bytes == 0 || previous.is_none_or(|previous| previous.epoch != position.epoch) {
            let outcome = self.rewrite_here(state, position);
            return self.note(outcome, now);
        }
        let bytes = wire::encode_change(state, touched, position);
        let outcome = self.file.write_all(&bytes);
        if outcome.is_ok() {
            self.bytes += bytes.len() as u64;
            let first = self.unsynced.map_or(now, |unsynced| unsynced.first);
            self.unsynced = Some(UnsyncedWrites { first, last: now });
        }
        self.note(outcome, now);
        match &mut self.rewrite {
            Some(rewrite) => rewrite.tail.extend_from_slice(&bytes),
            None if self.bytes > self.base_bytes * GROWTH_FACTOR + SLACK_BYTES => {
                self.rewrite_aside(state, position)
            }
            None => {}
        }
    }

    /// Maintains the journal: replaces the file by a finished rewrite, syncs appended records whose time has
    /// come, and repairs a broken file.
    pub fn maintain(&mut self, state: &State, now: Instant) {
        let is_due = |rewrite: &Rewrite| rewrite.thread.is_finished() || rewrite.tail.len() > TAIL_BYTES_MAX;
        if let Some(rewrite) = self.rewrite.take_if(|rewrite| is_due(rewrite)) {
            let outcome = self.take_over(rewrite);
            self.note(outcome, now);
        }
        let is_due = |unsynced: &mut UnsyncedWrites| {
            now.duration_since(unsynced.last) >= SYNC_AFTER_QUIET
                || now.duration_since(unsynced.first) >= SYNC_INTERVAL_MAX
        };
        if self.unsynced.take_if(is_due).is_some() {
            let outcome = self.file.sync_data();
            self.note(outcome, now);
        }
        let is_due = self.broken_since.is_some_and(|since| now.duration_since(since) >= REPAIR_INTERVAL);
        if let Some(position) = state.position().filter(|_| is_due) {
            self.broken_since = Some(now);
            if self.rewrite_here(state, position).is_ok() {
                self.broken_since = None;
                info!("the saved state is complete again");
            }
        }
    }

    /// Syncs all records to disk. Called last when an agent stops.
    ///
    /// # Errors
    /// Returns an I/O error if the sync fails.
    pub fn close(mut self) -> io::Result<()> {
        if let Some(Rewrite { thread, tail: _ }) = self.rewrite.take() {
            // The current file is complete; the rewrite would only be smaller.
            drop(thread.join());
            remove_if_there(&self.dir.join(REWRITE_FILE))?;
        }
        self.file.sync_all()
    }

    fn rewrite_here(&mut self, state: &State, position: Position) -> io::Result<()> {
        if let Some(Rewrite { thread, tail: _ }) = self.rewrite.take() {
            drop(thread.join());
        }
        let (file, bytes) = write_aside(&self.dir, &self.node, state, position)?;
        self.put_in_place(file, bytes, bytes)
    }

    fn rewrite_aside(&mut self, state: &State, position: Position) {
        let (dir, node, state) = (self.dir.clone(), self.node.clone(), state.clone());
        let thread = std::thread::spawn(move || write_aside(&dir, &node, &state, position));
        self.rewrite = Some(Rewrite { thread, tail: Vec::new() });
    }

    fn take_over(&mut self, rewrite: Rewrite) -> io::Result<()> {
        let Rewrite { thread, tail } = rewrite;
        let (mut file, base_bytes) =
            thread.join().map_err(|_| io::Error::other("the rewriting thread panicked"))??;
        file.write_all(&tail)?;
        file.sync_data()?;
        self.put_in_place(file, base_bytes + tail.len() as u64, base_bytes)
    }

    fn put_in_place(&mut self, file: File, bytes: u64, base_bytes: u64) -> io::Result<()> {
        fs::rename(self.dir.join(REWRITE_FILE), self.dir.join(JOURNAL_FILE))?;
        File::open(&self.dir)?.sync_all()?;
        (self.file, self.bytes, self.base_bytes) = (file, bytes, base_bytes);
        self.unsynced = None;
        Ok(())
    }

    fn note(&mut self, outcome: io::Result<()>, now: Instant) {
        let Err(error) = outcome else { return };
        // A batch may be missing or incomplete, and later ones would be unreadable.
        if let Err(error) = self.file.set_len(self.bytes) {
            warn!(%error, "cannot truncate the saved state to its last complete batch");
        }
        if self.broken_since.is_none() {
            warn!(%error, dir = %self.dir.display(), "cannot save the state; a restart would use an \
                                                      older one");
        }
        self.broken_since = Some(now);
    }
}

/// Removes the journal in a state directory. Returns true if it existed.
///
/// # Errors
///
/// Returns an I/O error if a file cannot be removed.
pub fn remove(dir: &Path) -> io::Result<bool> {
    let mut found = false;
    for name in [JOURNAL_FILE, REWRITE_FILE, DAMAGED_FILE] {
        found |= remove_if_there(&dir.join(name))?;
    }
    Ok(found)
}

fn remove_if_there(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_aside(dir: &Path, node: &Name, state: &State, position: Position) -> io::Result<(File, u64)> {
    let file = own(OpenOptions::new().write(true).truncate(true), &dir.join(REWRITE_FILE))?;
    let mut out = BufWriter::new(file);
    let bytes = wire::write_state(&mut out, node, state, position)?;
    let file = out.into_inner()?;
    file.sync_all()?;
    Ok((file, bytes))
}

fn open_file(path: &Path) -> io::Result<File> {
    own(OpenOptions::new().read(true).write(true).truncate(false), path)
}

/// Opens or creates a file that only its owner can read, because the state contains keys of BFD and BGP
/// sessions.
fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.create(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

#[derive(Debug, Default)]
struct LoadedJournal {
    state: State,
    bytes: u64,
    base_bytes: u64,
}

/// Replays a journal file up to its last batch with a correct checksum.
fn load(file: &mut File, node: &Name) -> io::Result<Result<LoadedJournal, Unreadable>> {
    let mut lines = BufReader::new(file);
    let mut reader = wire::JournalReader::new(node.clone());
    let mut loaded = LoadedJournal::default();
    let mut line = Vec::new();
    let mut offset = 0;
    loop {
        line.clear();
        (&mut lines).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            let is_foreign = offset == 0 && line.len() > LINE_BYTES_MAX;
            return Ok(if is_foreign { Err(Unreadable::Header) } else { Ok(loaded) });
        }
        offset += line.len() as u64;
        let batch = match reader.push(&line) {
            Ok(batch) => batch,
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        if let Some(batch) = batch {
            if loaded.state.apply(batch).is_err() {
                return Ok(Err(Unreadable::OutOfOrder));
            }
            loaded.bytes = offset;
            if loaded.base_bytes == 0 {
                loaded.base_bytes = offset;
            }
        }
    }
}
