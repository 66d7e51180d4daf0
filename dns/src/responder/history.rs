//! Records of zones at earlier serial numbers, for incremental transfers (RFC 1995).
//!
//! The records of a zone are kept when they are transferred, so that zones without secondary name servers cost nothing.
//!
//! Invariant: a client gets differences only from a serial number whose records this server has sent to it. Another DNS
//! server may have given the same number to other records, to which the differences would not apply.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use model::discovery::dns::{Record, RecordData};

use crate::message::RecordChanges;

/// Maximum number of earlier serial numbers of one zone.
const DIFFERENCES_MAX: usize = 64;
/// Maximum number of clients for which it is known that they have the records of one serial number.
const CLIENTS_MAX: usize = 64;

/// Transferred records of all zones.
#[derive(Debug, Default)]
pub(super) struct TransferHistory(Mutex<BTreeMap<String, ZoneHistory>>);

/// Transferred records of one zone.
#[derive(Debug)]
struct ZoneHistory {
    /// Start of authority, records and clients at the newest serial number.
    start: Record,
    records: Arc<[Record]>,
    clients: BTreeSet<IpAddr>,
    /// Differences between earlier serial numbers, oldest first, with the clients of the number before.
    differences: VecDeque<(BTreeSet<IpAddr>, RecordChanges)>,
}

/// Content of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferContent {
    /// All records without the start of authority.
    Whole(Arc<[Record]>),
    /// Differences since the serial number that the client has, oldest first.
    Changes(Vec<RecordChanges>),
}

impl TransferHistory {
    /// Adds the sorted records of a zone at a start of authority, which a client receives. Returns the differences since
    /// the serial number `known` if the client has its records from this server and there are fewer differences than
    /// records; otherwise all records.
    pub(super) fn transfer(
        &self,
        start: &Record,
        records: Vec<Record>,
        client: IpAddr,
        known: Option<u32>,
    ) -> TransferContent {
        let records: Arc<[Record]> = records.into();
        let mut zones = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let history = zones.entry(start.owner.clone()).or_insert_with(|| ZoneHistory::new(start, &records));
        if !history.advance(start, &records) {
            return TransferContent::Whole(records);
        }
        let changes = known.and_then(|known| history.since(known, client));
        if history.clients.len() < CLIENTS_MAX {
            history.clients.insert(client);
        }
        changes.map_or(TransferContent::Whole(records), TransferContent::Changes)
    }

    /// Removes the zones that do not exist any longer.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|zone, _| exists(zone));
    }
}

impl ZoneHistory {
    fn new(start: &Record, records: &Arc<[Record]>) -> Self {
        let (start, records) = (start.clone(), Arc::clone(records));
        Self { start, records, clients: BTreeSet::new(), differences: VecDeque::new() }
    }

    /// Replaces the newest records. Returns false if they are older than those.
    fn advance(&mut self, start: &Record, records: &Arc<[Record]>) -> bool {
        let (old, new) = (serial(&self.start), serial(start));
        if old == new {
            if self.records != *records {
                *self = Self::new(start, records);
            }
            return true;
        }
        if !is_older(old, new) {
            return false;
        }
        let (before, after): (BTreeSet<_>, BTreeSet<_>) =
            (self.records.iter().collect(), records.iter().collect());
        let only = |of: &BTreeSet<&Record>, without: &BTreeSet<&Record>| {
            of.difference(without).copied().cloned().collect()
        };
        let changes = RecordChanges {
            from: self.start.clone(),
            to: start.clone(),
            removed: only(&before, &after),
            added: only(&after, &before),
        };
        self.differences.push_back((std::mem::take(&mut self.clients), changes));
        (self.start, self.records) = (start.clone(), Arc::clone(records));
        // More differences than records are worse than all records.
        while self.differences.len() > DIFFERENCES_MAX || self.changed_records() > self.records.len() {
            self.differences.pop_front();
        }
        true
    }

    fn changed_records(&self) -> usize {
        self.differences.iter().map(|(_, changes)| changes.len()).sum()
    }

    /// Returns the differences since a serial number that a client has.
    fn since(&self, known: u32, client: IpAddr) -> Option<Vec<RecordChanges>> {
        let first = self.differences.iter().position(|(clients, changes)| {
            serial(&changes.from) == Some(known) && clients.contains(&client)
        })?;
        Some(self.differences.range(first..).map(|(_, changes)| changes.clone()).collect())
    }
}

/// Returns the serial number of a start of authority.
fn serial(start: &Record) -> Option<u32> {
    let RecordData::Soa { serial, .. } = start.data else { return None };
    Some(serial)
}

/// Returns true if a serial number is older than another one (RFC 1982 §3.2).
fn is_older(number: Option<u32>, other: Option<u32>) -> bool {
    number.zip(other).is_some_and(|(number, other)| matches!(other.wrapping_sub(number), 1..=0x7fff_ffff))
}

/// Returns true if a client with the serial number `known` needs no transfer: the start of authority is not newer.
pub(super) fn is_current(start: &Record, known: u32) -> bool {
    !is_older(Some(known), serial(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn start(serial: u32) -> Record {
        let (primary, mailbox) = ("ns.example.org".to_owned(), "hostmaster.example.org".to_owned());
        let data = RecordData::Soa { primary, mailbox, serial, minimum: 5 };
        Record { owner: "example.org".to_owned(), ttl: 5, data }
    }

    fn records(numbers: std::ops::Range<u8>) -> Vec<Record> {
        let record = |number| Record {
            owner: format!("n{number:03}.example.org"),
            ttl: 5,
            data: RecordData::A([192, 0, 2, number].into()),
        };
        numbers.map(record).collect()
    }

    /// Returns the serial numbers and the numbers of removed and added records, or the number of all records.
    fn show(content: &TransferContent) -> Vec<(u32, u32, usize, usize)> {
        match content {
            TransferContent::Whole(records) => vec![(0, 0, records.len(), 0)],
            TransferContent::Changes(changes) => {
                let number = |record: &Record| serial(record).unwrap();
                let show = |changes: &RecordChanges| {
                    let (from, to) = (number(&changes.from), number(&changes.to));
                    (from, to, changes.removed.len(), changes.added.len())
                };
                changes.iter().map(show).collect()
            }
        }
    }

    /// A client gets the differences since the records that it has from this server, over several serial numbers.
    #[test]
    fn a_client_gets_the_differences_since_its_serial_number() {
        let history = TransferHistory::default();
        let transfer = |serial, numbers, client, known| {
            show(&history.transfer(&start(serial), records(numbers), client, known))
        };
        assert_eq!(transfer(10, 0..20, ONE, None), [(0, 0, 20, 0)]);
        assert_eq!(transfer(12, 1..20, OTHER, None), [(0, 0, 19, 0)]);
        assert_eq!(transfer(15, 1..22, ONE, Some(10)), [(10, 12, 1, 0), (12, 15, 0, 2)]);
        assert_eq!(transfer(15, 1..22, OTHER, Some(12)), [(12, 15, 0, 2)]);
        // A number that the client has from another server, and one that is not known.
        assert_eq!(transfer(15, 1..22, OTHER, Some(10)), [(0, 0, 21, 0)]);
        assert_eq!(transfer(15, 1..22, ONE, Some(11)), [(0, 0, 21, 0)]);
        // A transfer that began before the newest one.
        assert_eq!(transfer(12, 1..20, ONE, Some(10)), [(0, 0, 19, 0)]);
        assert_eq!(transfer(16, 1..22, ONE, Some(15)), [(15, 16, 0, 0)]);
        history.retain(|zone| zone != "example.org");
        assert_eq!(transfer(17, 1..22, ONE, Some(16)), [(0, 0, 21, 0)]);
    }

    /// The history has at most as many differences as the zone has records, and a limited number of serial numbers.
    #[test]
    fn the_history_is_bounded() {
        let history = TransferHistory::default();
        let transfer = |serial, numbers, known| {
            show(&history.transfer(&start(serial), records(numbers), ONE, Some(known)))
        };
        transfer(10, 0..20, 0);
        assert_eq!(transfer(11, 11..31, 10), [(0, 0, 20, 0)]);
        assert_eq!(transfer(12, 13..33, 11), [(11, 12, 2, 2)]);
        for serial in 13..100 {
            transfer(serial, 13..33, 12);
        }
        assert_eq!(transfer(100, 13..33, 36).len(), 64);
        assert_eq!(transfer(100, 13..33, 35), [(0, 0, 20, 0)]);
        assert_eq!(history.0.lock().unwrap()["example.org"].differences.len(), DIFFERENCES_MAX);
    }

    /// Serial numbers are compared around zero. A client with a newer number gets no transfer.
    #[test]
    fn serial_numbers_are_compared_around_zero() {
        assert!(is_current(&start(5), 5) && is_current(&start(5), 6) && !is_current(&start(5), 4));
        assert!(!is_current(&start(1), u32::MAX) && is_current(&start(u32::MAX), 1));
    }
}
