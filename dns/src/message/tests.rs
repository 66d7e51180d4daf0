//! Tests of the encoding of messages.

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
    let record =
        |last| ZoneRecord { owner: owner.to_owned(), ttl: 5, data: RecordData::A([10, 0, 0, last].into()) };
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
        assert_eq!(message.answers[0].data, RData::A(A([10, 0, 0, 7].into())), "rotated before it is cut");
        assert_eq!(message.answers[0].name.to_ascii(), "WEB.shop.", "the spelling of the question");
    }
}

/// Every address is in some of the responses that are cut, because the list is rotated first.
#[test]
fn a_list_that_is_cut_starts_anywhere() {
    let request = request(&packet("web.shop", None), Transport::Udp);
    let answer = many("web.shop", 100);
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..100 {
        let message = Message::from_vec(&request.answer(&answer, Vec::new(), turn)).unwrap();
        assert!(message.metadata.truncation && !message.answers.is_empty() && message.answers.len() < 100);
        seen.extend(message.answers.iter().map(|record| record.data.to_string()));
    }
    assert_eq!(seen.len(), 100);
}

/// A message of which only the header can be read is answered with a header alone, so that the response is not larger than the message.
/// The limit on error responses applies to it.
#[test]
fn a_malformed_message_gets_the_header_alone() {
    let header = packet("web.shop", None)[..12].to_vec();
    for rest in [&[][..], &[63, b'a'], &[0xc0, 12, 0, 1, 0, 1], &[0xff; 40], &[3, b'w', b'w', b'w', 0, 0, 1]]
    {
        let ParseResult::Error(response) = parse(&[&header, rest].concat(), Transport::Udp, true) else {
            panic!("{rest:?}")
        };
        assert_eq!((response.len(), &response[..2], &response[4..]), (12, &header[..2], &[0; 8][..]));
        assert_eq!((response[2] & 0xf8, response[3] & 0xf), (0x80, 1), "a response with FORMERR");
        assert!(is_error(&response));
    }
}

/// An error response can be replaced by one that leads to TCP.
#[test]
fn an_error_is_recognized_and_truncated() {
    let request = request(&packet("web.shop", Some(1232)), Transport::Udp);
    for code in [ResponseCode::Refused, ResponseCode::ServFail, ResponseCode::FormErr] {
        let mut response = request.fail(code);
        assert!(is_error(&response));
        truncate_error(&mut response);
        let message = Message::from_vec(&response).unwrap();
        assert!(message.metadata.truncation && message.metadata.response_code == ResponseCode::NoError);
    }
    assert!(!is_error(&request.answer(&many("web.shop", 1), Vec::new(), 0)));
    assert!(!is_error(&request.fail(ResponseCode::NXDomain)) && !is_error(&[]));
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

/// Encodes the response of an upstream server to the question of [`packet`].
fn upstream_response(name: &str, edit: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message::new(9, MessageType::Response, OpCode::Query);
    message.add_query(Query::query(encode_name(name).unwrap(), RecordType::A));
    edit(&mut message);
    message.to_vec().unwrap()
}

fn address(name: &str, ttl: u32, last: u8) -> Record {
    Record::from_rdata(encode_name(name).unwrap(), ttl, RData::A(A([192, 0, 2, last].into())))
}

fn authority(ttl: u32, minimum: u32) -> Record {
    let name = |text| encode_name(text).unwrap();
    let data = SOA::new(name("ns.org"), name("mail.org"), 1, 1, 1, 1, minimum);
    Record::from_rdata(name("org"), ttl, RData::SOA(data))
}

const LIMITS: TtlLimits = TtlLimits { positive: 3600, negative: 300 };

fn reply(name: &str, edit: impl FnOnce(&mut Message)) -> Reply {
    let key = QuestionKey::plain(&encode_name(name).unwrap(), RecordType::A);
    Reply::parse(&key, &upstream_response(name, edit), LIMITS).unwrap()
}

/// A response to an update may have records without data, which a response to a question may not.
#[test]
fn a_response_to_another_operation_is_not_passed_on() {
    let key = QuestionKey::plain(&encode_name("www.example.org").unwrap(), RecordType::A);
    for op_code in [OpCode::Update, OpCode::Notify, OpCode::Status] {
        let response = upstream_response("www.example.org", |message| {
            message.metadata.op_code = op_code;
            message.add_answers([address("www.example.org", 60, 1)]);
        });
        assert!(Reply::parse(&key, &response, LIMITS).is_none(), "{op_code:?}");
    }
}

/// An answer of another name alone is none.
#[test]
fn a_response_for_another_name_is_not_passed_on() {
    let reply = reply("www.example.org", |message| {
        message.add_answers([address("bank.example.com", 60, 1)]);
    });
    assert_eq!((reply.kind, reply.lifetime), (ReplyKind::NoData, 0));
    assert!(Message::from_vec(&reply.aged(0)).unwrap().answers.is_empty());
}

/// A client gets a forwarded response with its own id, its own spelling, rotated addresses, the times that remain, and
/// with an OPT record only if it sent one.
#[test]
fn a_forwarded_response_is_that_of_the_client() {
    let reply = reply("www.example.org", |message| {
        message.add_answers([1, 2, 3].map(|last| address("WWW.Example.org", 60, last)));
        message.set_edns(Edns::new());
    });
    assert_eq!((reply.kind, reply.lifetime), (ReplyKind::Positive, 60));
    for payload in [None, Some(1232)] {
        let request = request(&packet("Www.eXample.Org", payload), Transport::Udp);
        let served = ServedReply { bytes: reply.aged(20), is_stale: payload.is_some() };
        let bytes = request.relay(served, 1);
        assert!(bytes.windows(7).any(|window| window == b"eXample"));
        let message = Message::from_vec(&bytes).unwrap();
        let expected = [2, 3, 1].map(|last| address("Www.eXample.Org", 40, last));
        assert_eq!((message.metadata.id, &message.answers[..]), (0x1234, &expected[..]));
        assert!(
            message
                .answers
                .iter()
                .all(|record| record.name.eq_ignore_root_case(&encode_name("Www.eXample.Org").unwrap()))
        );
        assert_eq!(message.edns.is_some(), payload.is_some());
        assert_eq!(
            message.edns.map_or(0, |edns| edns.options().options.len()),
            usize::from(payload.is_some())
        );
    }
    let stale = Message::from_vec(&reply.expired()).unwrap();
    assert!(stale.answers.iter().all(|record| record.ttl == 30));
}

#[test]
fn a_forwarded_response_that_is_too_large_is_truncated() {
    let large = reply("www.example.org", |message| {
        message.add_answers((0..100).map(|last| address("www.example.org", 60, last)));
    });
    let request = request(&packet("www.example.org", None), Transport::Udp);
    let cut =
        Message::from_vec(&request.relay(ServedReply { bytes: large.aged(0), is_stale: false }, 0)).unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    // A response to another question is none.
    let request = self::request(&packet("other.example.org", None), Transport::Udp);
    let failed =
        Message::from_vec(&request.relay(ServedReply { bytes: large.aged(0), is_stale: false }, 0)).unwrap();
    assert_eq!(failed.metadata.response_code, ResponseCode::ServFail);
}

/// The time for which a response may be cached: the shortest of its answers, or that of the start of authority
/// (RFC 2308 §5), within the limits.
#[test]
fn the_lifetime_of_a_response_follows_from_its_records() {
    let name = "www.example.org";
    let kind = |edit: fn(&mut Message)| {
        let reply = reply(name, edit);
        (reply.kind, reply.lifetime)
    };
    let alias = |message: &mut Message| {
        let data = RData::CNAME(CNAME(encode_name("other.org").unwrap()));
        message.add_answer(Record::from_rdata(encode_name("www.example.org").unwrap(), 7, data));
    };
    let aliased = reply(name, |message| {
        alias(message);
        message.add_answer(address("other.org", 60, 1));
    });
    assert_eq!((aliased.kind, aliased.lifetime), (ReplyKind::Positive, 7));
    assert_eq!(
        kind(|it| {
            it.add_answers([address("www.example.org", 9000, 1), address("www.example.org", 8000, 2)]);
        }),
        (ReplyKind::Positive, 3600)
    );
    assert_eq!(
        kind(|it| {
            it.add_answer(address("www.example.org", u32::MAX, 1));
        }),
        (ReplyKind::Positive, 0)
    );
    let no_data = |ttl, minimum| {
        let reply = reply(name, |message| {
            message.add_authority(authority(ttl, minimum));
        });
        (reply.kind, reply.lifetime)
    };
    assert_eq!(no_data(100, 20), (ReplyKind::NoData, 20));
    assert_eq!(no_data(10, 20), (ReplyKind::NoData, 10));
    assert_eq!(no_data(1000, 2000), (ReplyKind::NoData, 300));
    assert_eq!(kind(|_| ()), (ReplyKind::NoData, 0));
    let missing = |edit: fn(&mut Message)| {
        let reply = reply(name, |message| {
            message.metadata.response_code = ResponseCode::NXDomain;
            message.add_authority(authority(100, 20));
            edit(message);
        });
        (reply.kind, reply.lifetime)
    };
    assert_eq!(missing(|_| ()), (ReplyKind::NoName, 20));
    let behind_alias = reply(name, |message| {
        message.metadata.response_code = ResponseCode::NXDomain;
        message.add_authority(authority(100, 20));
        alias(message);
    });
    assert_eq!((behind_alias.kind, behind_alias.lifetime), (ReplyKind::NoData, 7));
    assert_eq!(kind(|it| it.metadata.response_code = ResponseCode::ServFail), (ReplyKind::Failure, 0));
}

/// The absence of a name is also that of all types and of the names below it: the response repeats the question of the
/// client.
#[test]
fn a_denial_serves_names_below() {
    let reply = reply("example.org", |message| {
        message.metadata.response_code = ResponseCode::NXDomain;
        message.add_authority(authority(100, 20));
    });
    let mut other = packet("example.org", None);
    let at = other.len() - 3;
    other[at] = 16;
    let served = ServedReply { bytes: reply.aged(5), is_stale: false };
    let message = Message::from_vec(&request(&other, Transport::Udp).relay(served, 0)).unwrap();
    assert_eq!(message.queries[0].query_type(), RecordType::TXT);
    let below = packet("a.B.example.org", None);
    let request = request(&below, Transport::Udp);
    let bytes = denial_below(&reply.aged(5), &request.key()).unwrap();
    let message = Message::from_vec(&request.relay(ServedReply { bytes, is_stale: false }, 0)).unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(
        (message.authorities[0].ttl, message.queries[0].name().to_string().as_str()),
        (15, "a.B.example.org.")
    );
}

/// Initial inputs of the fuzz target.
const CORPUS: [&[u8]; 11] = [
    include_bytes!("../../../fuzz/corpus/dns_message/addresses"),
    include_bytes!("../../../fuzz/corpus/dns_message/alias"),
    include_bytes!("../../../fuzz/corpus/dns_message/any"),
    include_bytes!("../../../fuzz/corpus/dns_message/chain"),
    include_bytes!("../../../fuzz/corpus/dns_message/headless_tcp"),
    include_bytes!("../../../fuzz/corpus/dns_message/missing"),
    include_bytes!("../../../fuzz/corpus/dns_message/request_with_records"),
    include_bytes!("../../../fuzz/corpus/dns_message/reverse"),
    include_bytes!("../../../fuzz/corpus/dns_message/service"),
    include_bytes!("../../../fuzz/corpus/dns_message/signed"),
    include_bytes!("../../../fuzz/corpus/dns_message/signed-update"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The properties of the fuzz target hold for its initial inputs with a few changed, added or missing bytes.
    #[test]
    fn the_properties_of_the_fuzz_target_hold(
        index in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 0..6),
    ) {
        let mut bytes = index.get(&CORPUS).to_vec();
        for (at, value, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = value,
                1 => bytes.insert(at, value),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        crate::fuzz_properties::dns_message(&bytes);
    }
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
                ParseResult::Update(request, _) => {
                    prop_assert_eq!(&request.fail(ResponseCode::Refused)[..2], &bytes[..2]);
                }
                ParseResult::Error(response) => prop_assert_eq!(&response[..2], &bytes[..2]),
                ParseResult::Ignored => {}
            }
        }
    }
}
