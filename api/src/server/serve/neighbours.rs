//! Limit on the connections of each client address, so that one client cannot use all connections.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::security::account::network_of;

/// Maximum number of connections from one client address: a quarter of all, and enough for the agents of a few
/// hundred nodes behind one NAT address.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 2048;

/// Number of open connections by client address.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbours(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// Counted connection of a client address. Dropping it decreases the count.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    neighbours: Neighbours,
    address: IpAddr,
}

impl Neighbours {
    /// Counts a new connection of a client address, or returns `None` if the address has reached its limit.
    pub(super) fn enter(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let address = network_of(address);
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(ConnectionSlot { neighbours: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // A count is changed in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.neighbours.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let neighbours = Neighbours::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut places: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|at| neighbours.enter(address(if at % 2 == 0 { "2001:db8::1" } else { "2001:db8::2" })))
            .collect();
        assert!(places.iter().all(Option::is_some));
        assert!(neighbours.enter(address("2001:db8::3")).is_none());
        assert!(neighbours.enter(address("2001:db8:0:1::3")).is_some());
        assert!(neighbours.enter(address("192.0.2.1")).is_some());
        places.pop();
        assert!(neighbours.enter(address("2001:db8::3")).is_some());
        drop(places);
        assert!(neighbours.lock().is_empty());
    }
}
