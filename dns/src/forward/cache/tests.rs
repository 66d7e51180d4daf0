//! Tests of the cache, with times that the tests choose.

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, SOA},
    },
};
use proptest::prelude::*;

use super::*;

const LIMITS: TtlLimits = TtlLimits { positive: 3600, negative: 300 };
const DAY: u64 = 86_400;

impl Cache {
    /// Finds a response to a question while the same servers are asked for all names.
    fn find(&mut self, key: &QuestionKey, now: Duration) -> LookupResult {
        self.find_in(key, &Name::root(), now)
    }
}

fn options(entries_max: usize) -> CacheOptions {
    CacheOptions {
        entries_max,
        negative_entries_max: entries_max,
        ttl_limits: LIMITS,
        stale_max: Duration::from_secs(DAY),
    }
}

fn name(text: &str) -> Name {
    Name::from_labels(text.split('.').map(str::as_bytes)).unwrap()
}

fn key(text: &str) -> QuestionKey {
    QuestionKey::plain(&name(text), RecordType::A)
}

fn reply(key: &QuestionKey, edit: impl FnOnce(&mut Message)) -> Reply {
    let mut message = Message::new(9, MessageType::Response, OpCode::Query);
    message.add_query(Query::query(key.name.clone(), key.record_type));
    edit(&mut message);
    Reply::parse(key, &message.to_vec().unwrap(), LIMITS).unwrap()
}

fn positive(key: &QuestionKey, ttl: u32, last: u8) -> Reply {
    let data = RData::A(A([192, 0, 2, last].into()));
    reply(key, |message| {
        message.add_answer(Record::from_rdata(key.name.clone(), ttl, data));
    })
}

fn negative(key: &QuestionKey, ttl: u32, code: ResponseCode) -> Reply {
    let data = SOA::new(name("ns.org"), name("mail.org"), 1, 1, 1, 1, ttl);
    reply(key, |message| {
        message.metadata.response_code = code;
        message.add_authority(Record::from_rdata(name("org"), ttl, RData::SOA(data)));
    })
}

const fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Returns the code, the first answer's last octet (0 without an answer) and the first record's TTL of a response.
fn shown(served: &ServedReply) -> (ResponseCode, u8, u32) {
    let message = Message::from_vec(&served.bytes).unwrap();
    let last = message.answers.first().map_or(0, |record| {
        let RData::A(address) = &record.data else { panic!("{record}") };
        address.0.octets()[3]
    });
    let ttl = message.answers.iter().chain(&message.authorities).map(|record| record.ttl).next().unwrap();
    (message.metadata.response_code, last, ttl)
}

fn fresh(found: LookupResult) -> (ResponseCode, u8, u32) {
    let LookupResult::Fresh { served, .. } = found else { panic!("{found:?}") };
    assert!(!served.is_stale);
    shown(&served)
}

/// A response is served with the time that remains until it expires, then as stale until the upstream servers answer
/// again, for a day at most.
#[test]
fn a_response_ages_expires_and_goes_stale() {
    let (mut cache, key) = (Cache::new(options(10)), key("www.example.org"));
    assert_eq!(cache.find(&key, at(0)), LookupResult::Missing);
    cache.store(&key, positive(&key, 60, 1), at(100));
    assert_eq!(fresh(cache.find(&key, at(100))), (ResponseCode::NoError, 1, 60));
    assert_eq!(fresh(cache.find(&key, at(159))), (ResponseCode::NoError, 1, 1));
    let stale = |cache: &mut Cache, secs| match cache.find(&key, at(secs)) {
        LookupResult::Stale { served, is_due } => {
            assert!(served.is_stale);
            assert_eq!(shown(&served), (ResponseCode::NoError, 1, 30));
            Some(is_due)
        }
        LookupResult::Missing => None,
        found @ LookupResult::Fresh { .. } => panic!("{found:?}"),
    };
    assert_eq!(stale(&mut cache, 160), Some(true));
    cache.fail(&key, at(160));
    // Until the servers are asked again, the response is served at once.
    assert_eq!(stale(&mut cache, 189), Some(false));
    assert_eq!(stale(&mut cache, 190), Some(true));
    assert_eq!(stale(&mut cache, 160 + DAY - 1), Some(true));
    assert_eq!(stale(&mut cache, 160 + DAY), None);
    cache.store(&key, positive(&key, 60, 1), at(200 + DAY));
    assert_eq!(fresh(cache.find(&key, at(200 + DAY))), (ResponseCode::NoError, 1, 60));
}

/// Questions with other types or DNSSEC flags have other responses.
#[test]
fn the_key_has_all_that_the_response_depends_on() {
    let (mut cache, key) = (Cache::new(options(10)), key("www.example.org"));
    cache.store(&key, positive(&key, 60, 1), at(0));
    let others = [
        QuestionKey { record_type: RecordType::AAAA, ..key.clone() },
        QuestionKey { dnssec_ok: true, ..key.clone() },
        QuestionKey { checking_disabled: true, ..key.clone() },
        QuestionKey { name: name("example.org"), ..key.clone() },
        QuestionKey { name: name("a.www.example.org"), ..key },
    ];
    for other in others {
        assert_eq!(cache.find(&other, at(1)), LookupResult::Missing, "{other:?}");
    }
}

/// A name without records of a type may have others; a name that does not exist has no names below it either
/// (RFC 8020).
#[test]
fn absence_covers_what_it_says() {
    let mut cache = Cache::new(options(10));
    let (empty, gone) = (key("empty.example.org"), key("gone.example.org"));
    cache.store(&empty, negative(&empty, 60, ResponseCode::NoError), at(0));
    cache.store(&gone, negative(&gone, 60, ResponseCode::NXDomain), at(0));
    let aaaa = |key: &QuestionKey| QuestionKey { record_type: RecordType::AAAA, ..key.clone() };
    assert_eq!(fresh(cache.find(&empty, at(20))), (ResponseCode::NoError, 0, 40));
    assert_eq!(cache.find(&aaaa(&empty), at(20)), LookupResult::Missing);
    assert_eq!(cache.find(&key("a.empty.example.org"), at(20)), LookupResult::Missing);
    for covered in [gone.clone(), aaaa(&gone), key("a.b.gone.example.org"), aaaa(&key("a.gone.example.org"))]
    {
        assert_eq!(fresh(cache.find(&covered, at(20))), (ResponseCode::NXDomain, 0, 40), "{covered:?}");
    }
    assert_eq!(cache.find(&key("notgone.example.org"), at(20)), LookupResult::Missing);
    assert_eq!(cache.find(&key("example.org"), at(20)), LookupResult::Missing);
    // Other servers are asked for the names of a zone below.
    for (zone, is_covered) in [("gone.example.org", true), ("b.gone.example.org", false)] {
        let found = cache.find_in(&key("a.b.gone.example.org"), &name(zone), at(20));
        assert_eq!(matches!(found, LookupResult::Fresh { .. }), is_covered, "{zone}");
    }
    let inspected = cache.inspect(&key("a.b.gone.example.org"), &Name::root(), at(20)).unwrap();
    assert_eq!(inspected.remaining, Some(at(40)), "an explanation has the absence of the name above");
    // An expired absence covers nothing below it.
    assert_eq!(cache.find(&key("a.gone.example.org"), at(60)), LookupResult::Missing);
}

/// After a later success, an absence is not served any more, neither fresh nor stale.
#[test]
fn a_success_ends_an_absence() {
    let mut cache = Cache::new(options(10));
    let (top, below) = (key("example.org"), key("www.example.org"));
    cache.store(&top, negative(&top, 300, ResponseCode::NXDomain), at(0));
    cache.store(&below, negative(&below, 300, ResponseCode::NXDomain), at(0));
    cache.store(&below, positive(&below, 0, 1), at(1));
    for key in [&top, &below] {
        assert_eq!(cache.find(key, at(2)), LookupResult::Missing);
    }
}

/// A response that is asked often is renewed shortly before it expires, but not while the servers fail.
#[test]
fn a_popular_response_is_renewed() {
    let (mut cache, key) = (Cache::new(options(10)), key("www.example.org"));
    let is_due = |cache: &mut Cache, secs| {
        matches!(cache.find(&key, at(secs)), LookupResult::Fresh { is_due: true, .. })
    };
    cache.store(&key, positive(&key, 100, 1), at(0));
    assert!(!is_due(&mut cache, 95) && !is_due(&mut cache, 96) && is_due(&mut cache, 97));
    cache.fail(&key, at(97));
    assert!(!is_due(&mut cache, 98));
    cache.store(&key, positive(&key, 100, 1), at(98));
    assert!((100..188).all(|secs| !is_due(&mut cache, secs)) && is_due(&mut cache, 188));
}

/// Failures, responses without a lifetime and very large ones are not cached; neither is anything without room.
#[test]
fn some_responses_are_not_cached() {
    let (mut cache, key) = (Cache::new(options(10)), key("www.example.org"));
    cache.store(&key, negative(&key, 60, ResponseCode::ServFail), at(0));
    cache.store(&key, positive(&key, 0, 1), at(0));
    let too_large = reply(&key, |message| {
        let record =
            |last: u16| Record::from_rdata(key.name.clone(), 60, RData::A(A((u32::from(last)).into())));
        message.add_answers((0..300).map(record));
    });
    assert!(too_large.size() > REPLY_BYTES_MAX);
    cache.store(&key, too_large, at(0));
    assert_eq!((cache.find(&key, at(0)), cache.sizes()), (LookupResult::Missing, (0, 0)));
    let mut none = Cache::new(options(0));
    none.store(&key, positive(&key, 60, 1), at(0));
    assert_eq!((none.find(&key, at(0)), none.sizes()), (LookupResult::Missing, (0, 0)));
}

/// Responses to few names at random times; the number identifies the response.
#[derive(Debug, Clone)]
enum CacheStep {
    Positive { key: usize, ttl: u32 },
    NoData { key: usize, ttl: u32 },
    NoName { key: usize, ttl: u32 },
    Fail { key: usize },
    Find { key: usize },
    Wait { secs: u64 },
}

const NAMES: [&str; 5] = ["org", "example.org", "www.example.org", "a.www.example.org", "other.org"];

fn step() -> impl Strategy<Value = CacheStep> {
    let key = 0..NAMES.len();
    prop_oneof![
        (key.clone(), 1_u32..100).prop_map(|(key, ttl)| CacheStep::Positive { key, ttl }),
        (key.clone(), 1_u32..100).prop_map(|(key, ttl)| CacheStep::NoData { key, ttl }),
        (key.clone(), 1_u32..100).prop_map(|(key, ttl)| CacheStep::NoName { key, ttl }),
        key.clone().prop_map(|key| CacheStep::Fail { key }),
        key.prop_map(|key| CacheStep::Find { key }),
        (0_u64..40).prop_map(|secs| CacheStep::Wait { secs }),
        Just(CacheStep::Wait { secs: DAY }),
    ]
}

proptest! {
    /// Compared with the list of all responses: one that has not expired is the last one for the name, or says that a
    /// name above does not exist; its TTL is the remaining time. A stale one is the last one, at most a day old. The sizes
    /// stay within the limits.
    #[test]
    fn only_responses_that_hold_are_served(steps in prop::collection::vec(step(), 1..120)) {
        let mut cache = Cache::new(options(3));
        let mut now = 0;
        // Name, time, TTL, code and number of each response.
        let mut log: Vec<(usize, u64, u32, ResponseCode, u8)> = Vec::new();
        for (number, step) in (1_u8..).zip(steps) {
            let store = |cache: &mut Cache, index: usize, reply: Reply| cache.store(&key(NAMES[index]), reply, at(now));
            match step {
                CacheStep::Positive { key: index, ttl } => {
                    store(&mut cache, index, positive(&key(NAMES[index]), ttl, number));
                    log.push((index, now, ttl, ResponseCode::NoError, number));
                }
                CacheStep::NoData { key: index, ttl } => {
                    store(&mut cache, index, negative(&key(NAMES[index]), ttl, ResponseCode::NoError));
                    log.push((index, now, ttl, ResponseCode::NoError, 0));
                }
                CacheStep::NoName { key: index, ttl } => {
                    store(&mut cache, index, negative(&key(NAMES[index]), ttl, ResponseCode::NXDomain));
                    log.push((index, now, ttl, ResponseCode::NXDomain, 0));
                }
                CacheStep::Fail { key: index } => cache.fail(&key(NAMES[index]), at(now)),
                CacheStep::Wait { secs } => now += secs,
                CacheStep::Find { key: index } => {
                    let last = log.iter().rfind(|(other, ..)| *other == index);
                    match cache.find(&key(NAMES[index]), at(now)) {
                        LookupResult::Missing => {}
                        LookupResult::Stale { served, .. } => {
                            let (_, stored, ttl, code, number) = *last.unwrap();
                            prop_assert_eq!(shown(&served), (code, number, 30));
                            let expiration = stored + u64::from(ttl);
                            prop_assert!((expiration..expiration + DAY).contains(&now));
                        }
                        LookupResult::Fresh { served, .. } => {
                            let found = shown(&served);
                            let holds = |(_, stored, ttl, code, number): &(usize, u64, u32, ResponseCode, u8)| {
                                let remaining = (stored + u64::from(*ttl)).checked_sub(now).filter(|ttl| *ttl > 0);
                                remaining.is_some_and(|ttl| found == (*code, *number, u32::try_from(ttl).unwrap()))
                            };
                            let above = log.iter().filter(|(other, _, _, code, _)| {
                                *code == ResponseCode::NXDomain && name(NAMES[*other]).zone_of(&name(NAMES[index]))
                            });
                            prop_assert!(last.into_iter().chain(above).any(holds), "{found:?} {log:?}");
                        }
                    }
                }
            }
            let (positive, negative) = cache.sizes();
            prop_assert!(positive <= 3 && negative <= 3);
        }
    }
}
