//! Objects that have an address.

use std::net::IpAddr;

use imbl::{OrdMap, OrdSet};

/// Objects by their addresses, given by their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressHolders<K: Ord + Clone>(OrdMap<IpAddr, Holders<K>>);

/// Objects with one address. A set of one key would take ten times the memory of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holders<K: Ord + Clone> {
    One(K),
    /// At least two objects.
    Several(OrdSet<K>),
}

impl<K: Ord + Clone> AddressHolders<K> {
    pub(super) fn new() -> Self {
        Self(OrdMap::new())
    }

    /// Adds an object to those with an address.
    pub(super) fn insert(&mut self, address: IpAddr, key: K) {
        let Some(holders) = self.0.get_mut(&address) else {
            self.0.insert(address, Holders::One(key));
            return;
        };
        match holders {
            Holders::One(known) if *known == key => {}
            Holders::One(known) => *holders = Holders::Several([known.clone(), key].into_iter().collect()),
            Holders::Several(keys) => drop(keys.insert(key)),
        }
    }

    /// Removes an object from those with an address.
    pub(super) fn remove(&mut self, address: IpAddr, key: &K) {
        let Some(holders) = self.0.get_mut(&address) else { return };
        let rest = match holders {
            Holders::One(known) if *known == *key => None,
            Holders::One(_) => return,
            Holders::Several(keys) => {
                keys.remove(key);
                if keys.len() > 1 {
                    return;
                }
                keys.get_min().cloned()
            }
        };
        match rest {
            Some(only) => *holders = Holders::One(only),
            None => drop(self.0.remove(&address)),
        }
    }

    /// Returns the objects with an address, in the order of their keys.
    pub(super) fn get(&self, address: IpAddr) -> impl Iterator<Item = &K> {
        self.0.get(&address).into_iter().flat_map(Holders::iter)
    }
}

impl<K: Ord + Clone> Holders<K> {
    fn iter(&self) -> impl Iterator<Item = &K> {
        let (one, several) = match self {
            Self::One(key) => (Some(key), None),
            Self::Several(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The holders are those of a set of pairs, and equal sets are equal however they came about.
        #[test]
        fn holders_are_those_of_a_set_of_pairs(steps in prop::collection::vec((0_u8..3, 0_u8..4, any::<bool>()), 0..40)) {
            let address = |number: u8| IpAddr::from([10, 0, 0, number]);
            let mut holders = AddressHolders::new();
            let mut expected = BTreeSet::new();
            for (at, key, is_insertion) in steps {
                if is_insertion {
                    holders.insert(address(at), key);
                    expected.insert((at, key));
                } else {
                    holders.remove(address(at), &key);
                    expected.remove(&(at, key));
                }
            }
            let mut fresh = AddressHolders::new();
            for (at, key) in &expected {
                fresh.insert(address(*at), *key);
            }
            for at in 0..3 {
                let keys = expected.iter().filter(|(of, _)| *of == at).map(|(_, key)| key);
                prop_assert!(holders.get(address(at)).eq(keys));
            }
            prop_assert_eq!(holders, fresh);
        }
    }
}
