//! Status of announcing at one moment, read by reports, the server and metrics. Cheap to clone.

use std::{net::IpAddr, sync::Arc};

use imbl::OrdMap;
use model::wire::report::{AddressReport, AnnouncementRole, PeerReport};

/// Roles of this node for the addresses, and liveness of the other nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Announcements {
    /// Role for each address for which this node has one.
    pub addresses: OrdMap<IpAddr, AddressReport>,
    /// Monitored nodes.
    pub peers: Arc<Vec<PeerReport>>,
    /// Problem that does not prevent announcement.
    pub warning: Option<String>,
}

/// Numbers of addresses by role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Addresses this node announces.
    pub owner: u64,
    /// Addresses for which this node is on standby.
    pub standby: u64,
    /// Addresses for which this node is first in rank but does not announce.
    pub held: u64,
    /// Addresses that another station was observed to announce.
    pub conflicts: u64,
}

impl Announcements {
    /// Counts all addresses.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for announced in self.addresses.values() {
            match announced.role {
                AnnouncementRole::Owner => counts.owner += 1,
                AnnouncementRole::Standby => counts.standby += 1,
                AnnouncementRole::Held => counts.held += 1,
            }
            counts.conflicts += u64::from(announced.conflict.is_some());
        }
        counts
    }
}
