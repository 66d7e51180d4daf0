//! The interfaces of the machine, with their link-layer addresses, state and networks, as rtnetlink tells them.
//!
//! A dump once, then events; a full list again only when the kernel says that events were lost. Nothing is polled, and
//! nothing is decided here: whoever holds the receiver looks at the snapshot when its bell rings.

pub mod follow;
mod mac;
pub mod parse;

use std::{collections::BTreeMap, net::IpAddr};

use imbl::OrdMap;
pub use mac::Mac;

/// Interfaces that are followed; a machine with more containers than this does not announce on their interfaces.
pub const LINKS_MAX: usize = 8192;
/// Addresses of one interface that are followed.
pub const LINK_ADDRESSES_MAX: usize = 1024;

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name; changes when it is renamed.
    pub name: String,
    /// Its Ethernet address; none on loopback, where there is no Ethernet, and where there are no neighbours to ask
    /// (`IFF_NOARP`).
    pub mac: Option<Mac>,
    /// Whether it is set up and has a carrier.
    pub is_up: bool,
    /// Its addresses with the lengths of their prefixes.
    pub addresses: BTreeMap<IpAddr, u8>,
}

/// All interfaces by their index; a copy costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// By index, which the kernel never gives twice while it runs.
    pub by_index: OrdMap<u32, Link>,
}

impl Links {
    /// Takes one change over; what is said of an interface that does not exist changes nothing. Answers whether anything
    /// is different now.
    pub fn apply(&mut self, change: parse::Change) -> bool {
        match change {
            parse::Change::Link { index, name, mac, is_up } => self.set(index, name, mac, is_up),
            parse::Change::LinkGone { index } => self.by_index.remove(&index).is_some(),
            parse::Change::Address { index, address, prefix } => {
                let Some(link) = self.by_index.get(&index) else { return false };
                if link.addresses.get(&address) == Some(&prefix) || link.addresses.len() == LINK_ADDRESSES_MAX
                {
                    return false;
                }
                let link = self.by_index.get_mut(&index);
                link.is_some_and(|link| link.addresses.insert(address, prefix) != Some(prefix))
            }
            parse::Change::AddressGone { index, address } => {
                let held =
                    self.by_index.get(&index).is_some_and(|link| link.addresses.contains_key(&address));
                held && self.by_index.get_mut(&index).is_some_and(|link| {
                    link.addresses.remove(&address);
                    true
                })
            }
        }
    }

    fn set(&mut self, index: u32, name: String, mac: Option<Mac>, is_up: bool) -> bool {
        let addresses = match self.by_index.get(&index) {
            Some(link) if link.name == name && link.mac == mac && link.is_up == is_up => return false,
            Some(link) => link.addresses.clone(),
            None if self.by_index.len() == LINKS_MAX => return false,
            None => BTreeMap::new(),
        };
        self.by_index.insert(index, Link { name, mac, is_up, addresses });
        true
    }
}
