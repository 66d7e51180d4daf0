//! Short way for the most frequent messages: requests with a question and at most an empty OPT record, and answers with
//! addresses of the asked name. Messages are the same as on the general way, with a fraction of the CPU time.

use std::net::IpAddr;

use hickory_proto::{
    op::{OpCode, Query, ResponseCode},
    rr::{DNSClass, Name, RecordType},
    serialize::binary::{BinDecodable as _, BinDecoder},
};
use model::discovery::dns;

use super::{EDNS_VERSION, HEADER_BYTES, OPT, Request, Transport, UDP_BYTES_MAX, reply::wire_form};

/// Bits of the first byte of the flags that a question may have: recursion desired, and bits without a meaning in it.
const FLAGS_HIGH: u8 = 0x07;
/// Bits of the second byte of the flags that a question may have: authentic data, and checking disabled.
const FLAGS_LOW: u8 = 0x30;
/// Size of an OPT record without options in bytes.
const OPT_BYTES: usize = 11;
/// Reference to the name of the question (RFC 1035 §4.1.4).
const ASKED_NAME: [u8; 2] = [0xc0, 12];

/// Reads a request. Returns `None` for one that only the general way can read, or that is malformed.
pub(super) fn read(packet: &[u8], transport: Transport, recursion_available: bool) -> Option<Request> {
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
    let name = Name::read(&mut BinDecoder::new(packet.get(HEADER_BYTES..=end)?)).ok()?;
    Some(Request {
        id: u16::from_be_bytes([id_high, id_low]),
        op_code: OpCode::Query,
        query: Query::query(name, RecordType::from(u16::from_be_bytes([type_high, type_low]))),
        has_edns: payload.is_some(),
        dnssec_ok,
        checking_disabled: low & 0x10 != 0,
        wants_authentic: low & 0x20 != 0,
        recursion_available,
        recursion_desired: high & 0x01 != 0,
        known_serial: None,
        limit: transport.limit(payload),
        signature: None,
        signer: None,
    })
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
            bytes.extend(self.opt_record(ResponseCode::NoError));
        }
        (bytes.len() <= self.limit).then_some(bytes)
    }

    /// Encodes the OPT record of a response, without options.
    fn opt_record(&self, code: ResponseCode) -> [u8; OPT_BYTES] {
        let [type_high, type_low] = OPT.to_be_bytes();
        let [size_high, size_low] = u16::try_from(UDP_BYTES_MAX).unwrap_or(u16::MAX).to_be_bytes();
        let flags = u8::from(self.dnssec_ok) << 7;
        [0, type_high, type_low, size_high, size_low, code.high(), EDNS_VERSION, flags, 0, 0, 0]
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
        let request = read(&question([1, 0], 1, None, &[]), Transport::Udp, true).unwrap();
        assert!(request.is_about("web.shop.svc.cluster.local"));
        for other in ["web.shop.svc.cluster", "a.web.shop.svc.cluster.local", "wec.shop.svc.cluster.local"] {
            assert!(!request.is_about(other), "{other}");
        }
    }
}
