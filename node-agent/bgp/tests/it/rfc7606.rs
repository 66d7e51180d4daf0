//! Tests that malformed UPDATE messages are handled as RFC 7606 requires: every attribute with every
//! malformation.
//!
//! The table is derived from the RFCs, not from the code. Each row describes one attribute, which is placed
//! in an otherwise valid UPDATE.

use bgp::{
    Message, Notification, Update,
    wire::{Action, AttributeFault, Context, DecodedMessage, Malformation, decode},
};

/// Result of decoding an UPDATE that announces 10.0.0.0/8.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The routes are accepted; these attributes are malformed.
    Stands(Vec<(u8, Malformation)>),
    /// The routes are withdrawn because of this malformed attribute, possibly among others.
    Withdrawn(u8, Malformation),
    /// The session is reset with this subcode of UPDATE Message Error.
    Reset(u8),
}

/// Attribute type with a valid value, its possible malformations, and the expected actions.
struct Row {
    code: u8,
    flags: u8,
    /// Decoding context of a peer that may send the attribute.
    from: Context,
    good: Vec<u8>,
    /// Lengths in bytes that are invalid for the attribute.
    bad_lengths: &'static [usize],
    on_flags: Action,
    on_length: Action,
    on_value: Action,
    /// Values of valid length that are invalid for the attribute.
    bad_values: Vec<(Vec<u8>, Malformation)>,
}

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const PARTIAL: u8 = 0x20;
const EXTENDED: u8 = 0x10;

use Action::{Discard, ResetSession, TreatAsWithdraw};

use crate::messages::{self, EXTERNAL, INTERNAL, OLD, as_update, attribute, mandatory, update};

fn row(code: u8, flags: u8, good: &[u8], bad_lengths: &'static [usize], actions: [Action; 3]) -> Row {
    let [on_flags, on_length, on_value] = actions;
    Row {
        code,
        flags,
        from: INTERNAL,
        good: good.into(),
        bad_lengths,
        on_flags,
        on_length,
        on_value,
        bad_values: vec![],
    }
}

/// Returns a valid `MP_REACH_NLRI` with one IPv6 prefix.
fn reach() -> Vec<u8> {
    [&[0, 2, 1, 16], [0x20; 16].as_slice(), &[0, 16, 0x20, 0x01]].concat()
}

fn reach_with(at: usize, byte: u8) -> Vec<u8> {
    let mut value = reach();
    value[at] = byte;
    value
}

#[rustfmt::skip]
fn table() -> Vec<Row> {
    let w = [TreatAsWithdraw; 3];
    let discard = [TreatAsWithdraw, Discard, Discard];
    let both = OPTIONAL | TRANSITIVE;
    vec![
        // RFC 7606 §7.1
        Row {
            bad_values: vec![(vec![3], Malformation::Value), (vec![255], Malformation::Value)],
            ..row(1, TRANSITIVE, &[0], &[0, 2], w)
        },
        // §7.2; RFC 7607 §2; RFC 9774 §3; RFC 5065 §5. Every length is valid by itself.
        Row {
            bad_values: vec![
                (vec![0, 1, 0, 0, 0, 1], Malformation::SegmentType),
                (vec![5, 1, 0, 0, 0, 1], Malformation::SegmentType),
                (vec![2, 0], Malformation::SegmentLength),
                (vec![2], Malformation::SegmentLength),
                (vec![2, 1, 0, 0, 0, 1, 2], Malformation::SegmentLength),
                (vec![2, 2, 0, 0, 0, 1], Malformation::SegmentLength),
                (vec![2, 1, 0, 0, 1], Malformation::SegmentLength),
                (vec![2, 2, 0, 0, 0, 1, 0, 0, 0, 0], Malformation::AsZero),
                (vec![1, 1, 0, 0, 0, 1], Malformation::AsSet),
                (vec![3, 1, 0, 0, 0, 1], Malformation::ConfederationSegment),
                (vec![4, 1, 0, 0, 0, 1], Malformation::ConfederationSegment),
            ],
            ..row(2, TRANSITIVE, &[2, 1, 0, 0, 0, 1], &[], w)
        },
        // §7.3; RFC 4271 §6.3
        Row {
            bad_values: vec![
                (vec![0, 0, 0, 0], Malformation::Value),
                (vec![224, 0, 0, 1], Malformation::Value),
                (vec![255, 255, 255, 255], Malformation::Value),
            ],
            ..row(3, TRANSITIVE, &[192, 0, 2, 1], &[0, 3, 5, 16], w)
        },
        // §7.4
        row(4, OPTIONAL, &[0, 0, 0, 50], &[0, 3, 5], w),
        // §7.5, from an internal peer
        row(5, TRANSITIVE, &[0, 0, 0, 100], &[0, 3, 5], w),
        // §7.6
        row(6, TRANSITIVE, &[], &[1, 4], discard),
        // §7.7; RFC 7607 §2
        Row { bad_values: vec![(vec![0, 0, 0, 0, 192, 0, 2, 9], Malformation::AsZero)], ..row(7, both, &[0, 0, 0, 1, 192, 0, 2, 9], &[0, 6, 7, 9], discard) },
        Row { from: OLD, bad_values: vec![(vec![0, 0, 192, 0, 2, 9], Malformation::AsZero)], ..row(7, both, &[0, 1, 192, 0, 2, 9], &[0, 5, 7, 8], discard) },
        // §7.8
        row(8, both, &[0, 1, 0, 1], &[0, 3, 5, 6], w),
        // §7.9, from an internal peer
        row(9, OPTIONAL, &[192, 0, 2, 1], &[0, 3, 5], w),
        // §7.10, from an internal peer
        row(10, OPTIONAL, &[192, 0, 2, 1], &[0, 3, 5], w),
        // §5.3, §7.11
        Row {
            bad_values: vec![
                (reach_with(3, 4), Malformation::NextHopLength),
                (reach_with(3, 17), Malformation::NextHopLength),
                (reach_with(3, 255), Malformation::NextHopLength),
                (reach_with(1, 1), Malformation::NextHopLength),
                (reach_with(21, 129), Malformation::Prefixes),
                (reach_with(21, 17), Malformation::Prefixes),
            ],
            ..row(14, OPTIONAL, &reach(), &[0, 4], [ResetSession; 3])
        },
        // §5.3, §7.12
        Row {
            bad_values: vec![
                (vec![0, 2, 1, 129], Malformation::Prefixes),
                (vec![0, 2, 1, 16, 0x20], Malformation::Prefixes),
                (vec![0, 1, 1, 33, 10, 0, 0, 0, 0], Malformation::Prefixes),
            ],
            ..row(15, OPTIONAL, &[0, 2, 1, 16, 0x20, 0x01], &[0, 2], [ResetSession; 3])
        },
        // §7.14
        row(16, both, &[0, 2, 0, 1, 0, 0, 0, 1], &[0, 7, 9], w),
        // RFC 6793 §6
        Row {
            from: OLD,
            bad_values: vec![
                (vec![9, 1, 0, 0, 0, 1], Malformation::SegmentType),
                (vec![2, 2, 0, 0, 0, 1], Malformation::SegmentLength),
                (vec![2, 1, 0, 0, 0, 1, 2], Malformation::SegmentLength),
                (vec![2, 1, 0, 0, 0, 0], Malformation::AsZero),
            ],
            ..row(17, both, &[2, 1, 0, 0, 0, 1], &[0, 5], discard)
        },
        Row { from: OLD, bad_values: vec![(vec![0, 0, 0, 0, 192, 0, 2, 9], Malformation::AsZero)], ..row(18, both, &[0, 0, 0, 1, 192, 0, 2, 9], &[0, 6, 7, 9], discard) },
        // §7.15
        row(25, both, &[0; 20], &[0, 8, 19, 21], w),
        // RFC 8092 §6
        row(32, both, &[0; 12], &[0, 4, 8, 11, 13], w),
        // RFC 9234 §5
        row(35, both, &[0, 0, 0, 1], &[0, 3, 5], w),
    ]
}

fn outcome(bytes: &[u8], context: &Context) -> Outcome {
    let ours = "10.0.0.0/8".parse().unwrap();
    match decode(bytes, context) {
        Ok(DecodedMessage { message: Message::Update(update), faults }) => {
            let Update { withdrawn, announced, attributes, .. } = *update;
            assert_eq!(attributes.is_some(), announced.contains(&ours), "{bytes:02x?}");
            let blamed = |AttributeFault { attribute, why, .. }: &AttributeFault| (*attribute, *why);
            if announced.contains(&ours) {
                assert!(faults.iter().all(|fault| fault.action == Discard), "{faults:?}");
                return Outcome::Stands(faults.iter().map(blamed).collect());
            }
            assert!(withdrawn.contains(&ours), "{bytes:02x?}");
            let fault = faults.iter().find(|fault| fault.action == TreatAsWithdraw).unwrap();
            Outcome::Withdrawn(fault.attribute, fault.why)
        }
        Ok(other) => panic!("{other:?}"),
        Err(Notification { code, subcode, .. }) => {
            assert_eq!(code, 3);
            Outcome::Reset(subcode)
        }
    }
}

/// Returns the outcome of a valid UPDATE in which the attribute of the row's type is replaced by these
/// attributes.
fn with(replacement: &[Vec<u8>], row: &Row) -> Outcome {
    let mut list = mandatory(&row.from);
    list.retain(|attribute| attribute[1] != row.code);
    list.extend(replacement.iter().cloned());
    outcome(&update(&[], &list, &[8, 10]), &row.from)
}

/// Returns the expected outcome of an action. `subcode` is defined by RFC 4271 §6.3; for the attributes of
/// RFC 4760, it is 9 (§7 there).
fn expected(action: Action, code: u8, why: Malformation, subcode: u8) -> Outcome {
    match action {
        Discard => Outcome::Stands(vec![(code, why)]),
        TreatAsWithdraw => Outcome::Withdrawn(code, why),
        ResetSession => Outcome::Reset(if matches!(code, 14 | 15) { 9 } else { subcode }),
    }
}

#[test]
fn what_is_right_stands() {
    for row in table() {
        for flags in [row.flags, row.flags | PARTIAL, row.flags | EXTENDED, row.flags | 0x0f] {
            let outcome = with(&[attribute(flags, row.code, &row.good)], &row);
            assert_eq!(outcome, Outcome::Stands(vec![]), "attribute {} with flags {flags:#x}", row.code);
        }
    }
}

/// RFC 7606 §3 c, §5.3: an attribute with wrong Optional or Transitive bits causes the action that its RFC
/// defines.
#[test]
fn every_attribute_with_wrong_flags() {
    for row in table() {
        for wrong in [OPTIONAL, TRANSITIVE, OPTIONAL | TRANSITIVE] {
            let flags = row.flags ^ wrong;
            let outcome = with(&[attribute(flags, row.code, &row.good)], &row);
            let expected = expected(row.on_flags, row.code, Malformation::Flags, 4);
            assert_eq!(outcome, expected, "attribute {} with flags {flags:#x}", row.code);
        }
    }
}

/// RFC 7606 §4, §7: an attribute with an invalid length causes the action that its RFC defines.
#[test]
fn every_attribute_with_wrong_lengths() {
    for row in table() {
        for length in row.bad_lengths {
            let value: Vec<u8> = row.good.iter().copied().chain([1; 20]).take(*length).collect();
            let outcome = with(&[attribute(row.flags, row.code, &value)], &row);
            let expected = expected(row.on_length, row.code, Malformation::Length, 5);
            assert_eq!(outcome, expected, "attribute {} with length {length}", row.code);
        }
    }
}

/// RFC 7606 §5.3, §7: an attribute with an invalid value causes the action that its RFC defines.
#[test]
fn every_attribute_with_wrong_values() {
    for row in table() {
        for (value, why) in &row.bad_values {
            let outcome = with(&[attribute(row.flags, row.code, value)], &row);
            let expected = expected(row.on_value, row.code, *why, 9);
            assert_eq!(outcome, expected, "attribute {} with value {value:02x?}", row.code);
        }
    }
}

/// RFC 7606 §3 g: if an attribute occurs several times, the first occurrence is used; a repeated attribute
/// that contains prefixes resets the session.
#[test]
fn every_attribute_twice() {
    for row in table() {
        let good = attribute(row.flags, row.code, &row.good);
        let bad = attribute(row.flags ^ OPTIONAL, row.code, &[]);
        let outcome = with(&[good.clone(), bad, good.clone()], &row);
        match row.code {
            14 | 15 => assert_eq!(outcome, Outcome::Reset(1)),
            code => assert_eq!(outcome, Outcome::Stands(vec![(code, Malformation::Duplicate)])),
        }
    }
    let unknown = attribute(OPTIONAL | TRANSITIVE, 99, &[]);
    let list = [mandatory(&EXTERNAL), vec![unknown.clone(), unknown]].concat();
    let outcome = outcome(&update(&[], &list, &[8, 10]), &EXTERNAL);
    assert_eq!(outcome, Outcome::Stands(vec![(99, Malformation::Duplicate)]));
}

/// RFC 7606 §4: if an attribute extends beyond the attribute field, the routes are treated as withdrawn,
/// because the length of the field still shows where the prefixes start. If the attribute itself contains
/// prefixes, the session is reset.
#[test]
fn every_attribute_beyond_the_list() {
    for row in table() {
        let good = attribute(row.flags, row.code, &row.good);
        let mut long = good.clone();
        long[2] = 200;
        let is_multi_protocol = matches!(row.code, 14 | 15);
        for last in [long.as_slice(), &good[..2]] {
            let outcome = with(&[last.to_vec()], &row);
            let expected = if is_multi_protocol {
                Outcome::Reset(1)
            } else {
                Outcome::Withdrawn(row.code, Malformation::Overrun)
            };
            assert_eq!(outcome, expected, "attribute {} as {last:02x?}", row.code);
        }
        let extended = [row.flags | EXTENDED, row.code, 0];
        let outcome = with(&[extended.to_vec()], &row);
        assert_eq!(outcome == Outcome::Reset(1), is_multi_protocol, "attribute {}: {outcome:?}", row.code);
    }
    let list = [mandatory(&EXTERNAL), vec![vec![0x40]]].concat();
    let outcome = outcome(&update(&[], &list, &[8, 10]), &EXTERNAL);
    assert_eq!(outcome, Outcome::Withdrawn(0, Malformation::Overrun));
}

/// RFC 7606 §3 d: routes without a mandatory attribute are withdrawn.
#[test]
fn every_mandatory_attribute_missing() {
    for code in 1..=3 {
        let mut list = mandatory(&EXTERNAL);
        list.retain(|attribute| attribute[1] != code);
        let outcome = outcome(&update(&[], &list, &[8, 10]), &EXTERNAL);
        assert_eq!(outcome, Outcome::Withdrawn(code, Malformation::Missing));
    }
    assert_eq!(outcome(&update(&[], &[], &[8, 10]), &EXTERNAL), Outcome::Withdrawn(1, Malformation::Missing));
    // RFC 4760 §3: with MP_REACH_NLRI alone NEXT_HOP is not required, and is ignored if present.
    let reach = attribute(OPTIONAL, 14, &reach());
    let routes = |list: &[Vec<u8>]| {
        let update = as_update(decode(&update(&[], list, &[]), &EXTERNAL).unwrap().message);
        (update.announced.len(), update.withdrawn.len())
    };
    let list = [vec![reach.clone()], mandatory(&EXTERNAL)[..2].to_vec()].concat();
    assert_eq!(routes(&list), (1, 0));
    assert_eq!(routes(&[list.clone(), vec![attribute(0x40, 3, &[0; 4])]].concat()), (1, 0));
    assert_eq!(routes(&list[..2]), (0, 1), "no AS_PATH");
    assert_eq!(routes(&[reach]), (0, 1), "nothing");
}

/// RFC 7606 §7.5, §7.9, §7.10, RFC 6793 §6: an attribute that this peer must not send is discarded,
/// regardless of its value.
#[test]
fn attributes_that_this_peer_must_not_send() {
    for (code, flags, context) in [
        (5, 0x40, EXTERNAL),
        (9, 0x80, EXTERNAL),
        (10, 0x80, EXTERNAL),
        (17, 0xc0, EXTERNAL),
        (18, 0xc0, INTERNAL),
    ] {
        for value in [&[0, 0, 0, 100][..], &[][..], &[1, 2, 3][..]] {
            let list = [mandatory(&context), vec![attribute(flags, code, value)]].concat();
            let bytes = update(&[], &list, &[8, 10]);
            assert_eq!(outcome(&bytes, &context), Outcome::Stands(vec![(code, Malformation::Misplaced)]));
            let read = as_update(decode(&bytes, &context).unwrap().message);
            assert_eq!(read.attributes.unwrap().local_pref, None);
        }
    }
}

/// RFC 4271 §6.3, §9: an unknown optional attribute is ignored, and an unknown well-known attribute resets
/// the session.
#[test]
fn attributes_that_nobody_knows() {
    for code in [0, 11, 19, 40, 99, 255] {
        for (flags, stands) in [(0x80, true), (0xc0, true), (0xe0, true), (0x40, false), (0x00, false)] {
            let unknown = attribute(flags, code, &[1, 2]);
            let list = [mandatory(&EXTERNAL), vec![unknown.clone()]].concat();
            let bytes = update(&[], &list, &[8, 10]);
            let expected = if stands { Outcome::Stands(vec![]) } else { Outcome::Reset(2) };
            assert_eq!(outcome(&bytes, &EXTERNAL), expected, "attribute {code} with flags {flags:#x}");
            if !stands {
                assert_eq!(decode(&bytes, &EXTERNAL).unwrap_err().data, unknown);
            }
        }
    }
}

/// RFC 4271 §6.3, RFC 7606 §3 b, i and j, §5.3: a message whose prefixes cannot all be read resets the
/// session, because treat-as-withdraw needs every prefix.
#[test]
fn fields_that_do_not_fit_end_the_session() {
    let list = mandatory(&EXTERNAL);
    for (bytes, subcode, why) in [
        (update(&[33, 0, 0, 0, 0, 0], &[], &[]), 10, "withdrawn prefix too long for IPv4"),
        (update(&[32, 10, 0, 0], &[], &[]), 10, "withdrawn prefix beyond its field"),
        (update(&[], &list, &[33, 0, 0, 0, 0, 0]), 10, "announced prefix too long for IPv4"),
        (update(&[], &list, &[24, 10, 0]), 10, "announced prefix beyond the message"),
        (messages::frame(2, &[0, 1, 0, 0]), 1, "withdrawn routes beyond the message"),
        (messages::frame(2, &[0, 0, 0, 1]), 1, "attributes beyond the message"),
        (messages::frame(2, &[0, 3, 0, 0]), 1, "nothing behind the withdrawn routes"),
    ] {
        assert_eq!(outcome(&bytes, &EXTERNAL), Outcome::Reset(subcode), "{why}");
    }
}

/// RFC 7606 §3 h: if several attributes are malformed, the strongest action applies.
#[test]
fn the_strongest_action_is_taken() {
    let aggregate = attribute(0x40, 6, &[1]);
    let communities = attribute(0xc0, 8, &[1]);
    let reach = attribute(0x80, 14, &[0]);
    let of = |attributes: &[&Vec<u8>]| {
        let more = attributes.iter().map(|attribute| (*attribute).clone()).collect();
        outcome(&update(&[], &[mandatory(&EXTERNAL), more].concat(), &[8, 10]), &EXTERNAL)
    };
    let withdrawn = Outcome::Withdrawn(8, Malformation::Length);
    assert_eq!(of(&[&aggregate]), Outcome::Stands(vec![(6, Malformation::Length)]));
    assert_eq!(of(&[&aggregate, &communities]), withdrawn);
    assert_eq!(of(&[&communities, &aggregate]), withdrawn);
    assert_eq!(of(&[&communities, &aggregate, &reach]), Outcome::Reset(9));
    assert_eq!(of(&[&reach, &communities]), Outcome::Reset(9));
}

/// RFC 7606 §5.2: a malformed attribute in a message without announced routes resets the session, because the
/// intended routes are unknown.
#[test]
fn a_malformed_attribute_without_routes_ends_the_session() {
    let bad = |code: u8, flags: u8| [mandatory(&EXTERNAL), vec![attribute(flags, code, &[1, 2, 3])]].concat();
    let unreach = attribute(0x80, 15, &[0, 2, 1, 16, 0x20, 0x01]);
    for (withdrawn, more) in [(&[][..], vec![]), (&[8, 10][..], vec![]), (&[][..], vec![unreach])] {
        let refused =
            decode(&update(withdrawn, &[bad(8, 0xc0), more.clone()].concat(), &[]), &EXTERNAL).unwrap_err();
        // The data of the error is the attribute (RFC 4271 §6.3).
        assert_eq!(refused, Notification { code: 3, subcode: 5, data: attribute(0xc0, 8, &[1, 2, 3]) });
        let taken = decode(&update(withdrawn, &[bad(6, 0x40), more].concat(), &[]), &EXTERNAL).unwrap();
        assert_eq!(taken.faults.len(), 1, "what is left out ends nothing");
    }
}

/// If an attribute is malformed, all announced routes of the message, of both families, are treated as
/// withdrawn, together with the routes that the message withdraws explicitly.
#[test]
fn all_routes_of_a_message_are_withdrawn() {
    let reach = attribute(0x80, 14, &reach());
    let unreach = attribute(0x80, 15, &[0, 2, 1, 8, 0x30]);
    let list = [vec![reach, unreach], mandatory(&EXTERNAL), vec![attribute(0xc0, 8, &[1])]].concat();
    let read = as_update(decode(&update(&[8, 11], &list, &[8, 10]), &EXTERNAL).unwrap().message);
    let withdrawn = ["11.0.0.0/8", "3000::/8", "10.0.0.0/8", "2001::/16"].map(|text| text.parse().unwrap());
    assert_eq!(read.withdrawn, withdrawn);
    assert_eq!((read.announced, read.attributes), (vec![], None));
}

/// RFC 9774 §3: routes whose path contains an `AS_SET` are withdrawn, even if only the 2-octet path contains
/// it.
#[test]
fn routes_with_sets_are_withdrawn_whichever_path_has_them() {
    let list = [mandatory(&OLD), vec![attribute(0xc0, 17, &[1, 1, 0, 1, 0, 0])]].concat();
    assert_eq!(outcome(&update(&[], &list, &[8, 10]), &OLD), Outcome::Withdrawn(17, Malformation::AsSet));
    let member = Context { is_confederation: true, ..EXTERNAL };
    for (segment, expected) in [(3, Outcome::Stands(vec![])), (4, Outcome::Withdrawn(2, Malformation::AsSet))]
    {
        let mut list = mandatory(&member);
        list[1] = attribute(0x40, 2, &[segment, 1, 0, 0, 0xfc, 0]);
        assert_eq!(outcome(&update(&[], &list, &[8, 10]), &member), expected);
    }
}

#[test]
fn faults_say_what_was_wrong_and_what_was_done() {
    let list = [mandatory(&EXTERNAL), vec![attribute(0x40, 6, &[1]), attribute(0xc0, 8, &[1])]].concat();
    let faults = decode(&update(&[], &list, &[8, 10]), &EXTERNAL).unwrap().faults;
    let shown: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "ATOMIC_AGGREGATE (6): wrong length; attribute left out",
            "COMMUNITIES (8): wrong length; routes withdrawn"
        ]
    );
}
