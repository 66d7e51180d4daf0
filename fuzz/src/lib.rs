//! Properties that must hold for any input bytes. Each public function is a fuzz target and panics if its
//! property is violated.

use bgp::{
    Capability, Family, Message, Notification, Update,
    attributes::NextHop,
    wire::{
        Action, Context, DecodedMessage, EXTENDED_MESSAGE_BYTES_MAX, HEADER_BYTES, decode,
        decode_capabilities, encode, encode_capabilities, frame_length,
    },
};
use model::admission::decode::{Expect, decode as decode_object};
use translate::{Format, Source};

// Only this module: instrumenting the whole agent takes minutes.
mod dns;
#[path = "../../node-agent/health/src/probe/grpc/wire.rs"]
mod grpc;
#[path = "../../dns/src/message/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses more of it")]
mod message;

pub use dns::dns_message;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;

/// Builds a message with a valid header.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(EXTENDED_MESSAGE_BYTES_MAX - HEADER_BYTES)];
    let length = u16::try_from(HEADER_BYTES + body.len()).expect("bounded above");
    [&[0xff; 16], length.to_be_bytes().as_slice(), &[kind], body].concat()
}

/// Builds the negotiated session parameters from the bits of a byte.
fn context(bits: u8) -> Context {
    let is_set = |bit: u8| bits & (1 << bit) != 0;
    Context {
        four_octet_as: is_set(0),
        extended_messages: is_set(1),
        extended_next_hop: is_set(2),
        is_external: is_set(3),
        is_confederation: is_set(4),
    }
}

/// Checks that a NOTIFICATION can be encoded and displayed.
fn check_answer(notification: &Notification, context: &Context) {
    assert!(encode(&Message::Notification(notification.clone()), context).is_ok());
    assert!(!notification.to_string().is_empty());
}

/// Decodes bytes as the body of an OPEN; a decoded message is the same after encoding and decoding again.
pub fn open(bytes: &[u8]) {
    let context = Context::default();
    match decode(&frame(OPEN, bytes), &context) {
        Ok(DecodedMessage { message: Message::Open(open), faults }) => {
            assert!(faults.is_empty() && open.asn != 0 && !open.router_id.is_unspecified());
            assert!(!matches!(open.hold_time, 1 | 2));
            let has_names =
                open.capabilities.iter().any(|capability| matches!(capability, Capability::HostName { .. }));
            // A single parameter encodes at most a few bytes longer than several.
            if let (Ok(bytes), false) = (encode(&Message::Open(open.clone()), &context), has_names) {
                assert_eq!(decode(&bytes, &context).map(|decoded| decoded.message), Ok(Message::Open(open)));
            }
        }
        Ok(other) => panic!("{other:?}"),
        Err(notification) => check_answer(&notification, &context),
    }
}

/// Decodes bytes as a context and the body of an UPDATE.
pub fn update(bytes: &[u8]) {
    let Some((bits, body)) = bytes.split_first() else { return };
    let context = context(*bits);
    let frame = frame(UPDATE, body);
    if let Some(header) = frame.first_chunk() {
        let _ = frame_length(header, &context);
    }
    match decode(&frame, &context) {
        Ok(DecodedMessage { message: Message::Update(update), faults }) => {
            assert!(faults.iter().all(|fault| fault.action < Action::ResetSession));
            let is_withdrawn = faults.iter().any(|fault| fault.action == Action::TreatAsWithdraw);
            assert!(!is_withdrawn || update.announced.is_empty());
            check_update(&update, body.len(), &context);
        }
        Ok(other) => panic!("{other:?}"),
        Err(notification) => check_answer(&notification, &context),
    }
}

fn check_update(update: &Update, bytes: usize, context: &Context) {
    let Update { withdrawn, announced, attributes, end_of_rib, foreign } = update;
    assert_eq!(announced.is_empty(), attributes.is_none());
    assert!(withdrawn.len() + announced.len() + foreign.values().sum::<usize>() <= bytes);
    assert!(withdrawn.iter().chain(announced).all(|prefix| *prefix == prefix.trunc()));
    assert!(end_of_rib.is_none() || withdrawn.is_empty() && announced.is_empty() && foreign.is_empty());
    // With two-octet AS numbers, confederation segments behind large AS numbers cannot be encoded.
    let Some(attributes) = attributes.as_ref().filter(|_| context.four_octet_as) else { return };
    for family in Family::ALL {
        let announced: Vec<_> =
            announced.iter().copied().filter(|prefix| Family::of(prefix) == family).collect();
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
        if let Ok(bytes) = encode(&message, context) {
            assert_eq!(decode(&bytes, context), Ok(DecodedMessage { message, faults: vec![] }));
        }
    }
}

/// Decodes bytes as the body of a NOTIFICATION: any is accepted, displayed, and encoded to the same bytes.
pub fn notification(bytes: &[u8]) {
    let context = Context { extended_messages: true, ..Context::default() };
    let frame = frame(NOTIFICATION, bytes);
    match decode(&frame, &context) {
        Ok(DecodedMessage { message: Message::Notification(notification), .. }) => {
            let shown = notification.to_string();
            assert!(!shown.is_empty() && !shown.chars().any(char::is_control));
            assert!(!notification.text().unwrap_or_default().chars().any(char::is_control));
            assert_eq!(notification.clone().into_hard_reset().inner(), Some(notification.clone()));
            assert_eq!(encode(&Message::Notification(notification), &context), Ok(frame));
        }
        Ok(other) => panic!("{other:?}"),
        Err(_) => assert!(bytes.len() < 2),
    }
}

/// Decodes bytes as capabilities.
pub fn capabilities(bytes: &[u8]) {
    let Some(capabilities) = decode_capabilities(bytes) else { return };
    assert!(capabilities.len() <= bytes.len() / 2);
    let again = encode_capabilities(&capabilities).expect("no value is longer than before");
    let again = decode_capabilities(&again).expect("the encoding is complete");
    // A replacement character in a name may be longer than the bytes it replaces.
    if !again.iter().any(|capability| matches!(capability, Capability::HostName { .. })) {
        assert_eq!(again, capabilities);
    }
}

/// Parses bytes as a BFD control packet.
pub fn bfd(bytes: &[u8]) {
    let Ok(received) = bfd::wire::parse(bytes) else { return };
    let rendered = bfd::wire::render(&received.packet, None);
    let again = bfd::wire::parse(&rendered).expect("a rendered packet can be parsed");
    assert_eq!((again.packet, again.section), (received.packet, None));
}

/// Parses bytes as the response to a gRPC health check, and renders a request with them as the service name.
pub fn grpc_health(bytes: &[u8]) {
    let name = String::from_utf8_lossy(bytes);
    // A request parsed as a response has no number in field 1.
    assert_eq!(grpc::parse_response(&grpc::render_request(&name)), Ok(grpc::ServingStatus::Unknown));
    let status = match grpc::parse_response(bytes) {
        Ok(status) => status,
        Err(fault) => return assert!(!fault.to_string().is_empty()),
    };
    let (prefix, message) = bytes.split_at(5);
    assert_eq!(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize, message.len());
    assert_eq!(grpc::parse_response(&[bytes, &[0]].concat()), Err(grpc::Fault::TooLong));
    assert!(grpc::parse_response(&bytes[..bytes.len() - 1]).is_err());
    assert!(!message.is_empty() || status == grpc::ServingStatus::Unknown);
}

/// Imports bytes in a format: every created object is valid and reported, and a second import gives the same
/// result.
fn import(bytes: &[u8], from: Format) {
    let source = Source { name: "input".to_owned(), bytes: bytes.to_owned() };
    let Ok(imported) = translate::import(std::slice::from_ref(&source), Some(from)) else { return };
    assert!(imported.objects.iter().all(|object| decode_object(object, &Expect::default()).is_ok()));
    let report = imported.report.text();
    assert!(!report.is_empty() && !report.chars().any(|c| c.is_control() && c != '\n'));
    let again = translate::import(&[source], Some(from)).expect("the input was accepted before");
    assert_eq!((again.objects, again.report.text()), (imported.objects, report));
}

/// Imports bytes as output of `ipvsadm -S`.
pub fn import_ipvsadm(bytes: &[u8]) {
    import(bytes, Format::Ipvsadm);
}

/// Imports bytes as `keepalived.conf`.
pub fn import_keepalived(bytes: &[u8]) {
    import(bytes, Format::Keepalived);
}

/// Imports bytes as `KubeProxyConfiguration`.
pub fn import_kube_proxy(bytes: &[u8]) {
    import(bytes, Format::KubeProxy);
}

/// Imports bytes as Kubernetes objects.
pub fn import_kubernetes(bytes: &[u8]) {
    import(bytes, Format::Kubernetes);
}
