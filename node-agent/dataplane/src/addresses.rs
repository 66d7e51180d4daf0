//! Compact maps with IPv4 and IPv6 addresses as keys.
//!
//! The index of claims (frontends and addresses that each Service uses) and the mirrors of the kernel state
//! (copies in memory) have one key per endpoint. [`IpAddr`] takes 17 bytes; with the families in separate
//! maps, an IPv4 key takes 4.

use std::{
    collections::{BTreeMap, btree_map},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Ordered map with an IP address as key. Iteration has the order of [`IpAddr`]: all IPv4 addresses before
/// all IPv6 ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressMap<V> {
    v4: BTreeMap<Ipv4Addr, V>,
    v6: BTreeMap<Ipv6Addr, V>,
}

/// Ordered set of IP addresses: an [`AddressMap`] without values.
pub type AddressSet = AddressMap<()>;

impl<V> Default for AddressMap<V> {
    fn default() -> Self {
        Self { v4: BTreeMap::new(), v6: BTreeMap::new() }
    }
}

impl<V> AddressMap<V> {
    /// Returns true if `address` is a key of the map.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.get(address).is_some()
    }

    /// Returns the value of an address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&V> {
        match address {
            IpAddr::V4(address) => self.v4.get(&address),
            IpAddr::V6(address) => self.v6.get(&address),
        }
    }

    /// Returns a mutable reference to the value of an address.
    pub fn get_mut(&mut self, address: IpAddr) -> Option<&mut V> {
        match address {
            IpAddr::V4(address) => self.v4.get_mut(&address),
            IpAddr::V6(address) => self.v6.get_mut(&address),
        }
    }

    /// Inserts the value of an address, and returns the value that the address had before.
    pub fn insert(&mut self, address: IpAddr, value: V) -> Option<V> {
        match address {
            IpAddr::V4(address) => self.v4.insert(address, value),
            IpAddr::V6(address) => self.v6.insert(address, value),
        }
    }

    /// Removes an address, and returns the value that it had; `None` if it was absent.
    pub fn remove(&mut self, address: IpAddr) -> Option<V> {
        match address {
            IpAddr::V4(address) => self.v4.remove(&address),
            IpAddr::V6(address) => self.v6.remove(&address),
        }
    }

    /// Returns the value of an address, inserting the default if it is missing.
    pub fn or_default(&mut self, address: IpAddr) -> &mut V
    where
        V: Default,
    {
        match address {
            IpAddr::V4(address) => self.v4.entry(address).or_default(),
            IpAddr::V6(address) => self.v6.entry(address).or_default(),
        }
    }

    /// Returns the number of addresses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns true if the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Iterates over the addresses in the order of [`IpAddr`].
    pub fn keys(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.iter().map(|(address, _)| address)
    }

    /// Iterates over pairs of address and value, in the order of [`IpAddr`].
    pub fn iter(&self) -> Iter<'_, V> {
        Iter { v4: self.v4.iter(), v6: self.v6.iter() }
    }
}

impl<'a, V> IntoIterator for &'a AddressMap<V> {
    type Item = (IpAddr, &'a V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

/// Iterator over the entries of an [`AddressMap`], IPv4 before IPv6.
#[derive(Debug)]
pub struct Iter<'a, V> {
    v4: btree_map::Iter<'a, Ipv4Addr, V>,
    v6: btree_map::Iter<'a, Ipv6Addr, V>,
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (IpAddr, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let v4 = self.v4.next().map(|(address, value)| (IpAddr::V4(*address), value));
        v4.or_else(|| self.v6.next().map(|(address, value)| (IpAddr::V6(*address), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After insertions, a repeated insertion and a removal, a map with addresses of both families has the
    /// same contents and order as a `BTreeMap` by `IpAddr`.
    #[test]
    fn the_order_and_the_contents_are_those_of_a_map_by_address() {
        let addresses = ["fd00::2", "10.0.0.2", "fd00::1", "255.255.255.255", "10.0.0.2", "0.0.0.0"];
        let (mut map, mut like) = (AddressMap::default(), BTreeMap::new());
        for (address, count) in addresses.into_iter().zip(0_u32..) {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(map.insert(address, count), like.insert(address, count));
        }
        let (gone, other) = ("255.255.255.255".parse().unwrap(), "10.0.0.3".parse().unwrap());
        assert_eq!(map.remove(gone), like.remove(&gone));
        assert!(!map.contains(gone) && map.remove(gone).is_none());
        *map.or_default(other) += 7;
        *like.entry(other).or_default() += 7;
        *map.get_mut(other).unwrap() += 1;
        *like.get_mut(&other).unwrap() += 1;
        assert_eq!(
            map.iter().collect::<Vec<_>>(),
            like.iter().map(|(at, value)| (*at, value)).collect::<Vec<_>>()
        );
        assert_eq!(map.keys().collect::<Vec<_>>(), like.keys().copied().collect::<Vec<_>>());
        assert_eq!((map.len(), map.is_empty(), AddressSet::default().is_empty()), (5, false, true));
    }
}
