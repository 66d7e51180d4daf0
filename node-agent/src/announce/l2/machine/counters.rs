//! What an announcer counts.

use std::{collections::BTreeMap, time::Instant};

use crate::announce::l2::wire::Unreadable;

/// What was done for one address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressCounters {
    /// Questions answered.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited neighbour advertisements sent.
    pub gratuitous: u64,
    /// When the last of them was.
    pub last_gratuitous: Option<Instant>,
}

/// What was done on one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that passed the filter.
    pub received: u64,
    /// Questions answered.
    pub replies: u64,
    /// Gratuitous announcements.
    pub gratuitous: u64,
    /// Frames that the kernel did not take.
    pub not_sent: u64,
    /// Frames that were received and not used.
    pub dropped: BTreeMap<Dropped, u64>,
}

/// Why a frame was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// It could not be read.
    Unreadable(Unreadable),
    /// It comes from this machine.
    Own,
    /// It is about no address of ours on this interface, or sent to somebody else.
    NotOurs,
    /// The same station asks for the same address too often.
    Flood,
}

impl Dropped {
    /// A word for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable(Unreadable::Truncated) => "truncated",
            Self::Unreadable(Unreadable::Tagged) => "tagged",
            Self::Unreadable(Unreadable::Foreign) => "foreign",
            Self::Unreadable(Unreadable::Malformed) => "malformed",
            Self::Unreadable(Unreadable::HopLimit) => "hopLimit",
            Self::Unreadable(Unreadable::Checksum) => "checksum",
            Self::Own => "own",
            Self::NotOurs => "notOurs",
            Self::Flood => "flood",
        }
    }
}

impl PortCounters {
    pub(super) fn drop(&mut self, reason: Dropped) {
        *self.dropped.entry(reason).or_default() += 1;
    }
}
