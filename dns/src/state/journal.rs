//! Last received state on disk, from which questions are answered after a restart until a control server is reached.
//!
//! The file has one JSON document per line: first the revision, the serial number and the announced
//! addresses, then the objects. It is replaced as a whole, so that it is complete or absent.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    admission::decode::decode_received, cluster::snapshot::Snapshot, discovery::dns::Zone,
    primitives::quantity::Revision,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

use super::follow::KINDS;

/// Name of the file in the state directory.
const FILE: &str = "zone.jsonl";
/// Version of the file format. A file of another version is ignored.
const VERSION: u32 = 1;
/// Minimum time between two writes of the file.
const INTERVAL: Duration = Duration::from_secs(5);
/// Minimum ratio of the time between two writes to the duration of a write.
const TIME_SHARE: u32 = 20;

/// First line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    revision: Revision,
    /// Number of objects that follow. A file with fewer was cut off.
    objects: usize,
    /// Announced load balancer addresses; absent if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    announced: Option<BTreeSet<IpAddr>>,
    /// Serial number of the zones of DnsZones.
    #[serde(default)]
    external_serial: u32,
}

/// State from the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredState {
    /// Objects of the cluster.
    pub(crate) snapshot: Snapshot,
    /// Announced load balancer addresses, if they were known.
    pub(crate) announced: Option<Arc<BTreeSet<IpAddr>>>,
    /// Serial number of the zones of DnsZones.
    pub(crate) external_serial: u32,
}

/// Reads the state in a directory. Returns `None` if there is none.
///
/// # Errors
/// Returns an error if the file cannot be read or is damaged. The caller continues without it.
pub(crate) fn load(directory: &Path) -> io::Result<Option<StoredState>> {
    let file = match File::open(directory.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let mut lines = BufReader::new(file).lines();
    let head: Head = serde_json::from_str(&lines.next().ok_or_else(|| damaged("the file is empty"))??)?;
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
    let snapshot = Snapshot::from_objects(head.revision, objects);
    let Head { announced, external_serial, .. } = head;
    Ok(Some(StoredState { snapshot, announced: announced.map(Arc::new), external_serial }))
}

fn save(directory: &Path, zone: &Zone) -> io::Result<()> {
    let snapshot = zone.snapshot();
    let new = directory.join(format!("{FILE}.new"));
    let mut file = BufWriter::new(File::create(&new)?);
    let objects = || KINDS.into_iter().flat_map(|kind| snapshot.list(kind, None, None));
    let head = Head {
        version: VERSION,
        revision: snapshot.revision(),
        objects: objects().count(),
        announced: zone.announced().map(|announced| (**announced).clone()),
        external_serial: zone.external_serial(),
    };
    writeln!(file, "{}", serde_json::to_string(&head)?)?;
    for object in objects() {
        writeln!(file, "{}", object.to_json())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(new, directory.join(FILE))
}

/// Writes each new state to the directory until the task is cancelled. Waits at least [`INTERVAL`] between two writes,
/// and so long that writing takes at most one part in [`TIME_SHARE`] of the time, because each write contains all
/// objects.
pub(crate) async fn keep(directory: PathBuf, mut zones: watch::Receiver<Option<Arc<Zone>>>) {
    while zones.changed().await.is_ok() {
        let Some(zone) = zones.borrow_and_update().clone() else { continue };
        let (directory, begun) = (directory.clone(), Instant::now());
        match tokio::task::spawn_blocking(move || save(&directory, &zone)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot write the state to disk; the next state is tried")
            }
            Err(error) => tracing::error!(%error, "the task that writes the state to disk failed"),
        }
        sleep(INTERVAL.max(begun.elapsed() * TIME_SHARE)).await;
    }
}

#[cfg(test)]
mod tests {
    use model::discovery::dns::ZoneSettings;
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let service = json!({
            "apiVersion": "tidegate/v1", "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "clusterIP": "10.96.0.10", "ports": [{ "port": 80 }] },
        });
        // Only the server writes objects of these two kinds.
        let health = json!({
            "apiVersion": "tidegate/v1", "kind": "EndpointHealth", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "endpoints": {} },
        });
        let address = json!({
            "apiVersion": "tidegate/v1", "kind": "Address", "metadata": { "name": "192.0.2.1" },
            "spec": { "address": "192.0.2.1", "services": ["shop/web"] },
        });
        let objects = [service, health, address].map(|object| Arc::new(decode_received(&object).unwrap()));
        Snapshot::from_objects(Revision(7), objects)
    }

    #[test]
    fn a_state_is_read_back_and_damage_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), None);
        let settings = ZoneSettings::new("cluster.local".parse().unwrap());
        let announced = Some(Arc::new(BTreeSet::from(["192.0.2.1".parse().unwrap()])));
        let zone =
            Zone::new(settings, snapshot()).with_announced(announced.clone()).with_external_serial(1234);
        save(directory.path(), &zone).unwrap();
        let stored = StoredState { snapshot: snapshot(), announced, external_serial: 1234 };
        assert_eq!(load(directory.path()).unwrap(), Some(stored));
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for cut in [0, 10, text.find('\n').unwrap() + 1, text.len() - 5] {
            fs::write(&path, &text[..cut]).unwrap();
            assert!(load(directory.path()).is_err(), "{cut}");
        }
    }
}
