//! Properties of the codec that hold for all messages and all byte sequences.

use bgp::{
    Family, Message, Update,
    attributes::NextHop,
    wire::{
        self, Action, Context, DecodedMessage, EXTENDED_MESSAGE_BYTES_MAX, EncodeError, HEADER_BYTES,
        MESSAGE_BYTES_MAX, decode, decode_capabilities, encode, encode_capabilities, frame_length,
        prefix_bytes, update_overhead, withdrawal_overhead,
    },
};
use proptest::{collection::vec, prelude::*};

use crate::messages::{self, any, frame};

fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn context_and_message() -> impl Strategy<Value = (Context, Message)> {
    any::context().prop_flat_map(|context| (Just(context), any::message(context)))
}

/// Returns the length of an UPDATE as computed by the functions that pack prefixes into messages.
fn bytes_announced(update: &Update, context: &Context) -> usize {
    let prefixes = |prefixes: &[ipnet::IpNet]| prefixes.iter().map(prefix_bytes).sum::<usize>();
    match (update.withdrawn.first(), update.announced.first(), &update.attributes) {
        (Some(first), None, None) => withdrawal_overhead(Family::of(first)) + prefixes(&update.withdrawn),
        (None, Some(first), Some(attributes)) => {
            update_overhead(attributes, Family::of(first), context) + prefixes(&update.announced)
        }
        // End-of-RIB.
        _ => HEADER_BYTES,
    }
}

/// Checks the properties that hold for any decoded message.
fn check_decoded(decoded: &DecodedMessage, bytes: usize) -> Result<(), TestCaseError> {
    let Message::Update(update) = &decoded.message else {
        prop_assert!(decoded.faults.is_empty());
        return Ok(());
    };
    let Update { withdrawn, announced, attributes, end_of_rib, foreign } = &**update;
    prop_assert_eq!(announced.is_empty(), attributes.is_none());
    prop_assert!(withdrawn.len() + announced.len() + foreign.values().sum::<usize>() <= bytes);
    prop_assert!(withdrawn.iter().chain(announced).all(|prefix| *prefix == prefix.trunc()));
    prop_assert!(decoded.faults.iter().all(|fault| fault.action < Action::ResetSession));
    if decoded.faults.iter().any(|fault| fault.action == Action::TreatAsWithdraw) {
        prop_assert!(announced.is_empty());
    }
    if end_of_rib.is_some() {
        prop_assert!(withdrawn.is_empty() && announced.is_empty() && foreign.is_empty());
    }
    Ok(())
}

/// Checks that the announcements of a decoded UPDATE are the same after they are encoded and decoded again.
fn check_said_again(update: &Update, context: &Context) -> Result<(), TestCaseError> {
    let Some(attributes) = &update.attributes else { return Ok(()) };
    for family in Family::ALL {
        let announced: Vec<_> =
            update.announced.iter().copied().filter(|prefix| Family::of(prefix) == family).collect();
        let is_own_next_hop = match (family, attributes.next_hop) {
            (Family::Ipv4Unicast, NextHop::V4(address)) => (1..224).contains(&address.octets()[0]),
            (Family::Ipv4Unicast, NextHop::V6 { .. }) => context.extended_next_hop,
            (Family::Ipv6Unicast, next_hop) => matches!(next_hop, NextHop::V6 { .. }),
        };
        if announced.is_empty() || !is_own_next_hop {
            continue;
        }
        let said = Update { announced, attributes: Some(attributes.clone()), ..Update::default() };
        let message = Message::Update(Box::new(said));
        // A repeated prefix from the shorter body format may not fit with its longer attributes.
        if let Ok(bytes) = encode(&message, context) {
            let again = decode(&bytes, context).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(again, DecodedMessage { message, faults: vec![] });
        }
    }
    Ok(())
}

fn check_bytes(bytes: &[u8], context: &Context) -> Result<(), TestCaseError> {
    if let Some(header) = bytes.first_chunk()
        && let Ok(length) = frame_length(header, context)
    {
        prop_assert!((HEADER_BYTES..=EXTENDED_MESSAGE_BYTES_MAX).contains(&length));
    }
    match decode(bytes, context) {
        Ok(decoded) => {
            check_decoded(&decoded, bytes.len())?;
            if let Message::Update(update) = &decoded.message
                && context.four_octet_as
            {
                check_said_again(update, context)?;
            }
        }
        // Every NOTIFICATION to send can be encoded and displayed.
        Err(notification) => {
            let answer = encode(&Message::Notification(notification.clone()), context);
            prop_assert!(answer.is_ok());
            prop_assert!(!notification.to_string().is_empty());
        }
    }
    Ok(())
}

/// Change of an encoded message that keeps its header valid.
#[derive(Debug, Clone)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Truncate(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (index(), 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (index(), vec(any::<u8>(), 1..5)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (index(), 1usize..5).prop_map(|(at, count)| Mutation::Remove(at, count)),
        index().prop_map(Mutation::Truncate),
    ]
}

fn mutated(bytes: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let kind = bytes[HEADER_BYTES - 1];
    let mut body = bytes[HEADER_BYTES..].to_vec();
    for mutation in mutations {
        if body.is_empty() {
            body.push(0);
        }
        let length = body.len();
        match mutation {
            Mutation::Set(at, byte) => body[at.index(length)] = *byte,
            Mutation::Flip(at, bit) => body[at.index(length)] ^= 1 << bit,
            Mutation::Insert(at, bytes) => {
                let at = at.index(length);
                body.splice(at..at, bytes.iter().copied());
            }
            Mutation::Remove(at, count) => {
                let at = at.index(length);
                body.drain(at..(at + count).min(length));
            }
            Mutation::Truncate(at) => body.truncate(at.index(length)),
        }
    }
    body.truncate(EXTENDED_MESSAGE_BYTES_MAX - HEADER_BYTES);
    frame(kind, &body)
}

proptest! {
    #![proptest_config(config(2000))]

    /// In every context, decoding reverses encoding. Encoding fails only for a message that is too long, also
    /// according to the functions that pack prefixes into messages.
    #[test]
    fn messages_survive_the_wire((context, message) in context_and_message()) {
        match encode(&message, &context) {
            Ok(bytes) => {
                prop_assert!(bytes.len() <= context.message_bytes_max());
                let header = bytes.first_chunk().unwrap();
                prop_assert_eq!(frame_length(header, &context), Ok(bytes.len()));
                if let Message::Update(update) = &message && update.end_of_rib.is_none() {
                    prop_assert_eq!(bytes.len(), bytes_announced(update, &context));
                }
                prop_assert_eq!(decode(&bytes, &context), Ok(DecodedMessage { message, faults: vec![] }));
            }
            Err(EncodeError::TooLong { bytes, bytes_max }) => {
                prop_assert!(bytes > bytes_max);
                match &message {
                    Message::Open(_) => prop_assert_eq!(bytes_max, MESSAGE_BYTES_MAX),
                    Message::Update(update) => {
                        prop_assert!(bytes_announced(update, &context) > context.message_bytes_max());
                    }
                    Message::Keepalive | Message::Notification(_) | Message::Refresh(_) => {
                        prop_assert!(false, "{message:?} is never too long");
                    }
                }
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    /// A mutated message is either decoded or rejected, and never yields more routes than its bytes can hold.
    #[test]
    fn no_mutation_does_harm(
        (context, message) in context_and_message(),
        reader in any::context(),
        mutations in vec(mutation(), 1..6),
    ) {
        if let Ok(bytes) = encode(&message, &context) {
            check_bytes(&mutated(&bytes, &mutations), &reader)?;
        }
    }

    #[test]
    fn no_bytes_do_harm(context in any::context(), kind in 0u8..7, body in vec(any::<u8>(), 0..400)) {
        check_bytes(&frame(kind, &body), &context)?;
        check_bytes(&body, &context)?;
    }

    /// Bytes that resemble an attribute list are decoded or rejected without a panic. Random bytes would
    /// hardly ever resemble one.
    #[test]
    fn no_attributes_do_harm(
        context in any::context(),
        attributes in vec((any::<u8>(), 0u8..40, vec(any::<u8>(), 0..40)), 0..12),
        announced in vec(any::<u8>(), 0..12),
    ) {
        let attributes: Vec<_> =
            attributes.iter().map(|(flags, code, value)| messages::attribute(*flags, *code, value)).collect();
        check_bytes(&messages::update(&[], &attributes, &announced), &context)?;
    }

    #[test]
    fn capabilities_survive_the_wire(capabilities in vec(any::capability(), 0..20), cut in any::<prop::sample::Index>()) {
        let bytes = encode_capabilities(&capabilities).unwrap();
        prop_assert_eq!(decode_capabilities(&bytes), Some(capabilities));
        if let Some(cut) = decode_capabilities(&bytes[..cut.index(bytes.len() + 1)]) {
            prop_assert_eq!(encode_capabilities(&cut).unwrap().len() <= bytes.len(), true);
        }
    }

    /// A text of any length is truncated to the maximum length and otherwise preserved.
    #[test]
    fn shutdown_texts_are_cut_between_characters(text in "\\PC{0,200}") {
        let notification = bgp::Notification::cease(bgp::notification::cease::SHUTDOWN, &text);
        prop_assert!(notification.data.len() <= 256);
        let kept = std::str::from_utf8(notification.data.get(1..).unwrap_or_default()).unwrap();
        prop_assert!(text.starts_with(kept));
        prop_assert!(kept.len() == text.len() || kept.len() > 251);
        prop_assert!(notification.text().unwrap_or_default().chars().count() == kept.chars().count());
        let hard = notification.clone().into_hard_reset();
        prop_assert_eq!(hard.inner(), Some(notification.clone()));
        prop_assert_eq!(hard.text(), notification.text());
    }
}

#[test]
fn the_bytes_of_prefixes_are_counted() {
    for (prefix, bytes) in [
        ("0.0.0.0/0", 1),
        ("10.0.0.0/8", 2),
        ("10.128.0.0/9", 3),
        ("192.0.2.1/32", 5),
        ("2001:db8::1/128", 17),
    ] {
        assert_eq!(wire::prefix_bytes(&prefix.parse().unwrap()), bytes, "{prefix}");
    }
}
