//! What announcing says of itself at one moment: read by the report, the server and the metrics. A copy costs nothing.

use std::{net::IpAddr, sync::Arc};

use imbl::OrdMap;
use model::wire::report::{Announced, PeerReport, Role};

/// This node's part in the addresses, and how it sees the other nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Announcements {
    /// Its part in each address in which it has one.
    pub addresses: OrdMap<IpAddr, Announced>,
    /// The nodes that it watches.
    pub peers: Arc<Vec<PeerReport>>,
    /// What goes wrong without keeping addresses from being announced.
    pub warning: Option<String>,
}

/// How many addresses a node owns, would own, and should own and does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Those that it announces.
    pub owner: u64,
    /// Those for which it stands by.
    pub standby: u64,
    /// Those of which it is first in rank and that it does not announce.
    pub held: u64,
    /// Those that somebody else was heard to announce.
    pub conflicts: u64,
}

impl Announcements {
    /// Counts; walks all addresses.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for announced in self.addresses.values() {
            match announced.role {
                Role::Owner => counts.owner += 1,
                Role::Standby => counts.standby += 1,
                Role::Held => counts.held += 1,
            }
            counts.conflicts += u64::from(announced.conflict.is_some());
        }
        counts
    }
}
