//! Snapshot of the announcement status, for reports, the status server and metrics. Cheap to clone.

use std::{net::IpAddr, sync::Arc};

use imbl::{OrdMap, Vector};
use model::wire::report::{AddressReport, AnnouncementChange, AnnouncementRole, PeerReport};

/// Roles of this node for the load balancer addresses, and liveness of the other nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Announcements {
    /// Role of this node by address. Addresses for which this node is not a candidate are absent.
    pub addresses: OrdMap<IpAddr, AddressReport>,
    /// Last changes of the addresses that this node announces, oldest first, at most
    /// [`model::wire::report::ANNOUNCEMENT_CHANGES_MAX`].
    pub changes: Vector<AnnouncementChange>,
    /// Liveness of each node that this node monitors by BFD.
    pub peers: Arc<Vec<PeerReport>>,
    /// Current problem that does not prevent announcement, such as missing kernel support for echo replies.
    pub warning: Option<String>,
    /// Counters since the start of the agent.
    pub totals: AnnouncementTotals,
}

/// Counters of announcements since the start of the agent, over all addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnnouncementTotals {
    /// Number of times that this node began to announce an address.
    pub takeovers: u64,
    /// Number of gratuitous ARP packets and unsolicited neighbor advertisements sent.
    pub gratuitous: u64,
    /// Number of ARP requests and neighbor solicitations answered.
    pub replies: u64,
    /// Number of times that the BFD session with a monitored node failed.
    pub peer_failures: u64,
}

/// Numbers of addresses by role of this node, for metrics and the status server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Number of addresses this node announces.
    pub owner: u64,
    /// Number of addresses for which this node is on standby.
    pub standby: u64,
    /// Number of addresses for which this node has the highest rank but does not announce.
    pub held: u64,
    /// Number of addresses that another station was observed to announce within the last minute.
    pub conflicts: u64,
}

impl Announcements {
    /// Returns the number of addresses for each role of this node.
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
