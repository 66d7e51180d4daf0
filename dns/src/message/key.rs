//! Questions to upstream servers, independent of the client that asks.

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query},
    rr::{Name, RecordType},
};

use super::UDP_BYTES_MAX;

/// Question of class IN to an upstream server. Clients whose questions have the same key get the same response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct QuestionKey {
    /// Name in lower case.
    pub(crate) name: Name,
    /// Type of the wanted records.
    pub(crate) record_type: RecordType,
    /// True if signatures are wanted (RFC 3225).
    pub(crate) dnssec_ok: bool,
    /// True if records are wanted whose signatures the upstream server finds invalid (RFC 4035 §3.2.2).
    pub(crate) checking_disabled: bool,
}

impl QuestionKey {
    /// Creates the key of a question without DNSSEC.
    pub(crate) fn plain(name: &Name, record_type: RecordType) -> Self {
        Self { name: name.to_lowercase(), record_type, dnssec_ok: false, checking_disabled: false }
    }

    pub(super) fn query(&self) -> Query {
        Query::query(self.name.clone(), self.record_type)
    }

    /// Encodes the question for an upstream server. Returns `None` if it cannot be encoded.
    pub(crate) fn encode(&self, id: u16) -> Option<Vec<u8>> {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = self.checking_disabled;
        // The response says whether the upstream server has verified the records (RFC 6840 §5.7).
        message.metadata.authentic_data = true;
        message.add_query(self.query());
        let mut edns = Edns::new();
        edns.set_max_payload(u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX));
        edns.set_dnssec_ok(self.dnssec_ok);
        message.set_edns(edns);
        message.to_vec().ok()
    }
}
