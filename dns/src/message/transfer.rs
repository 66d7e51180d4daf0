//! Messages of zone transfers (RFC 5936), of which each has a signature if the request has one. An incremental transfer is answered with the whole zone, as RFC 1995 §4 allows.

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

    fn sections(&self, records: &[dns::Record]) -> Sections {
        let answers = records.iter().filter_map(|record| self.record(record)).collect();
        Sections { answers, ..Sections::default() }
    }
}
