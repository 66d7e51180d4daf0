//! Objects that have an address.

use std::net::IpAddr;

use imbl::OrdMap;

use crate::primitives::non_empty_set::NonEmptySet;

/// Objects by their addresses, given by their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressHolders<K: Ord + Clone>(OrdMap<IpAddr, NonEmptySet<K>>);

impl<K: Ord + Clone> AddressHolders<K> {
    pub(super) fn new() -> Self {
        Self(OrdMap::new())
    }

    /// Adds an object to those with an address.
    pub(super) fn insert(&mut self, address: IpAddr, key: K) {
        NonEmptySet::add_at(&mut self.0, address, key);
    }

    /// Removes an object from those with an address.
    pub(super) fn remove(&mut self, address: IpAddr, key: &K) {
        NonEmptySet::remove_at(&mut self.0, &address, key);
    }

    /// Returns the objects with an address, in the order of their keys.
    pub(super) fn get(&self, address: IpAddr) -> impl Iterator<Item = &K> {
        self.0.get(&address).into_iter().flatten()
    }
}
