//! Last received state on disk, with which a program begins after a restart until a control server is reached.
//!
//! The file has one JSON document per line: first the version, the revision and further values of the program, then the
//! objects. It is replaced as a whole, so that it is complete or absent.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    admission::decode::decode_received, cluster::snapshot::Snapshot, kinds::resource::Kind,
    primitives::quantity::Revision,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

/// Version of the file format. A file of another version is ignored.
const VERSION: u32 = 1;
/// Minimum time between two writes of the file.
const INTERVAL: Duration = Duration::from_secs(5);
/// Minimum ratio of the time between two writes to the duration of a write.
const TIME_SHARE: u32 = 20;

/// File with the last state.
#[derive(Debug, Clone)]
pub struct Journal {
    /// Directory of the file, which exists.
    pub directory: PathBuf,
    /// Name of the file.
    pub file: &'static str,
    /// Kinds of the objects in the file.
    pub kinds: &'static [Kind],
}

/// First line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Head<M> {
    version: u32,
    revision: Revision,
    /// Number of objects that follow. A file with fewer was cut off.
    objects: usize,
    /// Further values of the program.
    #[serde(flatten)]
    more: M,
}

impl Journal {
    /// Reads the state and the further values. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged. The caller continues without it.
    pub fn load<M: DeserializeOwned>(&self) -> io::Result<Option<(Snapshot, M)>> {
        let file = match File::open(self.directory.join(self.file)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        let mut lines = BufReader::new(file).lines();
        let first = lines.next().ok_or_else(|| damaged("the file is empty"))??;
        let head: Head<M> = serde_json::from_str(&first)?;
        if head.version != VERSION {
            return Err(damaged("the file is of another version"));
        }
        let mut objects = Vec::new();
        for line in lines {
            let value: Value = serde_json::from_str(&line?)?;
            let object = decode_received(&value);
            objects.push(Arc::new(object.map_err(|_| damaged("an object cannot be decoded"))?));
        }
        if objects.len() != head.objects {
            return Err(damaged("the file is incomplete"));
        }
        Ok(Some((Snapshot::from_objects(head.revision, objects), head.more)))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. The previous file remains.
    pub fn save<M: Serialize>(&self, snapshot: &Snapshot, more: M) -> io::Result<()> {
        let new = self.directory.join(format!("{}.new", self.file));
        let mut file = BufWriter::new(File::create(&new)?);
        let objects = || self.kinds.iter().flat_map(|kind| snapshot.list(*kind, None, None));
        let revision = snapshot.revision();
        let head = Head { version: VERSION, revision, objects: objects().count(), more };
        writeln!(file, "{}", serde_json::to_string(&head)?)?;
        for object in objects() {
            writeln!(file, "{}", object.to_json())?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(new, self.directory.join(self.file))
    }

    /// Writes each new state until the task is cancelled. `parts` returns the objects of a state and the further values.
    /// Waits at least 5 s between two writes, and so long that writing takes at most a twentieth of the time, because
    /// each write contains all objects.
    pub async fn keep<T, M>(
        self,
        mut states: watch::Receiver<Option<Arc<T>>>,
        parts: fn(&T) -> (&Snapshot, M),
    ) where
        T: Send + Sync + 'static,
        M: Serialize + 'static,
    {
        while states.changed().await.is_ok() {
            let Some(state) = states.borrow_and_update().clone() else { continue };
            let (journal, begun) = (self.clone(), Instant::now());
            let write = move || {
                let (snapshot, more) = parts(&state);
                journal.save(snapshot, more)
            };
            match tokio::task::spawn_blocking(write).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot write the state to disk; the next state is tried")
                }
                Err(error) => tracing::error!(%error, "the task that writes the state to disk failed"),
            }
            sleep(INTERVAL.max(begun.elapsed() * TIME_SHARE)).await;
        }
    }
}
