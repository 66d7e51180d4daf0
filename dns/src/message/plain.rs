//! Short way for the most frequent messages: requests with a question and at most an empty OPT record, and answers with
//! addresses of the asked name. Messages are the same as on the general way, with a fraction of the CPU time.

use std::net::IpAddr;

use hickory_proto::{
    op::{OpCode, Query, ResponseCode},
    rr::{DNSClass, Name, RecordType},
    serialize::binary::{BinDecodable as _, BinDecoder},
};
use model::discovery::dns;

use super::{
    EDNS_VERSION, HEADER_BYTES, NAME_BYTES_MAX, OPT, RelayHeader, Reply, Request, Transport, UDP_BYTES_MAX,
    reply::{rotate_addresses, wire_form},
};

/// Bits of the first byte of the flags that a question may have: recursion desired, and bits without a meaning in it.
const FLAGS_HIGH: u8 = 0x07;
/// Bits of the second byte of the flags that a question may have: authentic data, and checking disabled.
const FLAGS_LOW: u8 = 0x30;
/// Types of address records.
const A: u16 = 1;
const AAAA: u16 = 28;
/// Size of an address record of the asked name in bytes, without its address.
const ADDRESS_RECORD_BYTES: usize = 12;
/// Size of an OPT record without options in bytes.
const OPT_BYTES: usize = 11;
/// Reference to the name of the question (RFC 1035 §4.1.4).
const ASKED_NAME: [u8; 2] = [0xc0, 12];

/// Request with a question and at most an empty OPT record, which refers to the packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainRequest<'p> {
    id: u16,
    /// Name in wire format in the spelling of the client.
    name: &'p [u8],
    record_type: u16,
    /// Size of responses in the OPT record, if there is one.
    payload: Option<u16>,
    dnssec_ok: bool,
    checking_disabled: bool,
    wants_authentic: bool,
    recursion_desired: bool,
    /// Maximum size of the response in bytes.
    limit: usize,
}

/// Reads a request. Returns `None` for one that only the general way can read, or that is malformed.
pub(super) fn read(packet: &[u8], transport: Transport, recursion_available: bool) -> Option<Request> {
    let plain = PlainRequest::read(packet, transport)?;
    let name = Name::read(&mut BinDecoder::new(plain.name)).ok()?;
    Some(Request {
        id: plain.id,
        op_code: OpCode::Query,
        query: Query::query(name, RecordType::from(plain.record_type)),
        has_edns: plain.payload.is_some(),
        dnssec_ok: plain.dnssec_ok,
        checking_disabled: plain.checking_disabled,
        wants_authentic: plain.wants_authentic,
        recursion_available,
        recursion_desired: plain.recursion_desired,
        known_serial: None,
        limit: plain.limit,
        signature: None,
        signer: None,
    })
}

impl<'p> PlainRequest<'p> {
    /// Reads a request. Returns `None` for one that only the general way can read, or that is malformed.
    pub(crate) fn read(packet: &'p [u8], transport: Transport) -> Option<Self> {
        let [id_high, id_low, high, low, 0, 1, 0, 0, 0, 0, 0, additional @ 0..=1] =
            *packet.first_chunk::<HEADER_BYTES>()?
        else {
            return None;
        };
        if high & !FLAGS_HIGH != 0 || low & !FLAGS_LOW != 0 {
            return None;
        }
        let mut end = HEADER_BYTES;
        while let length @ 1..=63 = usize::from(*packet.get(end)?) {
            end += 1 + length;
        }
        if *packet.get(end)? != 0 {
            return None;
        }
        let [type_high, type_low, 0, 1] = *packet.get(end + 1..)?.first_chunk()? else { return None };
        let rest = packet.get(end + 5..)?;
        let (payload, dnssec_ok) = if additional == 0 { (None, false) } else { read_opt(rest)? };
        if additional == 0 && !rest.is_empty() {
            return None;
        }
        Some(Self {
            id: u16::from_be_bytes([id_high, id_low]),
            name: packet.get(HEADER_BYTES..=end).filter(|name| name.len() <= NAME_BYTES_MAX)?,
            record_type: u16::from_be_bytes([type_high, type_low]),
            payload,
            dnssec_ok,
            checking_disabled: low & 0x10 != 0,
            wants_authentic: low & 0x20 != 0,
            recursion_desired: high & 0x01 != 0,
            limit: transport.limit(payload),
        })
    }

    /// Returns the asked name in wire format and in the spelling of the client.
    pub(crate) const fn name(&self) -> &'p [u8] {
        self.name
    }

    /// Returns the number of the asked type.
    pub(crate) const fn record_type(&self) -> u16 {
        self.record_type
    }

    /// Returns true if the client wants signatures.
    pub(crate) const fn dnssec_ok(&self) -> bool {
        self.dnssec_ok
    }

    /// Returns true if the client wants records whose signatures the upstream server finds invalid.
    pub(crate) const fn checking_disabled(&self) -> bool {
        self.checking_disabled
    }

    /// Returns true if the client wants the server to forward the question.
    pub(crate) const fn recursion_desired(&self) -> bool {
        self.recursion_desired
    }

    /// Writes the name as text in lower case and without the final dot into a buffer, if it consists of the characters of
    /// host names and is not too long.
    pub(crate) fn host_name<'b>(&self, buffer: &'b mut [u8; NAME_BYTES_MAX]) -> Option<&'b str> {
        let text = buffer.get_mut(..self.name.len().checked_sub(2)?)?;
        text.copy_from_slice(self.name.get(1..=text.len())?);
        let mut dot = usize::from(*self.name.first()?);
        for (at, byte) in text.iter_mut().enumerate() {
            if at == dot {
                dot += 1 + usize::from(*byte);
                *byte = b'.';
            } else if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
                byte.make_ascii_lowercase();
            } else {
                return None;
            }
        }
        std::str::from_utf8(text).ok()
    }

    /// Appends the response of an upstream server of `age` seconds to `response`, as [`Request::relay`]. Returns false, and
    /// appends nothing, if it is the response to another question or is too large.
    pub(crate) fn relay(&self, reply: &Reply, age: u32, turn: usize, response: &mut Vec<u8>) -> bool {
        let total = reply.size() + self.payload.map_or(0, |_| OPT_BYTES);
        let (start, end) = (response.len(), HEADER_BYTES + self.name.len());
        if total > self.limit {
            return false;
        }
        reply.append_aged(age, response);
        let bytes = response.get_mut(start..).unwrap_or_default();
        let asked = bytes.get_mut(HEADER_BYTES..end).filter(|asked| asked.eq_ignore_ascii_case(self.name));
        let Some(asked) = asked else {
            response.truncate(start);
            return false;
        };
        asked.copy_from_slice(self.name);
        let (id, recursion_desired) = (self.id, self.recursion_desired);
        let wants_authentic = self.wants_authentic || self.dnssec_ok;
        let checking_disabled = self.checking_disabled;
        RelayHeader { id, recursion_desired, wants_authentic, checking_disabled }.write(bytes);
        rotate_addresses(bytes, turn);
        if self.payload.is_some() {
            if let Some(count) = bytes.get_mut(10..12).and_then(|count| count.first_chunk_mut()) {
                *count = u16::from_be_bytes(*count).saturating_add(1).to_be_bytes();
            }
            response.extend(opt_record(ResponseCode::NoError, self.dnssec_ok));
        }
        true
    }

    /// Appends the response with the addresses of the wanted type to `response`, rotated by `turn`. Returns false, and
    /// appends nothing, if the question is not for addresses, there is none of the type, or the response is too large.
    pub(crate) fn answer(
        &self,
        recursion_available: bool,
        (addresses, ttl): (&[IpAddr], u32),
        turn: usize,
        response: &mut Vec<u8>,
    ) -> bool {
        let (is_v4, size) = match self.record_type {
            A => (true, 4),
            AAAA => (false, 16),
            _ => return false,
        };
        let wanted = || addresses.iter().filter(move |address| address.is_ipv4() == is_v4);
        let count = wanted().count();
        let end = HEADER_BYTES + self.name.len() + 4;
        let total = end + count * (ADDRESS_RECORD_BYTES + size) + self.payload.map_or(0, |_| OPT_BYTES);
        let Some(count16) = u16::try_from(count).ok().filter(|count| *count > 0 && total <= self.limit)
        else {
            return false;
        };
        response.reserve(total);
        response.extend(self.id.to_be_bytes());
        response.push(0x84 | u8::from(self.recursion_desired));
        response.push(u8::from(recursion_available) << 7);
        let [count_high, count_low] = count16.to_be_bytes();
        response.extend([0, 1, count_high, count_low, 0, 0, 0, u8::from(self.payload.is_some())]);
        response.extend_from_slice(self.name);
        response.extend(self.record_type.to_be_bytes());
        response.extend([0, 1]);
        let first = turn % count;
        for address in wanted().skip(first).chain(wanted().take(first)) {
            let [type_high, type_low] = self.record_type.to_be_bytes();
            let [ttl_a, ttl_b, ttl_c, ttl_d] = ttl.to_be_bytes();
            let [reference, offset] = ASKED_NAME;
            response.extend([reference, offset, type_high, type_low, 0, 1, ttl_a, ttl_b, ttl_c, ttl_d, 0]);
            match address {
                IpAddr::V4(address) => {
                    response.push(4);
                    response.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    response.push(16);
                    response.extend(address.octets());
                }
            }
        }
        if self.payload.is_some() {
            response.extend(opt_record(ResponseCode::NoError, self.dnssec_ok));
        }
        true
    }
}

/// Reads an OPT record without options at the end of a message (RFC 6891 §6.1.2): the size of responses, and true if
/// signatures are wanted.
fn read_opt(record: &[u8]) -> Option<(Option<u16>, bool)> {
    let record: [u8; OPT_BYTES] = record.try_into().ok()?;
    let [0, type_high, type_low, size_high, size_low, 0, EDNS_VERSION, flags, _, 0, 0] = record else {
        return None;
    };
    let is_opt = u16::from_be_bytes([type_high, type_low]) == OPT;
    is_opt.then(|| (Some(u16::from_be_bytes([size_high, size_low])), flags & 0x80 != 0))
}

/// Encodes the OPT record of a response, without options.
fn opt_record(code: ResponseCode, dnssec_ok: bool) -> [u8; OPT_BYTES] {
    let [type_high, type_low] = OPT.to_be_bytes();
    let [size_high, size_low] = u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX).to_be_bytes();
    let flags = u8::from(dnssec_ok) << 7;
    [0, type_high, type_low, size_high, size_low, code.high(), EDNS_VERSION, flags, 0, 0, 0]
}

impl Request {
    /// Encodes an answer that consists of addresses of the asked name. Returns `None` for other answers, and for one that
    /// is too large or must be signed.
    pub(super) fn encode_addresses(&self, answer: &dns::Answer, turn: usize) -> Option<Vec<u8>> {
        let dns::Answer { code: dns::ResponseCode::NoError, answers, authority, additional, chase: _ } =
            answer
        else {
            return None;
        };
        let is_plain = authority.is_empty() && additional.is_empty() && self.signer.is_none();
        let count = u16::try_from(answers.len()).ok().filter(|count| *count > 0 && is_plain)?;
        let [count_high, count_low] = count.to_be_bytes();
        let mut bytes = Vec::with_capacity(UDP_BYTES_MAX);
        bytes.extend(self.id.to_be_bytes());
        bytes.push(0x84 | u8::from(self.recursion_desired));
        bytes.push(u8::from(self.recursion_available) << 7);
        bytes.extend([0, 1, count_high, count_low, 0, 0, 0, u8::from(self.has_edns)]);
        bytes.extend(wire_form(self.query.name()));
        bytes.extend(u16::from(self.query.query_type()).to_be_bytes());
        bytes.extend(u16::from(self.query.query_class()).to_be_bytes());
        let (last, first) = answers.split_at(turn % answers.len());
        for record in first.iter().chain(last) {
            let address = record.data.address().filter(|_| self.is_about(&record.owner))?;
            let (record_type, size) =
                if address.is_ipv4() { (RecordType::A, 4) } else { (RecordType::AAAA, 16) };
            bytes.extend(ASKED_NAME);
            bytes.extend(u16::from(record_type).to_be_bytes());
            bytes.extend(u16::from(DNSClass::IN).to_be_bytes());
            bytes.extend(record.ttl.to_be_bytes());
            bytes.extend([0, size]);
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        if self.has_edns {
            bytes.extend(opt_record(ResponseCode::NoError, self.dnssec_ok));
        }
        (bytes.len() <= self.limit).then_some(bytes)
    }

    /// Returns true if the asked name is `name`, which is in lower case and has no final dot.
    pub(super) fn is_about(&self, name: &str) -> bool {
        let mut labels = name.split('.').map(str::as_bytes);
        self.query
            .name()
            .iter()
            .all(|asked| labels.next().is_some_and(|label| label.eq_ignore_ascii_case(asked)))
            && labels.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use model::discovery::dns::{Answer, Record, RecordData};
    use proptest::prelude::*;

    use super::{
        super::{ParseResult, parse_any},
        *,
    };

    /// Encodes a question with the given flags, an OPT record if `payload` is given, and more bytes.
    fn question(flags: [u8; 2], record_type: u16, payload: Option<u16>, more: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 2, flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, u8::from(payload.is_some())];
        bytes.extend(b"\x03wEb\x04shop\x03svc\x07cluster\x05local\0");
        bytes.extend(record_type.to_be_bytes());
        bytes.extend([0, 1]);
        if let Some(payload) = payload {
            bytes.extend([0, 0, 41]);
            bytes.extend(payload.to_be_bytes());
            bytes.extend([0, 0, 0x80, 0, 0, 0]);
        }
        bytes.extend(more);
        bytes
    }

    proptest! {
        /// A request that the short way reads is the same on the general way.
        #[test]
        fn short_and_general_way_read_the_same(
            flags: [u8; 2], record_type: u16, payload: Option<u16>, more in prop::collection::vec(any::<u8>(), 0..3),
            flips in prop::collection::vec((0_usize..60, any::<u8>()), 0..3), is_udp: bool,
        ) {
            let mut packet = question(flags, record_type, payload, &more);
            for (at, value) in flips {
                if let Some(byte) = packet.get_mut(at) {
                    *byte = value;
                }
            }
            let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
            if let Some(request) = read(&packet, transport, true) {
                let ParseResult::Question(other) = parse_any(&packet, transport, true) else {
                    panic!("{packet:?}");
                };
                prop_assert_eq!(format!("{request:?}"), format!("{other:?}"));
            }
        }

        /// An answer that the short way encodes is the same on the general way.
        #[test]
        fn short_and_general_way_encode_the_same(
            addresses in prop::collection::vec(any::<IpAddr>(), 1..60), payload: Option<u16>, turn: usize, ttl: u32,
            is_udp: bool,
        ) {
            let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
            let request = read(&question([1, 0], 1, payload, &[]), transport, true).unwrap();
            let data = |address: &IpAddr| match *address {
                IpAddr::V4(address) => RecordData::A(address),
                IpAddr::V6(address) => RecordData::Aaaa(address),
            };
            let owner = "web.shop.svc.cluster.local".to_owned();
            let record = |address: &IpAddr| Record { owner: owner.clone(), ttl, data: data(address) };
            let answer = Answer {
                code: dns::ResponseCode::NoError, answers: addresses.iter().map(record).collect(), authority: Vec::new(),
                additional: Vec::new(), chase: None,
            };
            // Without the general way.
            let packet = question([1, 0], 1, payload, &[]);
            let plain = PlainRequest::read(&packet, transport).unwrap();
            let mut bytes = vec![0xff];
            let v4: Vec<_> = addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
            let of_type = Answer { answers: v4.iter().map(record).collect(), ..answer.clone() };
            if plain.answer(true, (&addresses, ttl), turn, &mut bytes) {
                prop_assert_eq!(&bytes[1..], request.answer_any(&of_type, Vec::new(), turn));
            } else {
                prop_assert!(v4.is_empty() || v4.len() > 10);
                prop_assert_eq!(bytes.len(), 1);
            }
            if let Some(bytes) = request.encode_addresses(&answer, turn) {
                prop_assert_eq!(bytes, request.answer_any(&answer, Vec::new(), turn));
            } else {
                prop_assert!(addresses.len() > 10);
            }
        }
    }

    #[test]
    fn frequent_messages_take_the_short_way() {
        for payload in [None, Some(1232)] {
            let packet = question([1, 0x20], 28, payload, &[]);
            assert!(read(&packet, Transport::Udp, true).is_some(), "{payload:?}");
            // Bytes after the message.
            assert!(read(&question([1, 0], 1, payload, &[0]), Transport::Udp, true).is_none(), "{payload:?}");
        }
        let packet = question([1, 0], 1, None, &[]);
        let mut buffer = [0; NAME_BYTES_MAX];
        let plain = PlainRequest::read(&packet, Transport::Udp).unwrap();
        assert_eq!(plain.host_name(&mut buffer), Some("web.shop.svc.cluster.local"));
        let mut dotted = packet.clone();
        dotted[14] = b'.';
        assert_eq!(PlainRequest::read(&dotted, Transport::Udp).unwrap().host_name(&mut buffer), None);
        let request = read(&packet, Transport::Udp, true).unwrap();
        assert!(request.is_about("web.shop.svc.cluster.local"));
        for other in ["web.shop.svc.cluster", "a.web.shop.svc.cluster.local", "wec.shop.svc.cluster.local"] {
            assert!(!request.is_about(other), "{other}");
        }
    }
}
