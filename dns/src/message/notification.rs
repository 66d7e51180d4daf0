//! Messages that notify a secondary name server of a change of a zone (RFC 1996).

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query},
    rr::{Record, RecordType},
};
use model::discovery::dns;

use super::{encode_data, encode_name, tsig::Signer};

/// Encodes the notification of a change with the new start of authority. Returns `None` for a name that is too long.
pub(crate) fn encode_notification(id: u16, start: &dns::Record) -> Option<Vec<u8>> {
    let zone = encode_name(&start.owner)?;
    let mut message = Message::new(id, MessageType::Query, OpCode::Notify);
    message.metadata.authoritative = true;
    message.add_query(Query::query(zone.clone(), RecordType::SOA));
    message.insert_answers(vec![Record::from_rdata(zone, start.ttl, encode_data(&start.data)?)]);
    message.to_vec().ok()
}

/// Returns true if a message is the response to the notification with this id. Secondary name servers that reject the
/// notification are not notified again. If the notification was signed, the response must be signed too, at about the time
/// `now` in seconds since 1970: one without a signature may come from another sender.
pub(crate) fn is_confirmation(packet: &[u8], id: u16, signer: Option<&Signer>, now: u64) -> bool {
    let Ok(message) = Message::from_vec(packet) else { return false };
    let metadata = &message.metadata;
    metadata.id == id
        && metadata.op_code == OpCode::Notify
        && metadata.message_type == MessageType::Response
        && signer.is_none_or(|signer| signer.verifies(packet, &message, now))
}
