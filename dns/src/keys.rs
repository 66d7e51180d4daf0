//! Secrets of the keys of DnsZones, with which secondary name servers and other programs sign their requests.
//!
//! They are read from a control server when a DnsZone with keys changes, and kept on disk for restarts. The names and
//! permissions of the keys come with the DnsZones, so that a removed key is rejected at once.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use client::{Client, Request};
use model::{
    kinds::{dns_key::secret_bytes, resource::Kind},
    primitives::{name::Name, quantity::Revision},
    wire::dns_keys::{DnsKeyList, ZoneKey},
};
use replica::{PrivateFile, SecretFollower, SecretSink};
use tokio::sync::watch;

use crate::responder::Zones;

/// Path of the keys on control servers.
const PATH: &str = "/v1/dns/keys";
/// Name of the file in the state directory.
const FILE: &str = "keys.json";

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

/// Receiver of the keys of DnsZones.
pub(crate) struct KeySink {
    zones: Zones,
    keys: watch::Sender<Arc<KeyRing>>,
}

/// Creates the task that reads the keys, which begins with those in the state directory, if there are some.
pub(crate) fn follow(
    client: Client,
    zones: Zones,
    directory: Option<PathBuf>,
) -> (SecretFollower<KeySink>, Keys) {
    let file = directory.map(|directory| PrivateFile { directory, file: FILE });
    let (sender, keys) = watch::channel(Arc::default());
    (SecretFollower::new(client, file, KeySink { zones, keys: sender }), keys)
}

impl SecretSink for KeySink {
    type List = DnsKeyList;
    type Key = Name;

    const SUBJECT: &'static str = "keys of DNS zones";

    fn request(&self) -> Request {
        Request::get(PATH)
    }

    /// Returns the DnsZones with keys.
    fn wanted(&mut self) -> Option<BTreeMap<Name, Revision>> {
        let zone = self.zones.borrow_and_update().clone()?;
        let objects = zone.snapshot().list(Kind::DnsZone, None, None);
        let keyed = objects.filter(|object| object.as_dns_zone().is_some_and(|spec| !spec.keys.is_empty()));
        Some(keyed.map(|object| (object.metadata.name.clone(), object.metadata.revision())).collect())
    }

    async fn changed(&mut self) -> bool {
        self.zones.changed().await.is_ok()
    }

    fn receive(&mut self, list: &DnsKeyList) -> bool {
        let ring = Arc::new(KeyRing::of(list));
        self.keys.send_if_modified(|known| {
            let is_changed = *known != ring;
            *known = ring;
            is_changed
        })
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
