//! Encoding of DNS messages: requests of clients and responses to them (RFC 1035 §4, RFC 6891), and the messages of
//! upstream servers.

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, HINFO, MX, NS, PTR, SOA, SRV, TXT},
    },
};
use model::discovery::dns::{self, DnsQuestion, RecordData, ZoneUpdate};

mod key;
mod notification;
mod plain;
mod relevant;
mod reply;
#[cfg(test)]
mod tests;
mod transfer;
mod tsig;
mod update;

pub(crate) use self::{
    key::QuestionKey,
    notification::{encode_notification, is_confirmation},
    plain::PlainRequest,
    reply::{Reply, ReplyKind, TtlLimits, denial_below, wire_form},
    transfer::{RecordChanges, TransferKind},
    tsig::Signer,
};
use self::{
    reply::{rotate_addresses, skip_name},
    tsig::Signature,
    update::read_update,
};

/// Maximum size of a name in wire format in bytes, with the final zero (RFC 1035 §3.1).
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Size of the header of a message in bytes.
const HEADER_BYTES: usize = 12;
/// Maximum size in bytes of a response over UDP to a client without EDNS (RFC 1035 §4.2.1).
const UDP_BYTES_MIN: usize = 512;
/// Maximum size in bytes of a response over UDP. Larger datagrams are fragmented on some paths, and fragments are
/// lost (DNS flag day 2020).
const UDP_BYTES_MAX: usize = 1232;
/// Maximum size of a message over TCP in bytes.
const TCP_BYTES_MAX: usize = 65_535;
/// Times of the start of authority in seconds that only secondary servers use: refresh, retry and expiration.
const SECONDARY_TIMES: (i32, i32, i32) = (7200, 1800, 86_400);
/// Maximum length of one string of a text record in bytes (RFC 1035 §3.3).
const STRING_BYTES_MAX: usize = 255;
/// Highest version of EDNS that is supported.
const EDNS_VERSION: u8 = 0;
/// Type of the OPT record (RFC 6891 §6.1.2).
const OPT: u16 = 41;
/// EDNS option with the extended error 3, "stale answer" (RFC 8914 §4.4).
const STALE_OPTION: [u8; 6] = [0, 15, 0, 2, 0, 3];
/// Time in seconds for which clients may cache the answer to a question for all types (RFC 8482 §4.2).
const ANY_TTL: u32 = 3600;

/// Transport protocol over which a request was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Datagram, with a response of limited size.
    Udp,
    /// Stream of messages with their lengths.
    Tcp,
}

/// Request with exactly one question of class IN.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    id: u16,
    op_code: OpCode,
    query: Query,
    has_edns: bool,
    /// True if the client wants signatures (RFC 3225).
    dnssec_ok: bool,
    checking_disabled: bool,
    /// True if the client wants to know whether an upstream server has verified the records.
    wants_authentic: bool,
    recursion_available: bool,
    /// True if the client wants the server to forward the question.
    pub(crate) recursion_desired: bool,
    /// Serial number of the start of authority in the request, from which a client wants an incremental transfer.
    known_serial: Option<u32>,
    /// Maximum size of the response in bytes.
    limit: usize,
    /// Signature that has not been verified.
    signature: Option<Box<Signature>>,
    /// Signs the responses, if the request has a valid signature.
    signer: Option<Box<Signer>>,
}

/// Result of parsing a request.
#[derive(Debug)]
pub(crate) enum ParseResult {
    /// Request with a question to answer.
    Question(Request),
    /// Update of the zone that is the question of the request.
    Update(Request, ZoneUpdate),
    /// Request that is answered with this error response.
    Error(Vec<u8>),
    /// Datagram without a response: too short, or a response itself.
    Ignored,
}

/// Records of a response.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(crate) answers: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) additional: Vec<Record>,
}

/// Response of an upstream server or the cache, in the form of [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedReply {
    /// Encoded message.
    pub(crate) bytes: Vec<u8>,
    /// True if the records have expired.
    pub(crate) is_stale: bool,
}

impl Transport {
    /// Returns the maximum size of a response in bytes to a client with the size `payload` in its OPT record.
    fn limit(self, payload: Option<u16>) -> usize {
        match self {
            Self::Udp => payload.map_or(UDP_BYTES_MIN, usize::from).clamp(UDP_BYTES_MIN, UDP_BYTES_MAX),
            Self::Tcp => TCP_BYTES_MAX,
        }
    }
}

/// Parses the request of a client. Responses to it say whether the server forwards questions: `recursion_available`.
pub(crate) fn parse(packet: &[u8], transport: Transport, recursion_available: bool) -> ParseResult {
    plain::read(packet, transport, recursion_available)
        .map_or_else(|| parse_any(packet, transport, recursion_available), ParseResult::Question)
}

/// Parses any request.
fn parse_any(packet: &[u8], transport: Transport, recursion_available: bool) -> ParseResult {
    let Some(header) = packet.first_chunk::<HEADER_BYTES>() else { return ParseResult::Ignored };
    let is_response = header[2] & 0x80 != 0;
    if is_response {
        return ParseResult::Ignored;
    }
    let id = u16::from_be_bytes([header[0], header[1]]);
    let op_code = OpCode::from_u8(header[2] >> 3 & 0xf);
    if !matches!(op_code, OpCode::Query | OpCode::Update) {
        return error(id, op_code, ResponseCode::NotImp);
    }
    let Ok(message) = Message::from_vec(packet) else { return error(id, op_code, ResponseCode::FormErr) };
    let [query] = &message.queries[..] else { return error(id, op_code, ResponseCode::FormErr) };
    let Ok(signature) = Signature::read(packet, &message) else {
        return error(id, op_code, ResponseCode::FormErr);
    };
    let edns = message.edns.as_ref();
    let request = Request {
        id,
        op_code,
        query: query.clone(),
        has_edns: edns.is_some(),
        dnssec_ok: edns.is_some_and(|edns| edns.flags().dnssec_ok),
        checking_disabled: message.metadata.checking_disabled,
        wants_authentic: message.metadata.authentic_data,
        recursion_available,
        recursion_desired: message.metadata.recursion_desired,
        known_serial: message.authorities.iter().find_map(|record| {
            let RData::SOA(start) = &record.data else { return None };
            Some(start.serial)
        }),
        limit: transport.limit(edns.map(Edns::max_payload)),
        signature: signature.map(Box::new),
        signer: None,
    };
    if edns.is_some_and(|edns| edns.version() > EDNS_VERSION) {
        return ParseResult::Error(request.fail(ResponseCode::BADVERS));
    }
    if query.query_class() != DNSClass::IN {
        return ParseResult::Error(request.fail(ResponseCode::Refused));
    }
    if op_code == OpCode::Query {
        return ParseResult::Question(request);
    }
    match read_update(&message) {
        Ok(update) => ParseResult::Update(request, update),
        Err(code) => ParseResult::Error(request.fail(code)),
    }
}

/// Returns true if an encoded response says that a question failed or was refused.
pub(crate) fn is_error(response: &[u8]) -> bool {
    let code = response.get(3).map(|flags| ResponseCode::from_low(flags & 0xf));
    !matches!(code, Some(ResponseCode::NoError | ResponseCode::NXDomain) | None)
}

/// Result of a question, by which questions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseClass {
    /// Records, or their absence at a name that exists.
    Answer,
    /// The name does not exist.
    NoName,
    /// The question failed or was refused.
    Error,
}

/// Returns the result in an encoded response.
pub(crate) fn response_class(response: &[u8]) -> ResponseClass {
    match response.get(3).map(|flags| ResponseCode::from_low(flags & 0xf)) {
        Some(ResponseCode::NoError) => ResponseClass::Answer,
        Some(ResponseCode::NXDomain) => ResponseClass::NoName,
        _ => ResponseClass::Error,
    }
}

/// Returns the name of the only question of an encoded response, in wire format and in the spelling of the client. `None` if
/// the name is longer than permitted.
pub(crate) fn name_of_response(response: &[u8]) -> Option<&[u8]> {
    let has_one_question = response.get(4..6) == Some(&[0, 1]);
    let end = skip_name(response, HEADER_BYTES).filter(|_| has_one_question)?;
    response.get(HEADER_BYTES..end).filter(|name| name.len() <= NAME_BYTES_MAX)
}

/// Turns an error response into one that tells the client to repeat the question over TCP.
pub(crate) fn truncate_error(response: &mut [u8]) {
    if let Some([_, _, high, low]) = response.first_chunk_mut() {
        *high |= 0x02;
        *low &= 0xf0;
    }
}

fn error(id: u16, op_code: OpCode, code: ResponseCode) -> ParseResult {
    ParseResult::Error(Message::error_msg(id, op_code, code).to_vec().unwrap_or_default())
}

impl Request {
    /// Returns the question in the form of the cluster zone. Bytes of labels that are not ASCII are replaced, so that
    /// such names do not exist.
    pub(crate) fn question(&self) -> DnsQuestion {
        let labels = self.query.name().iter().map(label_text);
        DnsQuestion { labels: labels.collect(), record_type: record_type(self.query.query_type()) }
    }

    /// Returns the asked name in the spelling of the client.
    pub(crate) fn name(&self) -> &Name {
        self.query.name()
    }

    /// Encodes a response without records.
    pub(crate) fn fail(&self, code: ResponseCode) -> Vec<u8> {
        self.encode(code, false, &Sections::default(), false)
    }

    /// Encodes the answer of the cluster zone. Lists of addresses and hosts are rotated by `turn`, so that
    /// clients that use the first one are spread, also if the list must be cut.
    pub(crate) fn answer(&self, answer: &dns::Answer, more: Vec<Record>, turn: usize) -> Vec<u8> {
        let addresses = if more.is_empty() { self.encode_addresses(answer, turn) } else { None };
        addresses.unwrap_or_else(|| self.answer_any(answer, more, turn))
    }

    /// Encodes any answer, as [`Self::answer`].
    fn answer_any(&self, answer: &dns::Answer, more: Vec<Record>, turn: usize) -> Vec<u8> {
        let code = match answer.code {
            dns::ResponseCode::NoError => ResponseCode::NoError,
            dns::ResponseCode::NxDomain => ResponseCode::NXDomain,
        };
        let records = |records: &[dns::Record]| {
            records.iter().filter_map(|record| self.record(record)).collect::<Vec<_>>()
        };
        let mut answers = records(&answer.answers);
        rotate(&mut answers, turn);
        answers.extend(more);
        let sections = Sections {
            answers,
            authority: records(&answer.authority),
            additional: records(&answer.additional),
        };
        self.encode_within_limit(code, sections)
    }

    /// Encodes a response. If it is too large, leaves out first the additional records and then answers, and marks the
    /// response as truncated if an answer is missing.
    fn encode_within_limit(&self, code: ResponseCode, mut sections: Sections) -> Vec<u8> {
        let mut bytes = self.encode(code, true, &sections, false);
        if bytes.len() > self.limit {
            sections.additional.clear();
            bytes = self.encode(code, true, &sections, false);
        }
        while bytes.len() > self.limit && !sections.answers.is_empty() {
            // In proportion, and at least one fewer.
            let kept = sections.answers.len() * self.limit / bytes.len();
            sections.answers.truncate(kept.min(sections.answers.len() - 1));
            bytes = self.encode(code, true, &sections, true);
        }
        bytes
    }

    /// Encodes a response that is a single message, with a signature if the request has one.
    fn encode(&self, code: ResponseCode, is_own: bool, sections: &Sections, is_truncated: bool) -> Vec<u8> {
        let message = self.encode_unsigned(code, is_own, sections, is_truncated);
        match &self.signer {
            Some(signer) => Signer::clone(signer).sign(message),
            None => message,
        }
    }

    fn encode_unsigned(
        &self,
        code: ResponseCode,
        is_own: bool,
        sections: &Sections,
        is_truncated: bool,
    ) -> Vec<u8> {
        let mut message = Message::new(self.id, MessageType::Response, self.op_code);
        message.metadata.authoritative = is_own;
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = self.recursion_available;
        message.metadata.truncation = is_truncated;
        message.metadata.response_code = code;
        message.add_query(self.query.clone());
        message.insert_answers(sections.answers.clone());
        message.insert_authorities(sections.authority.clone());
        message.insert_additionals(sections.additional.clone());
        if self.has_edns {
            let mut edns = Edns::new();
            edns.set_max_payload(u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX));
            edns.set_version(EDNS_VERSION);
            edns.set_rcode_high(code.high());
            edns.set_dnssec_ok(self.dnssec_ok);
            message.set_edns(edns);
        }
        message.to_vec().unwrap_or_default()
    }

    /// Encodes the answer to a question for all types at a name outside of the zone (RFC 8482 §4.2).
    pub(crate) fn any(&self) -> Vec<u8> {
        let data = RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()));
        let record = Record::from_rdata(self.query.name().clone(), ANY_TTL, data);
        self.encode(
            ResponseCode::NoError,
            false,
            &Sections { answers: vec![record], ..Sections::default() },
            false,
        )
    }

    /// True if the question is for all types.
    pub(crate) fn is_any(&self) -> bool {
        self.query.query_type() == RecordType::ANY
    }

    /// Encodes a response that tells the client to repeat the question over TCP.
    pub(crate) fn truncated(&self) -> Vec<u8> {
        self.encode(ResponseCode::NoError, false, &Sections::default(), true)
    }

    /// Encodes the response of an upstream server, given in the form of [`Reply`], for the client: with its id, its
    /// spelling of the question and its options. Addresses are rotated by `turn`. A response that is too large is
    /// truncated to the question.
    pub(crate) fn relay(&self, served: ServedReply, turn: usize) -> Vec<u8> {
        let ServedReply { mut bytes, is_stale } = served;
        let mut asked = wire_form(self.query.name());
        let is_same_length = skip_name(&bytes, HEADER_BYTES) == Some(HEADER_BYTES + asked.len());
        // A cached response that the name does not exist is that of all types.
        asked.extend(u16::from(self.query.query_type()).to_be_bytes());
        let question = bytes.get_mut(HEADER_BYTES..HEADER_BYTES + asked.len());
        let Some(question) = question.filter(|_| is_same_length) else {
            return self.fail(ResponseCode::ServFail);
        };
        question.copy_from_slice(&asked);
        RelayHeader {
            id: self.id,
            recursion_desired: self.recursion_desired,
            wants_authentic: self.wants_authentic || self.dnssec_ok,
            checking_disabled: self.checking_disabled,
        }
        .write(&mut bytes);
        rotate_addresses(&mut bytes, turn);
        if self.has_edns {
            let option: &[u8] = if is_stale { &STALE_OPTION } else { &[] };
            bytes.push(0);
            bytes.extend(OPT.to_be_bytes());
            bytes.extend(u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend([0, EDNS_VERSION, u8::from(self.dnssec_ok) << 7, 0, 0]);
            bytes.push(u8::try_from(option.len()).unwrap_or(0));
            bytes.extend(option);
            let additional = u16::from_be_bytes([bytes[10], bytes[11]]).saturating_add(1);
            bytes[10..12].copy_from_slice(&additional.to_be_bytes());
        }
        if bytes.len() > self.limit { self.truncated() } else { bytes }
    }

    /// Returns the question for an upstream server.
    pub(crate) fn key(&self) -> QuestionKey {
        QuestionKey {
            dnssec_ok: self.dnssec_ok,
            checking_disabled: self.checking_disabled,
            ..QuestionKey::plain(self.query.name(), self.query.query_type())
        }
    }

    /// Returns a question for the same type at another name, for an upstream server. `None` if the name is too long.
    pub(crate) fn key_about(&self, name: &str) -> Option<QuestionKey> {
        Some(QuestionKey::plain(&encode_name(name)?, self.query.query_type()))
    }

    /// Encodes a record. The name of the question is repeated in the spelling of the client. Returns `None` for a name
    /// that is too long for a message.
    fn record(&self, record: &dns::Record) -> Option<Record> {
        let is_asked = self.is_about(&record.owner);
        let owner = if is_asked { self.query.name().clone() } else { encode_name(&record.owner)? };
        Some(Record::from_rdata(owner, record.ttl, encode_data(&record.data)?))
    }
}

/// Parts of the header of a forwarded response that depend on the client.
#[derive(Debug, Clone, Copy)]
struct RelayHeader {
    id: u16,
    recursion_desired: bool,
    /// True if the client is told whether an upstream server has verified the records.
    wants_authentic: bool,
    checking_disabled: bool,
}

impl RelayHeader {
    /// Writes the parts into a response.
    fn write(self, bytes: &mut [u8]) {
        let Self { id, recursion_desired, wants_authentic, checking_disabled } = self;
        let Some([id_high, id_low, high, low]) = bytes.first_chunk_mut() else { return };
        [*id_high, *id_low] = id.to_be_bytes();
        let authentic = *low & 0x20 != 0 && wants_authentic;
        *high = 0x80 | u8::from(recursion_desired);
        *low = 0x80 | u8::from(authentic) << 5 | u8::from(checking_disabled) << 4 | *low & 0xf;
    }
}

/// Encodes type and value of a record. Returns `None` for a name that is too long for a message.
fn encode_data(data: &RecordData) -> Option<RData> {
    Some(match data {
        RecordData::A(address) => RData::A(A(*address)),
        RecordData::Aaaa(address) => RData::AAAA(AAAA(*address)),
        RecordData::Cname(name) => RData::CNAME(CNAME(encode_name(name)?)),
        RecordData::Ns(name) => RData::NS(NS(encode_name(name)?)),
        RecordData::Ptr(name) => RData::PTR(PTR(encode_name(name)?)),
        RecordData::Srv { priority, weight, port, target } => {
            RData::SRV(SRV::new(*priority, *weight, *port, encode_name(target)?))
        }
        RecordData::Soa { primary, mailbox, serial, minimum } => {
            let (refresh, retry, expire) = SECONDARY_TIMES;
            let (primary, mailbox) = (encode_name(primary)?, encode_name(mailbox)?);
            RData::SOA(SOA::new(primary, mailbox, *serial, refresh, retry, expire, *minimum))
        }
        RecordData::Mx { preference, exchange } => RData::MX(MX::new(*preference, encode_name(exchange)?)),
        RecordData::Txt(text) => {
            let strings = text.as_bytes().chunks(STRING_BYTES_MAX).collect();
            RData::TXT(TXT::from_bytes(strings))
        }
        RecordData::AnyRefused => RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new())),
    })
}

/// Returns the answers of an upstream server's response, to append them to an alias, with its result code. `None` if
/// the response cannot be decoded.
pub(crate) fn answers_of(response: &[u8]) -> Option<(ResponseCode, Vec<Record>)> {
    let message = Message::from_vec(response).ok()?;
    Some((message.metadata.response_code, message.answers))
}

/// Rotates the address records and hosts at the end of a list by `turn`. Other records stay in place.
fn rotate(answers: &mut [Record], turn: usize) {
    let is_choice =
        |record: &Record| matches!(record.record_type(), RecordType::A | RecordType::AAAA | RecordType::SRV);
    let start = answers.iter().position(is_choice).unwrap_or(answers.len());
    let choices = &mut answers[start..];
    if choices.len() > 1 {
        choices.rotate_left(turn % choices.len());
    }
}

/// Returns a label as text in lower case.
fn label_text(label: &[u8]) -> String {
    let text = String::from_utf8_lossy(label).to_ascii_lowercase();
    // A dot within a label separates nothing.
    if text.contains('.') { text.replace('.', "\u{fffd}") } else { text }
}

/// Returns a name as text in lower case, without the final dot.
fn text_of(name: &Name) -> String {
    name.iter().map(label_text).collect::<Vec<_>>().join(".")
}

fn encode_name(name: &str) -> Option<Name> {
    Name::from_labels(name.split('.').map(str::as_bytes)).ok()
}

/// Returns the type of a question in the form of the cluster zone.
fn record_type(wanted: RecordType) -> dns::RecordType {
    const TYPES: [(RecordType, dns::RecordType); 10] = [
        (RecordType::A, dns::RecordType::A),
        (RecordType::AAAA, dns::RecordType::Aaaa),
        (RecordType::CNAME, dns::RecordType::Cname),
        (RecordType::NS, dns::RecordType::Ns),
        (RecordType::PTR, dns::RecordType::Ptr),
        (RecordType::SOA, dns::RecordType::Soa),
        (RecordType::SRV, dns::RecordType::Srv),
        (RecordType::TXT, dns::RecordType::Txt),
        (RecordType::MX, dns::RecordType::Mx),
        (RecordType::ANY, dns::RecordType::Any),
    ];
    let found = TYPES.into_iter().find(|(of_message, _)| *of_message == wanted);
    found.map_or(dns::RecordType::Other, |(_, of_zone)| of_zone)
}
