//! Compares the codec of this crate with those of the libraries `bgpkit-parser` and `netgauze-bgp-pkt`: each
//! codec must decode messages that the other has encoded to the same fields. The function `said` in the
//! module of each library leaves out messages that the library does not support or handles wrongly; separate
//! tests show these cases.

mod bgpkit;
mod netgauze;

use bgp::{
    Capability, Message, Notification, Role, Segment,
    notification::{cease, code},
    wire::{Context, DecodedMessage, EncodeError, decode, encode, encode_capabilities},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::messages::{EXTERNAL, OPEN, any, frame};

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1500);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Reduces a message to features that all three codecs support: no confederations, no unknown error codes, no
/// multicast prefixes, and no unknown capability codes except for one that is unassigned.
fn common(mut message: Message) -> Message {
    match &mut message {
        Message::Open(open) => {
            for capability in &mut open.capabilities {
                if let Capability::Unknown { code, .. } = capability {
                    *code = 200;
                }
            }
            // Extended optional parameters (RFC 9072) are not supported by all codecs.
            while encode_capabilities(&open.capabilities).unwrap().len() > 200 {
                let is_other = |capability: &Capability| !matches!(capability, Capability::FourOctetAs(_));
                let last = open.capabilities.iter().rposition(is_other).unwrap();
                open.capabilities.remove(last);
            }
            if open.router_id.is_multicast() || open.router_id.is_broadcast() {
                open.router_id = [192, 0, 2, 1].into();
            }
        }
        Message::Update(update) => {
            update.withdrawn.retain(netgauze::is_unicast);
            update.announced.retain(netgauze::is_unicast);
        }
        Message::Notification(notification) => {
            notification.code = 1 + notification.code % 7;
            notification.subcode = match notification.code {
                code::HEADER | code::FSM => notification.subcode % 4,
                code::OPEN => [0, 1, 2, 3, 4, 6, 7, 11][usize::from(notification.subcode % 8)],
                code::UPDATE => [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11][usize::from(notification.subcode % 11)],
                code::CEASE => 1 + notification.subcode % 10,
                code::REFRESH => 1,
                _ => 0,
            };
        }
        Message::Keepalive | Message::Refresh(_) => {}
    }
    message
}

fn context_and_message() -> impl Strategy<Value = (Context, Message)> {
    any::context().prop_flat_map(|context| {
        let context = Context { is_confederation: false, ..context };
        (Just(context), any::message(context).prop_map(common))
    })
}

/// Returns the encoding of a message that was reduced by [`common`], or `None` if the reduced message is
/// empty or too long.
fn bytes_of(message: &Message, context: &Context) -> Option<Vec<u8>> {
    match encode(message, context) {
        Ok(bytes) => Some(bytes),
        Err(EncodeError::Empty | EncodeError::TooLong { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn netgauze_agrees((context, message) in context_and_message()) {
        if let (Some(bytes), Some(said)) = (bytes_of(&message, &context), netgauze::said(&message, &context)) {
            prop_assert_eq!(netgauze::read(&bytes, &context), Ok(said.clone()));
            let theirs = netgauze::write(&said);
            prop_assert_eq!(decode(&theirs, &context), Ok(DecodedMessage { message, faults: vec![] }));
        }
    }

    #[test]
    fn bgpkit_agrees((context, message) in context_and_message()) {
        if let (Some(bytes), Some(said)) = (bytes_of(&message, &context), bgpkit::said(&message, &context)) {
            prop_assert_eq!(bgpkit::read(&bytes, &context), Ok(said.clone()));
            let theirs = bgpkit::write(&said, &context);
            prop_assert_eq!(decode(&theirs, &context), Ok(DecodedMessage { message, faults: vec![] }));
        }
    }
}

/// Each library can represent more than 60 percent of the generated messages, so that the comparisons leave
/// out only a minority.
#[test]
fn most_messages_are_compared() {
    let mut runner = TestRunner::deterministic();
    let (mut by_netgauze, mut by_bgpkit) = (0, 0);
    for _ in 0..200 {
        let (context, message) = context_and_message().new_tree(&mut runner).unwrap().current();
        if bytes_of(&message, &context).is_some() {
            by_netgauze += usize::from(netgauze::said(&message, &context).is_some());
            by_bgpkit += usize::from(bgpkit::said(&message, &context).is_some());
        }
    }
    assert!(by_netgauze > 120 && by_bgpkit > 120, "netgauze {by_netgauze}, bgpkit {by_bgpkit} of 200");
}

/// netgauze 0.13.0 numbers roles differently from RFC 9234 §4.1; bgpkit follows the RFC.
#[test]
fn netgauze_mistakes_roles() {
    let role = |role: Role| {
        let capability = encode_capabilities(&[Capability::Role(role)]).unwrap();
        let length = u8::try_from(capability.len()).unwrap();
        let fixed = [4, 0xfd, 0xe9, 0, 90, 192, 0, 2, 1, length + 2, 2, length];
        netgauze::role_read(&frame(OPEN, &[&fixed, capability.as_slice()].concat()), &EXTERNAL)
    };
    assert_eq!(role(Role::Provider), "Provider");
    assert_eq!(role(Role::RouteServer), "Customer");
    assert_eq!(role(Role::RouteServerClient), "RS");
    assert_eq!(role(Role::Customer), "RsClient");
    assert_eq!(role(Role::Peer), "Peer");
}

/// netgauze 0.13.0 rejects NOTIFICATIONs with codes or subcodes that it does not support, such as Cease/0,
/// which BIRD sends for BFD down, and code 8 of RFC 9687.
#[test]
fn netgauze_refuses_unknown_errors() {
    for (code, subcode) in [(code::CEASE, 0), (code::CEASE, 200), (code::SEND_HOLD_TIMER, 0), (99, 0)] {
        let message = Message::Notification(Notification::new(code, subcode));
        let bytes = encode(&message, &EXTERNAL).unwrap();
        assert!(netgauze::read(&bytes, &EXTERNAL).is_err());
        assert!(bgpkit::read(&bytes, &EXTERNAL).is_ok());
        assert_eq!(decode(&bytes, &EXTERNAL).unwrap().message, message);
    }
    let known = Message::Notification(Notification::new(code::CEASE, cease::BFD_DOWN));
    assert!(netgauze::read(&encode(&known, &EXTERNAL).unwrap(), &EXTERNAL).is_ok());
}

/// Confederation segments are compared only with bgpkit, which supports them.
#[test]
fn bgpkit_agrees_on_confederations() {
    let context = Context { is_confederation: true, ..EXTERNAL };
    let mut runner = TestRunner::deterministic();
    for _ in 0..100 {
        let path = any::as_path(context).new_tree(&mut runner).unwrap().current();
        let kinds: Vec<_> = path.0.iter().map(|segment| matches!(segment, Segment::Sequence(_))).collect();
        assert_eq!(bgpkit::kinds_read(&path, &context), kinds);
    }
}
