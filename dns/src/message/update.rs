//! Messages of dynamic updates (RFC 2136).

use std::collections::BTreeMap;

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{DNSClass, Name, RData, Record, RecordType},
};
use model::discovery::dns::{self, Prerequisite, RecordChange, RecordData, ZoneUpdate};

use super::{record_type, text_of};

/// Maximum number of records in each section of an update.
const RECORDS_MAX: usize = 256;
/// Types of questions that no record has, other than ANY: transfers and their predecessors (RFC 2136 §3.4.1.2).
const QUESTION_TYPES: [u16; 4] = [251, 252, 253, 254];

/// Reads an update from a message. The zone is the question of the message.
///
/// # Errors
/// Returns FORMERR if the message is not an update of a zone, and REFUSED if it has too many records.
pub(super) fn read_update(message: &Message) -> Result<ZoneUpdate, ResponseCode> {
    let is_zone = message.queries.iter().all(|query| query.query_type() == RecordType::SOA);
    if !is_zone {
        return Err(ResponseCode::FormErr);
    }
    let (conditions, changes) = (&message.answers, &message.authorities);
    if conditions.len().max(changes.len()) > RECORDS_MAX {
        return Err(ResponseCode::Refused);
    }
    let changes = changes.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    Ok(ZoneUpdate { prerequisites: prerequisites(conditions)?, changes })
}

/// Reads the prerequisites (RFC 2136 §2.4). Records of class IN with the same name and type are one of them.
fn prerequisites(records: &[Record]) -> Result<Vec<Prerequisite>, ResponseCode> {
    let mut found = Vec::new();
    let mut sets = BTreeMap::<(String, dns::RecordType), Vec<RecordData>>::new();
    for record in records {
        let (name, wanted) = (text_of(&record.name), record.record_type());
        let (is_any, is_empty) = (wanted == RecordType::ANY, matches!(record.data, RData::Update0(_)));
        if record.ttl != 0 {
            return Err(ResponseCode::FormErr);
        }
        let wanted = record_type(wanted);
        match (record.dns_class, is_any, is_empty) {
            (DNSClass::ANY, true, true) => found.push(Prerequisite::NameInUse(name)),
            (DNSClass::ANY, false, true) => found.push(Prerequisite::SetExists(name, wanted)),
            (DNSClass::NONE, true, true) => found.push(Prerequisite::NameUnused(name)),
            (DNSClass::NONE, false, true) => found.push(Prerequisite::SetMissing(name, wanted)),
            (DNSClass::IN, false, false) => {
                // A value that no zone has differs from those of the zone.
                let value = decode_data(&record.data).unwrap_or(RecordData::AnyRefused);
                sets.entry((name, wanted)).or_default().push(value);
            }
            _ => return Err(ResponseCode::FormErr),
        }
    }
    let sets = sets
        .into_iter()
        .map(|((name, wanted), values)| Prerequisite::SetEquals(name, wanted, values.into_iter().collect()));
    found.extend(sets);
    Ok(found)
}

/// Reads a change (RFC 2136 §2.5).
fn change(record: &Record) -> Result<RecordChange, ResponseCode> {
    let (name, wanted) = (text_of(&record.name), record.record_type());
    if QUESTION_TYPES.contains(&u16::from(wanted)) {
        return Err(ResponseCode::FormErr);
    }
    let (is_any, is_empty) = (wanted == RecordType::ANY, matches!(record.data, RData::Update0(_)));
    // A value of another type is one that no zone has.
    let data = || decode_data(&record.data).unwrap_or(RecordData::AnyRefused);
    match (record.dns_class, is_any, is_empty, record.ttl) {
        (DNSClass::IN, false, false, ttl) => {
            Ok(RecordChange::Add(dns::Record { owner: name, ttl, data: data() }))
        }
        (DNSClass::ANY, true, true, 0) => Ok(RecordChange::RemoveName(name)),
        (DNSClass::ANY, false, true, 0) => Ok(RecordChange::RemoveSet(name, record_type(wanted))),
        (DNSClass::NONE, false, false, 0) => Ok(RecordChange::Remove(name, data())),
        _ => Err(ResponseCode::FormErr),
    }
}

/// Returns the value of a record of a type that zones have, or `None`. The strings of a text are joined.
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn decode_data(data: &RData) -> Option<RecordData> {
    let name = |name: &Name| text_of(name);
    match data {
        RData::A(address) => Some(RecordData::A(address.0)),
        RData::AAAA(address) => Some(RecordData::Aaaa(address.0)),
        RData::CNAME(target) => Some(RecordData::Cname(name(&target.0))),
        RData::NS(server) => Some(RecordData::Ns(name(&server.0))),
        RData::SRV(service) => Some(RecordData::Srv {
            priority: service.priority,
            weight: service.weight,
            port: service.port,
            target: name(&service.target),
        }),
        RData::MX(server) => {
            Some(RecordData::Mx { preference: server.preference, exchange: name(&server.exchange) })
        }
        RData::TXT(text) => {
            let bytes = text.txt_data.concat();
            Some(RecordData::Txt(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => None,
    }
}
