//! Source `files`: objects in YAML and JSON files, watched for changes.
//!
//! Kernel notifications only trigger a scan, whose result determines the objects. Scans also run
//! periodically. A file that cannot be read or parsed keeps its last good objects. If it has none because the
//! process has just started, the source is incomplete and nothing is removed.

mod file_index;
mod parse;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use self::file_index::FileIndex;
use crate::{engine::outlet::Outlet, wanted::DesiredObjects};

/// Maximum number of files of a source.
const FILES_MAX: usize = 10_000;
/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Delay between a notification and the scan, because editors write, rename and remove in quick succession.
const SETTLE: Duration = Duration::from_millis(50);
/// Interval of scans without a notification, because network file systems send no notifications.
const RESCAN: Duration = Duration::from_secs(10);

/// Arguments of `tidegate-sync files`.
#[derive(Debug, Clone, Args)]
pub struct FilesArguments {
    /// Files, and directories with .yaml, .yml and .json files
    #[arg(value_name = "DIR|FILE", required = true)]
    pub paths: Vec<PathBuf>,
}

/// Metadata of a file by which a changed file is recognized, so that an unchanged file need not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Publishes the objects in the files, and their changes, until the process ends.
///
/// # Errors
/// Returns an error if the kernel provides no file notifications.
pub async fn run(arguments: FilesArguments, outlet: Outlet) -> anyhow::Result<()> {
    let (bell, mut rung) = mpsc::channel(1);
    // One pending notification is enough.
    let mut watcher = notify::recommended_watcher(move |_event| {
        let _is_rung = bell.try_send(());
    })
    .context("cannot watch files for changes")?;
    let mut reader = Reader::default();
    loop {
        for directory in directories(&arguments.paths) {
            if !reader.watched.contains(&directory)
                && let Ok(()) = watcher.watch(&directory, RecursiveMode::NonRecursive)
            {
                reader.watched.insert(directory);
            }
        }
        let looked = tokio::task::spawn_blocking({
            let paths = arguments.paths.clone();
            move || {
                reader.look(&paths);
                reader
            }
        });
        reader = looked.await.context("a scan of the files did not finish")?;
        publish(&reader, &outlet);
        tokio::select! {
            Some(()) = rung.recv() => {
                tokio::time::sleep(SETTLE).await;
                let _rung_meanwhile = rung.try_recv();
            }
            () = tokio::time::sleep(RESCAN) => {}
        }
    }
}

fn publish(reader: &Reader, outlet: &Outlet) {
    let complaints = reader.complaints();
    outlet.wanted.send_if_modified(|wanted| {
        let is_complete = reader.is_complete();
        let is_news = wanted.is_complete != is_complete || !wanted.objects.ptr_eq(reader.shelf.objects());
        *wanted = DesiredObjects { objects: reader.shelf.objects().clone(), is_complete };
        is_news
    });
    outlet.progress.complain(complaints);
}

/// Returns the directories to watch for the given paths: for a file its parent, because files are often
/// replaced by renaming.
fn directories(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let directory = |path: &PathBuf| {
        if path.is_dir() {
            return path.clone();
        }
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
    };
    paths.iter().map(directory).collect()
}

#[derive(Default)]
struct Reader {
    shelf: FileIndex,
    stamps: BTreeMap<PathBuf, Stamp>,
    watched: BTreeSet<PathBuf>,
    /// Read and parse errors by file.
    broken: BTreeMap<PathBuf, Vec<String>>,
    /// Errors of directories and paths that cannot be listed.
    unreadable: Vec<String>,
}

impl Reader {
    fn look(&mut self, paths: &[PathBuf]) {
        self.unreadable.clear();
        let mut found = BTreeSet::new();
        for path in paths {
            match files_of(path) {
                Ok(files) => found.extend(files),
                Err(error) => self.unreadable.push(format!("{}: {error}", path.display())),
            }
        }
        if found.len() > FILES_MAX {
            self.unreadable.push(format!("{} files found, more than {FILES_MAX}; none is read", found.len()));
            return;
        }
        for path in &found {
            self.read(path);
        }
        // Files of an unlisted directory may still exist.
        if self.unreadable.is_empty() {
            let gone: Vec<_> = self
                .stamps
                .keys()
                .chain(self.broken.keys())
                .filter(|path| !found.contains(*path))
                .cloned()
                .collect();
            for path in gone {
                tracing::info!(file = %path.display(), "file removed");
                self.stamps.remove(&path);
                self.broken.remove(&path);
                self.shelf.remove(&path);
            }
        }
    }

    fn read(&mut self, path: &Path) {
        let read = stamp(path).and_then(|stamp| {
            if self.stamps.get(path) == Some(&stamp) {
                return Ok(None);
            }
            Ok(Some((stamp, bytes(path)?)))
        });
        let wrong = match read {
            Ok(None) => return,
            Ok(Some((stamp, bytes))) => {
                self.stamps.insert(path.to_owned(), stamp);
                match parse::objects(path.extension().is_some_and(|extension| extension == "json"), &bytes) {
                    Ok(objects) => {
                        if self.broken.remove(path).is_some() {
                            tracing::info!(file = %path.display(), "file is valid again");
                        }
                        self.shelf.put(path, objects);
                        return;
                    }
                    Err(wrong) => wrong,
                }
            }
            Err(error) => vec![error],
        };
        if self.broken.get(path) != Some(&wrong) {
            for fault in &wrong {
                tracing::warn!(file = %path.display(), fault, "invalid file; keeping its last good objects");
            }
        }
        self.broken.insert(path.to_owned(), wrong);
    }

    fn is_complete(&self) -> bool {
        self.unreadable.is_empty() && self.broken.keys().all(|path| self.shelf.has(path))
    }

    fn complaints(&self) -> Vec<String> {
        let broken = self.broken.iter();
        let broken = broken.flat_map(|(path, faults)| {
            faults.iter().map(move |fault| format!("{}: {fault}", path.display()))
        });
        self.unreadable.iter().cloned().chain(broken).chain(self.shelf.duplicates()).collect()
    }
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| error.to_string())? {
        let file = entry.map_err(|error| error.to_string())?.path();
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && !is_hidden && file.is_file() {
            files.push(file);
        }
    }
    Ok(files)
}

fn stamp(path: &Path) -> Result<Stamp, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    Ok(Stamp {
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is longer than {} MiB; split it", FILE_BYTES_MAX / (1024 * 1024)));
    }
    Ok(bytes)
}
