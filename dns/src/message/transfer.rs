//! Messages of zone transfers (RFC 5936, RFC 1995), of which each has a signature if the request has one.

use hickory_proto::{op::ResponseCode, rr::RecordType};
use model::discovery::dns;

use super::{Request, Sections};

/// Maximum number of records in one message. With the longest texts of DnsZones, these are less than 48 KiB.
const MESSAGE_RECORDS_MAX: usize = 32;

/// Type of a zone transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferKind {
    /// The client wants the whole zone (AXFR).
    Full,
    /// The client has the zone with this serial number and wants the changes (IXFR); `None` if the request has no start
    /// of authority.
    Incremental(Option<u32>),
}

/// Difference between the records of a zone at two serial numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordChanges {
    /// Start of authority before.
    pub(crate) from: dns::Record,
    /// Start of authority after.
    pub(crate) to: dns::Record,
    /// Records that the zone had before only.
    pub(crate) removed: Vec<dns::Record>,
    /// Records that the zone has after only.
    pub(crate) added: Vec<dns::Record>,
}

impl RecordChanges {
    /// Number of records that differ.
    pub(crate) const fn len(&self) -> usize {
        self.removed.len() + self.added.len()
    }
}

impl Request {
    /// Returns the type of the transfer if the client wants one.
    pub(crate) fn transfer_kind(&self) -> Option<TransferKind> {
        let wanted = self.query.query_type();
        if wanted == RecordType::AXFR {
            return Some(TransferKind::Full);
        }
        (wanted == RecordType::IXFR).then_some(TransferKind::Incremental(self.known_serial))
    }

    /// Encodes the start of authority alone: the answer to a client that has the zone, or that asked over UDP.
    pub(crate) fn start_of_zone(&self, start: &dns::Record) -> Vec<u8> {
        self.encode(ResponseCode::NoError, true, &self.sections(std::slice::from_ref(start)), false)
    }

    /// Encodes a whole zone: the start of authority, all other records, and the start of authority again.
    pub(crate) fn zone_messages(&self, start: dns::Record, others: Vec<dns::Record>) -> Vec<Vec<u8>> {
        let records = [vec![start.clone()], others, vec![start]].concat();
        let messages = records.chunks(MESSAGE_RECORDS_MAX);
        let messages = messages
            .map(|records| self.encode_unsigned(ResponseCode::NoError, true, &self.sections(records), false));
        let Some(signer) = &self.signer else { return messages.collect() };
        let mut signer = signer.clone();
        messages.map(|message| signer.sign(message)).collect()
    }

    /// Encodes differences, oldest first: the new start of authority; for each difference the start of authority before, the
    /// removed records, the start of authority after and the added records; and the new start of authority again (RFC 1995
    /// §4).
    pub(crate) fn change_messages(&self, start: dns::Record, changes: &[RecordChanges]) -> Vec<Vec<u8>> {
        let records = changes.iter().flat_map(|RecordChanges { from, to, removed, added }| {
            let (from, to) = (std::slice::from_ref(from), std::slice::from_ref(to));
            [from, removed, to, added].concat()
        });
        self.zone_messages(start, records.collect())
    }

    fn sections(&self, records: &[dns::Record]) -> Sections {
        let answers = records.iter().filter_map(|record| self.record(record)).collect();
        Sections { answers, ..Sections::default() }
    }
}
