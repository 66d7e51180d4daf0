//! Encoding of DNS messages: requests of clients and responses to them (RFC 1035 §4, RFC 6891).

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, HINFO, NS, PTR, SOA, SRV, TXT},
    },
};
use model::discovery::dns::{self, DnsQuestion, RecordData};

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
/// Highest version of EDNS that is supported.
const EDNS_VERSION: u8 = 0;

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
    query: Query,
    has_edns: bool,
    recursion_available: bool,
    /// True if the client wants the server to forward the question.
    pub(crate) recursion_desired: bool,
    /// Maximum size of the response in bytes.
    limit: usize,
}

/// Result of parsing a request.
#[derive(Debug)]
pub(crate) enum ParseResult {
    /// Request with a question to answer.
    Question(Request),
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

/// Parses the request of a client. Responses to it say whether the server forwards questions: `recursion_available`.
pub(crate) fn parse(packet: &[u8], transport: Transport, recursion_available: bool) -> ParseResult {
    let Some(header) = packet.first_chunk::<HEADER_BYTES>() else { return ParseResult::Ignored };
    let is_response = header[2] & 0x80 != 0;
    if is_response {
        return ParseResult::Ignored;
    }
    let id = u16::from_be_bytes([header[0], header[1]]);
    let op_code = OpCode::from_u8(header[2] >> 3 & 0xf);
    if op_code != OpCode::Query {
        return error(id, op_code, ResponseCode::NotImp);
    }
    let Ok(message) = Message::from_vec(packet) else { return error(id, op_code, ResponseCode::FormErr) };
    let [query] = &message.queries[..] else { return error(id, op_code, ResponseCode::FormErr) };
    let edns = message.edns.as_ref();
    let payload = edns.map_or(UDP_BYTES_MIN, |edns| usize::from(edns.max_payload()));
    let request = Request {
        id,
        query: query.clone(),
        has_edns: edns.is_some(),
        recursion_available,
        recursion_desired: message.metadata.recursion_desired,
        limit: match transport {
            Transport::Udp => payload.clamp(UDP_BYTES_MIN, UDP_BYTES_MAX),
            Transport::Tcp => TCP_BYTES_MAX,
        },
    };
    if edns.is_some_and(|edns| edns.version() > EDNS_VERSION) {
        return ParseResult::Error(request.fail(ResponseCode::BADVERS));
    }
    if query.query_class() != DNSClass::IN {
        return ParseResult::Error(request.fail(ResponseCode::Refused));
    }
    ParseResult::Question(request)
}

fn error(id: u16, op_code: OpCode, code: ResponseCode) -> ParseResult {
    ParseResult::Error(Message::error_msg(id, op_code, code).to_vec().unwrap_or_default())
}

impl Request {
    /// Returns the question in the form of the cluster zone. Bytes of labels that are not ASCII are replaced, so that
    /// such names do not exist.
    pub(crate) fn question(&self) -> DnsQuestion {
        let labels = self.query.name().iter().map(|label| {
            let text = String::from_utf8_lossy(label).to_ascii_lowercase();
            // A dot within a label separates nothing.
            if text.contains('.') { text.replace('.', "\u{fffd}") } else { text }
        });
        DnsQuestion { labels: labels.collect(), record_type: record_type(self.query.query_type()) }
    }

    /// Encodes a response without records.
    pub(crate) fn fail(&self, code: ResponseCode) -> Vec<u8> {
        self.encode(code, false, &Sections::default(), false)
    }

    /// Encodes the answer of the cluster zone. Lists of addresses are rotated by `turn`, so that clients that use the
    /// first one are spread.
    pub(crate) fn answer(&self, answer: &dns::Answer, more: Vec<Record>, turn: usize) -> Vec<u8> {
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

    fn encode(&self, code: ResponseCode, is_own: bool, sections: &Sections, is_truncated: bool) -> Vec<u8> {
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
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
            message.set_edns(edns);
        }
        message.to_vec().unwrap_or_default()
    }

    /// Encodes the response of an upstream server for the client: with its own id, and truncated to the question if it
    /// is too large.
    pub(crate) fn relay(&self, mut response: Vec<u8>) -> Vec<u8> {
        if response.len() > self.limit {
            return self.encode(ResponseCode::NoError, false, &Sections::default(), true);
        }
        if let Some(id) = response.first_chunk_mut::<2>() {
            *id = self.id.to_be_bytes();
        }
        response
    }

    /// Encodes a question for the same type at another name, for an upstream server.
    pub(crate) fn ask_about(&self, name: &str) -> Option<Vec<u8>> {
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(encode_name(name)?, self.query.query_type()));
        let mut edns = Edns::new();
        edns.set_max_payload(u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX));
        message.set_edns(edns);
        message.to_vec().ok()
    }

    /// Encodes a record. The name of the question is repeated in the spelling of the client. Returns `None` for a name
    /// that is too long for a message.
    fn record(&self, record: &dns::Record) -> Option<Record> {
        let asked = self.query.name();
        let is_asked = asked
            .iter()
            .map(|label| label.to_ascii_lowercase())
            .eq(record.owner.split('.').map(|label| label.as_bytes().to_vec()));
        let owner = if is_asked { asked.clone() } else { encode_name(&record.owner)? };
        let data = match &record.data {
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
            RecordData::Txt(text) => RData::TXT(TXT::new(vec![text.clone()])),
            RecordData::AnyRefused => RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new())),
        };
        Some(Record::from_rdata(owner, record.ttl, data))
    }
}

/// Returns the answers of an upstream server's response, to append them to an alias, with its result code. `None` if
/// the response cannot be decoded.
pub(crate) fn answers_of(response: &[u8]) -> Option<(ResponseCode, Vec<Record>)> {
    let message = Message::from_vec(response).ok()?;
    Some((message.metadata.response_code, message.answers))
}

/// Rotates the address records at the end of a list by `turn`. Other records stay in place.
fn rotate(answers: &mut [Record], turn: usize) {
    let is_address = |record: &Record| matches!(record.record_type(), RecordType::A | RecordType::AAAA);
    let start = answers.iter().position(is_address).unwrap_or(answers.len());
    let addresses = &mut answers[start..];
    if addresses.len() > 1 {
        addresses.rotate_left(turn % addresses.len());
    }
}

fn encode_name(name: &str) -> Option<Name> {
    Name::from_labels(name.split('.').map(str::as_bytes)).ok()
}

/// Returns the type of a question in the form of the cluster zone.
fn record_type(wanted: RecordType) -> dns::RecordType {
    const TYPES: [(RecordType, dns::RecordType); 9] = [
        (RecordType::A, dns::RecordType::A),
        (RecordType::AAAA, dns::RecordType::Aaaa),
        (RecordType::CNAME, dns::RecordType::Cname),
        (RecordType::NS, dns::RecordType::Ns),
        (RecordType::PTR, dns::RecordType::Ptr),
        (RecordType::SOA, dns::RecordType::Soa),
        (RecordType::SRV, dns::RecordType::Srv),
        (RecordType::TXT, dns::RecordType::Txt),
        (RecordType::ANY, dns::RecordType::Any),
    ];
    let found = TYPES.into_iter().find(|(of_message, _)| *of_message == wanted);
    found.map_or(dns::RecordType::Other, |(_, of_zone)| of_zone)
}

#[cfg(test)]
mod tests {
    use model::discovery::dns::{Answer, Record as ZoneRecord};
    use proptest::prelude::*;

    use super::*;

    /// Encodes a question for the IPv4 addresses of a name, with EDNS if a size is given.
    fn packet(name: &str, payload: Option<u16>) -> Vec<u8> {
        let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(encode_name(name).unwrap(), RecordType::A));
        if let Some(payload) = payload {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            message.set_edns(edns);
        }
        message.to_vec().unwrap()
    }

    fn request(bytes: &[u8], transport: Transport) -> Request {
        let parsed = parse(bytes, transport, true);
        let ParseResult::Question(request) = parsed else { panic!("{parsed:?}") };
        request
    }

    fn code(parsed: ParseResult) -> ResponseCode {
        let ParseResult::Error(bytes) = parsed else { panic!("{parsed:?}") };
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!(message.metadata.id, 0x1234);
        message.metadata.response_code
    }

    /// Returns an answer with many addresses.
    fn many(owner: &str, count: u8) -> Answer {
        let record = |last| ZoneRecord {
            owner: owner.to_owned(),
            ttl: 5,
            data: RecordData::A([10, 0, 0, last].into()),
        };
        Answer {
            code: dns::ResponseCode::NoError,
            answers: (0..count).map(record).collect(),
            authority: Vec::new(),
            additional: vec![record(255)],
            chase: None,
        }
    }

    #[test]
    fn what_is_no_question_gets_an_error_or_nothing() {
        let good = packet("web.shop", None);
        let edited = |edit: fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            edit(&mut bytes);
            parse(&bytes, Transport::Udp, true)
        };
        assert!(matches!(edited(|bytes| bytes.truncate(11)), ParseResult::Ignored));
        assert!(matches!(edited(|bytes| bytes[2] |= 0x80), ParseResult::Ignored));
        assert_eq!(code(edited(|bytes| bytes[2] |= 0x20)), ResponseCode::NotImp);
        assert_eq!(code(edited(|bytes| bytes[5] = 0)), ResponseCode::FormErr);
        assert_eq!(code(edited(|bytes| bytes.truncate(14))), ResponseCode::FormErr);
        // Class CH.
        assert_eq!(code(edited(|bytes| *bytes.last_mut().unwrap() = 3)), ResponseCode::Refused);
        let mut future = packet("web.shop", Some(1232));
        // Version field of the OPT record: its last 6 bytes are the extended code, version, flags and length.
        let at = future.len() - 5;
        future[at] = 1;
        // BADVERS (RFC 6891 §9) has the number of BADSIG.
        assert_eq!(u16::from(code(parse(&future, Transport::Udp, true))), 16);
    }

    #[test]
    fn a_large_answer_is_cut_to_the_size_of_the_transport() {
        for (payload, transport, limit, is_cut) in [
            (None, Transport::Udp, 512, true),
            (Some(100), Transport::Udp, 512, true),
            (Some(4096), Transport::Udp, 1232, true),
            (None, Transport::Tcp, 65_535, false),
        ] {
            let request = request(&packet("WEB.shop", payload), transport);
            let bytes = request.answer(&many("web.shop", 200), Vec::new(), 7);
            assert!(bytes.len() <= limit, "{}", bytes.len());
            let message = Message::from_vec(&bytes).unwrap();
            assert_eq!((message.metadata.truncation, message.edns.is_some()), (is_cut, payload.is_some()));
            assert!(message.answers.len() > 20 && (message.answers.len() < 200) == is_cut);
            assert_eq!(
                message.answers[0].data,
                RData::A(A([10, 0, 0, 7].into())),
                "rotated before it is cut"
            );
            assert_eq!(message.answers[0].name.to_ascii(), "WEB.shop.", "the spelling of the question");
        }
    }

    /// Additional records are left out before answers, which is no truncation.
    #[test]
    fn additional_records_are_left_out_first() {
        let request = request(&packet("web.shop", None), Transport::Udp);
        let mut answer = many("web.shop", 5);
        answer.additional = many("other.shop", 100).answers;
        let message = Message::from_vec(&request.answer(&answer, Vec::new(), 0)).unwrap();
        assert_eq!(
            (message.metadata.truncation, message.answers.len(), message.additionals.len()),
            (false, 5, 0)
        );
    }

    #[test]
    fn a_forwarded_response_gets_the_id_of_the_client() {
        let request = request(&packet("web.shop", None), Transport::Udp);
        let mut response = packet("web.shop", None);
        response[..2].copy_from_slice(&[9, 9]);
        assert_eq!(request.relay(response.clone())[..2], [0x12, 0x34]);
        response.resize(600, 0);
        let cut = Message::from_vec(&request.relay(response)).unwrap();
        assert!(cut.metadata.truncation && cut.answers.is_empty());
    }

    proptest! {
        /// No bytes make the parser or the encoder fail, and every response has the id of the request.
        #[test]
        fn any_bytes_are_survived(start in prop::collection::vec(any::<u8>(), 0..64), flip in any::<(u16, u8)>(), payload in any::<Option<u16>>()) {
            let mut edited = packet("web.shop.svc.cluster.local", payload);
            let at = usize::from(flip.0) % edited.len();
            edited[at] ^= flip.1;
            for bytes in [start, edited] {
                match parse(&bytes, Transport::Udp, false) {
                    ParseResult::Question(request) => {
                        let labels = request.question().labels;
                        let answer = request.answer(&many(&labels.join("."), 50), Vec::new(), 3);
                        prop_assert!(answer.len() <= request.limit && answer[..2] == bytes[..2]);
                    }
                    ParseResult::Error(response) => prop_assert_eq!(&response[..2], &bytes[..2]),
                    ParseResult::Ignored => {}
                }
            }
        }
    }
}
