//! In-memory conntrack table for tests and simulated agents.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use kernel::conntrack::{Filter, Flow, Sighting};

use super::FlowTable;

/// In-memory conntrack table; clones refer to the same table.
#[derive(Debug, Clone, Default)]
pub struct MemoryFlows(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    flows: BTreeSet<Flow>,
    sightings: Vec<Sighting>,
    local_addresses: BTreeSet<IpAddr>,
    walks: u64,
    walks_to_fail: u32,
}

impl MemoryFlows {
    /// Adds a flow to the table.
    pub fn add(&self, flow: Flow) {
        self.lock().flows.insert(flow);
    }

    /// Returns the flows that have not been deleted.
    #[must_use]
    pub fn flows(&self) -> BTreeSet<Flow> {
        self.lock().flows.clone()
    }

    /// Sets the flows, with their traffic, that [`FlowTable::show`] passes to its callback.
    pub fn set_sightings(&self, sightings: Vec<Sighting>) {
        self.lock().sightings = sightings;
    }

    /// Sets the node's own addresses.
    pub fn set_local_addresses(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.lock().local_addresses = addresses.into_iter().collect();
    }

    /// Returns the number of times that the table has been walked.
    #[must_use]
    pub fn walks(&self) -> u64 {
        self.lock().walks
    }

    /// Makes the next `count` walks of the table fail.
    pub fn fail_walks(&self, count: u32) {
        self.lock().walks_to_fail = count;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("the lock is not poisoned")
    }
}

impl FlowTable for MemoryFlows {
    fn remove(&mut self, _: &Filter, condemned: &mut dyn FnMut(&Flow) -> bool) -> io::Result<u64> {
        let mut inner = self.lock();
        inner.walks += 1;
        if inner.walks_to_fail > 0 {
            inner.walks_to_fail -= 1;
            return Err(io::Error::other("told to fail"));
        }
        let before = inner.flows.len();
        inner.flows.retain(|flow| !condemned(flow));
        Ok(u64::try_from(before - inner.flows.len()).unwrap_or(u64::MAX))
    }

    fn show(&mut self, each: &mut dyn FnMut(&Sighting)) -> io::Result<()> {
        self.lock().sightings.iter().for_each(each);
        Ok(())
    }

    fn count(&mut self) -> bool {
        true
    }

    fn local_addresses(&mut self) -> io::Result<BTreeSet<IpAddr>> {
        Ok(self.lock().local_addresses.clone())
    }
}
