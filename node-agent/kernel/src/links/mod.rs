//! Interfaces of the machine with their link-layer addresses, state and networks, from rtnetlink.
//!
//! Interfaces are listed once, then updated by events, and listed again only after lost events. Receivers are
//! notified of a change and read the latest snapshot.

pub mod follow;
mod local;
mod mac;
pub mod parse;

use std::{collections::BTreeMap, net::IpAddr};

pub use self::{
    local::{ip_of, local_addresses, local_networks},
    mac::Mac,
};
use imbl::OrdMap;

/// Maximum number of monitored interfaces. Further ones are ignored, so the agent announces nothing on them.
pub const LINKS_MAX: usize = 8192;
/// Maximum number of monitored addresses per interface; further ones are ignored.
pub const LINK_ADDRESSES_MAX: usize = 1024;

/// Network interface with its state and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Current name of the interface, such as `eth0`; it can change.
    pub name: String,
    /// Ethernet address; `None` on loopback, on other link types, and on interfaces without neighbor
    /// resolution (`IFF_NOARP`).
    pub mac: Option<Mac>,
    /// True if the interface is administratively up and has carrier.
    pub is_up: bool,
    /// Addresses with their prefix lengths.
    pub addresses: BTreeMap<IpAddr, u8>,
}

/// Snapshot of all interfaces; cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Interfaces by index. The kernel does not reuse indexes while it runs.
    pub by_index: OrdMap<u32, Link>,
}

impl Links {
    /// Applies a change. A change of an address on an unknown interface is ignored. Returns true if the
    /// snapshot has changed.
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
