//! Secrets of the keys of DnsZones, with which secondary name servers and other programs sign their requests.
//!
//! They are read from a control server when a DnsZone with keys changes, and kept on disk for restarts. The names and
//! permissions of the keys come with the DnsZones, so that a removed key is rejected at once.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use client::{Backoff, Client, Request};
use model::{
    kinds::{dns_key::secret_bytes, resource::Kind},
    primitives::{name::Name, quantity::Revision},
    wire::dns_keys::{DnsKeyList, ZoneKey},
};
use tokio::{sync::watch, time::sleep};

use crate::responder::Zones;

/// Path of the keys on control servers.
const PATH: &str = "/v1/dns/keys";
/// Name of the file in the state directory.
const FILE: &str = "keys.json";
/// Mode of the file: only the user of this server may read the secrets.
const FILE_MODE: u32 = 0o600;
/// Minimum delay before the next attempt to read the keys.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum delay before the next attempt to read the keys.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Keys at the newest revision.
pub(crate) type Keys = watch::Receiver<Arc<KeyRing>>;

/// Secrets by zone and name of the key. `Debug` does not print them.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct KeyRing(BTreeMap<(String, String), Vec<u8>>);

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl KeyRing {
    /// Decodes the secrets of a list. Keys that cannot be decoded, which a newer server may have admitted, are left out.
    pub(crate) fn of(list: &DnsKeyList) -> Self {
        let key =
            |key: &ZoneKey| Some(((key.zone.to_string(), key.name.to_string()), secret_bytes(&key.secret)?));
        Self(list.keys.iter().filter_map(key).collect())
    }

    /// Returns the secret of a key of a zone.
    pub(crate) fn secret(&self, zone: &str, key: &str) -> Option<Vec<u8>> {
        self.0.get(&(zone.to_owned(), key.to_owned())).cloned()
    }
}

/// DnsZones with keys and their revisions.
type KeyedZones = BTreeMap<Name, Revision>;

/// Task that reads the keys.
pub(crate) struct KeyFollower {
    client: Client,
    zones: Zones,
    keys: watch::Sender<Arc<KeyRing>>,
    directory: Option<PathBuf>,
}

impl KeyFollower {
    /// Creates the task with the keys in the state directory, if there are some.
    pub(crate) fn new(client: Client, zones: Zones, directory: Option<PathBuf>) -> Self {
        let stored = directory.as_deref().map(load).transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "the keys on disk are unusable; waiting for a control server");
            None
        });
        let ring = stored.flatten().map(|list| KeyRing::of(&list)).unwrap_or_default();
        Self { client, zones, keys: watch::Sender::new(Arc::new(ring)), directory }
    }

    /// Returns a receiver of the keys.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.subscribe()
    }

    /// Reads the keys after each change of DnsZones with keys until the task is cancelled.
    pub(crate) async fn run(mut self) {
        let mut read = None;
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let wanted = self.wanted();
            if wanted.is_some() && wanted != read {
                match self.read(wanted.as_ref()).await {
                    Ok(()) => {
                        read = wanted;
                        backoff.reset();
                    }
                    Err(cause) => {
                        tracing::warn!(
                            server = self.client.url(),
                            cause,
                            "cannot read the keys of DNS zones; the last keys stay in use"
                        );
                        self.client.use_next();
                        sleep(backoff.next_random_delay()).await;
                        continue;
                    }
                }
            }
            if self.zones.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns the DnsZones with keys; `None` until the state is known.
    fn wanted(&mut self) -> Option<KeyedZones> {
        let zone = self.zones.borrow_and_update().clone()?;
        let objects = zone.snapshot().list(Kind::DnsZone, None, None);
        let keyed = objects.filter(|object| object.as_dns_zone().is_some_and(|spec| !spec.keys.is_empty()));
        Some(keyed.map(|object| (object.metadata.name.clone(), object.metadata.revision())).collect())
    }

    async fn read(&self, wanted: Option<&KeyedZones>) -> Result<(), String> {
        let newest = wanted.and_then(|zones| zones.values().max().copied());
        let list = match newest {
            None => DnsKeyList { revision: Revision(0), keys: Vec::new() },
            Some(newest) => {
                let body = self.client.send(&Request::get(PATH)).await;
                let body = body.map_err(|error| base::chain(&error))?;
                let list: DnsKeyList =
                    serde_json::from_value(body).map_err(|_| "the response cannot be decoded".to_owned())?;
                if list.revision < newest {
                    return Err("the server has an older state".to_owned());
                }
                list
            }
        };
        let ring = Arc::new(KeyRing::of(&list));
        let is_changed = self.keys.send_if_modified(|known| {
            let is_changed = *known != ring;
            *known = ring;
            is_changed
        });
        if let Some(directory) = self.directory.as_deref().filter(|_| is_changed)
            && let Err(error) = save(directory, &list)
        {
            tracing::warn!(%error, directory = %directory.display(), "cannot keep the keys on disk");
        }
        Ok(())
    }
}

fn load(directory: &Path) -> io::Result<Option<DnsKeyList>> {
    match fs::read(directory.join(FILE)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn save(directory: &Path, list: &DnsKeyList) -> io::Result<()> {
    let new = directory.join(format!("{FILE}.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    file.write_all(&serde_json::to_vec(list)?)?;
    file.sync_all()?;
    fs::rename(new, directory.join(FILE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Keys survive a restart in a file that only its owner can read, and `Debug` does not print them.
    #[test]
    fn keys_are_kept_for_a_restart_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), None);
        let list: DnsKeyList = serde_json::from_value(serde_json::json!({
            "revision": 7,
            "keys": [{ "zone": "example.org", "name": "k", "secret": "MDEyMzQ1Njc4OWFiY2RlZg==" }],
        }))
        .unwrap();
        for _ in 0..2 {
            save(directory.path(), &list).unwrap();
        }
        assert_eq!(load(directory.path()).unwrap(), Some(list.clone()));
        let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        let ring = KeyRing::of(&list);
        assert_eq!(ring.secret("example.org", "k").as_deref(), Some(&b"0123456789abcdef"[..]));
        assert_eq!(ring.secret("example.com", "k"), None);
        assert_eq!(format!("{ring:?}"), r#"{("example.org", "k")}"#);
    }
}
