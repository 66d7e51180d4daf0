//! Last received state on disk, from which questions are answered after a restart until a control server is reached.

use std::{collections::BTreeSet, io, net::IpAddr, path::Path, sync::Arc};

use model::{cluster::snapshot::Snapshot, discovery::dns::Zone};
use replica::Journal;
use serde::{Deserialize, Serialize};

use super::follow::KINDS;

/// Name of the file in the state directory.
const FILE: &str = "zone.jsonl";

/// Values in the file besides the objects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ZoneValues {
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

/// Returns the file with the state in a directory.
pub(crate) fn journal(directory: &Path) -> Journal {
    Journal { directory: directory.to_owned(), file: FILE, kinds: &KINDS }
}

/// Reads the state in a directory. Returns `None` if there is none.
///
/// # Errors
/// Returns an error if the file cannot be read or is damaged. The caller continues without it.
pub(crate) fn load(directory: &Path) -> io::Result<Option<StoredState>> {
    let stored = journal(directory).load()?;
    Ok(stored.map(|(snapshot, values)| {
        let ZoneValues { announced, external_serial } = values;
        StoredState { snapshot, announced: announced.map(Arc::new), external_serial }
    }))
}

/// Returns the parts of a zone that are kept on disk.
pub(crate) fn parts(zone: &Zone) -> (&Snapshot, ZoneValues) {
    let announced = zone.announced().map(|announced| (**announced).clone());
    (zone.snapshot(), ZoneValues { announced, external_serial: zone.external_serial() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use model::{
        admission::decode::decode_received, discovery::dns::ZoneSettings, primitives::quantity::Revision,
    };
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
        let (snapshot, values) = parts(&zone);
        journal(directory.path()).save(snapshot, values).unwrap();
        let stored = StoredState { snapshot: self::snapshot(), announced, external_serial: 1234 };
        assert_eq!(load(directory.path()).unwrap(), Some(stored));
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for cut in [0, 10, text.find('\n').unwrap() + 1, text.len() - 5] {
            fs::write(&path, &text[..cut]).unwrap();
            assert!(load(directory.path()).is_err(), "{cut}");
        }
    }
}
