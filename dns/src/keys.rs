//! Secrets of the keys of DnsZones, with which secondary name servers and other programs sign their requests.
//!
//! They are read from a control server when a DnsZone with keys changes, and kept on disk for restarts. The names and
//! permissions of the keys come with the DnsZones, so that a removed key is rejected at once.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use client::{Backoff, Client, Request};
use model::{
    kinds::{dns_key::secret_bytes, resource::Kind},
    primitives::{name::Name, quantity::Revision},
    wire::dns_keys::{DnsKeyList, ZoneKey},
};
use replica::PrivateFile;
use tokio::{sync::watch, time::sleep};

use crate::responder::Zones;

/// Path of the keys on control servers.
const PATH: &str = "/v1/dns/keys";
/// Name of the file in the state directory.
const FILE: &str = "keys.json";
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
    file: Option<PrivateFile>,
}

impl KeyFollower {
    /// Creates the task with the keys in the state directory, if there are some.
    pub(crate) fn new(client: Client, zones: Zones, directory: Option<PathBuf>) -> Self {
        let file = directory.map(|directory| PrivateFile { directory, file: FILE });
        let stored = file.as_ref().map(PrivateFile::load).transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "the keys on disk are unusable; waiting for a control server");
            None
        });
        let ring = stored.flatten().map(|list| KeyRing::of(&list)).unwrap_or_default();
        Self { client, zones, keys: watch::Sender::new(Arc::new(ring)), file }
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
        if let Some(file) = self.file.as_ref().filter(|_| is_changed)
            && let Err(error) = file.save(&list)
        {
            tracing::warn!(%error, directory = %file.directory.display(), "cannot keep the keys on disk");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Keys survive a restart in a file that only its owner can read, and `Debug` does not print them.
    #[test]
    fn keys_are_kept_for_a_restart_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = PrivateFile { directory: directory.path().to_owned(), file: FILE };
        assert_eq!(file.load::<DnsKeyList>().unwrap(), None);
        let list: DnsKeyList = serde_json::from_value(serde_json::json!({
            "revision": 7,
            "keys": [{ "zone": "example.org", "name": "k", "secret": "MDEyMzQ1Njc4OWFiY2RlZg==" }],
        }))
        .unwrap();
        for _ in 0..2 {
            file.save(&list).unwrap();
        }
        assert_eq!(file.load().unwrap(), Some(list.clone()));
        let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let ring = KeyRing::of(&list);
        assert_eq!(ring.secret("example.org", "k").as_deref(), Some(&b"0123456789abcdef"[..]));
        assert_eq!(ring.secret("example.com", "k"), None);
        assert_eq!(format!("{ring:?}"), r#"{("example.org", "k")}"#);
    }
}
