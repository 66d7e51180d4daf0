//! Counters of addresses and interfaces in the layer-2 announcer.

use std::{collections::BTreeMap, time::Instant};

use crate::l2::wire::Unreadable;

/// Frames sent for one address since it was first set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressCounters {
    /// ARP replies and solicited Neighbor Advertisements sent.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited Neighbor Advertisements sent.
    pub gratuitous: u64,
    /// Time of the last gratuitous announcement.
    pub last_gratuitous: Option<Instant>,
}

/// Frame counters of one interface since it came up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Received frames that passed the socket filter.
    pub received: u64,
    /// ARP replies and solicited Neighbor Advertisements sent.
    pub replies: u64,
    /// Gratuitous ARP packets and unsolicited Neighbor Advertisements sent.
    pub gratuitous: u64,
    /// Frames that the kernel did not accept for sending.
    pub not_sent: u64,
    /// Numbers of received frames that were dropped, by reason.
    pub dropped: BTreeMap<DropReason, u64>,
}

/// Reason for which a received frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The frame could not be parsed.
    Unreadable(Unreadable),
    /// The frame was sent by this machine.
    Own,
    /// The frame concerns no address that this node announces or watches on this interface, or is addressed
    /// to another station.
    NotOurs,
    /// No reply, because the sender has already received the maximum number of replies for this address.
    Flood,
    /// No reply, because the request waited too long in the socket: the process was paused, and another node
    /// may have taken over and answered it.
    Late,
}

impl DropReason {
    /// Returns the name of the reason for metrics and the status.
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
            Self::Late => "late",
        }
    }
}

impl PortCounters {
    pub(super) fn drop(&mut self, reason: DropReason) {
        *self.dropped.entry(reason).or_default() += 1;
    }
}
