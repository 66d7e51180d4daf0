//! Cache of the announced load balancer addresses of Services with host names and of Services that publish a
//! Gateway, computed once for all DNS servers.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::{Position, Timestamp},
};

use crate::state::object_view::View;

/// Inputs of a computation: position of the state, number of reports that changed anything, and time. Leases expire as
/// time passes.
type Inputs = (Position, u64, Timestamp);

/// Announced addresses; `None` if they are not known.
type KnownAddresses = Option<Arc<BTreeSet<IpAddr>>>;

/// Newest set of announced addresses with the inputs from which it was computed.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedCache(Mutex<Option<(Inputs, KnownAddresses)>>);

impl AnnouncedCache {
    /// Returns the announced addresses, computed again if an input has changed; `None` if they are not known, because
    /// this server has started and not every node has reported yet. `reports` is the number of reports that have changed
    /// anything.
    pub(crate) fn current(&self, view: &View<'_>, reports: u64) -> KnownAddresses {
        let inputs = (view.published().position(), reports, view.now());
        // The cache is replaced as a whole.
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, addresses)) = &*cache
            && *known == inputs
        {
            return addresses.clone();
        }
        let addresses = is_known(view).then(|| Arc::new(announced(view)));
        *cache = Some((inputs, addresses.clone()));
        addresses
    }
}

/// Returns false if a node has reported to a previous process of this server, not to this one yet, and its lease has not
/// expired.
fn is_known(view: &View<'_>) -> bool {
    view.table()
        .views()
        .iter()
        .all(|node| node.report.is_some() || node.last_report.is_none() || node.is_lost)
}

fn announced(view: &View<'_>) -> BTreeSet<IpAddr> {
    let snapshot = &view.published().snapshot;
    let addresses_of = |service: &ServiceKey| snapshot.addresses_of(service).collect::<Vec<_>>();
    let held: BTreeSet<IpAddr> =
        snapshot.services_with_hostnames().flat_map(|service| addresses_of(&service)).collect();
    if held.is_empty() {
        return held;
    }
    view.renderer().announcing(|of| {
        let is_announced = |address: &IpAddr| {
            let record = snapshot.address(*address).and_then(|object| object.as_address());
            record.is_some_and(|record| of.is_in_dns(record))
        };
        held.into_iter().filter(is_announced).collect()
    })
}
