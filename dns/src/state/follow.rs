//! Zone that follows from the objects of the cluster, kept up to date by a watch.

use std::sync::Arc;

use model::{
    cluster::{change::ObjectChange, snapshot::Snapshot},
    discovery::dns::{Zone, ZoneSettings},
    kinds::resource::{Kind, Object},
    primitives::quantity::Revision,
};
use replica::StateSink;
use tokio::sync::watch;

use super::serial::numbered;
use crate::metrics::Metrics;

/// Kinds whose objects have an influence on the zone.
pub(crate) const KINDS: [Kind; 10] = [
    Kind::Node,
    Kind::DnsZone,
    Kind::Gateway,
    Kind::HttpRoute,
    Kind::TlsRoute,
    Kind::Workload,
    Kind::Service,
    Kind::EndpointSet,
    Kind::Address,
    Kind::EndpointHealth,
];

/// Zone of the received objects.
pub(crate) struct ZoneSink {
    pub(crate) settings: ZoneSettings,
    pub(crate) zones: watch::Sender<Option<Arc<Zone>>>,
    pub(crate) metrics: Arc<Metrics>,
}

impl ZoneSink {
    fn publish(&self, zone: Zone) {
        self.metrics.revision.set(i64::try_from(zone.snapshot().revision().0).unwrap_or(i64::MAX));
        self.metrics.set_ready();
        // The announced addresses come from another stream.
        self.zones.send_modify(|current| {
            let announced = current.as_ref().and_then(|current| current.announced().cloned());
            *current = Some(Arc::new(numbered(&zone.with_announced(announced), current.as_deref())));
        });
    }
}

impl StateSink for ZoneSink {
    fn replace(&self, revision: Revision, objects: Vec<Arc<Object>>) {
        let snapshot = Snapshot::from_objects(revision, objects);
        self.publish(Zone::new(self.settings.clone(), snapshot));
    }

    fn change(&self, revision: Revision, changes: Vec<ObjectChange>) {
        let zone = self.zones.borrow().clone();
        if let Some(zone) = zone {
            self.publish(zone.update(revision, changes));
        }
    }

    fn set_connected(&self, is_connected: bool) {
        self.metrics.connected.set(is_connected.into());
    }
}
