//! Messages about links, addresses, neighbors and rules (rtnetlink) on the blocking socket, in the types of
//! the crate `netlink-packet-route`.

use rtnetlink::{
    packet_core::{NetlinkDeserializable as _, NetlinkHeader, NetlinkSerializable as _},
    packet_route::RouteNetlinkMessage,
};
use tracing::debug;

use super::{
    uapi::NLM_F_REQUEST,
    wire::{Attributes, MalformedMessage, Message, ReceivedMessage},
};

/// Encodes a request with flags in addition to `NLM_F_REQUEST`.
#[must_use]
pub fn request(message: &RouteNetlinkMessage, flags: u16) -> Message {
    let mut payload = vec![0; message.buffer_len()];
    message.serialize(&mut payload);
    Message {
        kind: message.message_type(),
        flags: NLM_F_REQUEST | flags,
        header: payload,
        attributes: Attributes::default(),
    }
}

/// Parses a response.
///
/// # Errors
/// Returns an error if the message is malformed, or is not an rtnetlink message.
pub fn parse(answer: &ReceivedMessage<'_>) -> Result<RouteNetlinkMessage, MalformedMessage> {
    let mut header = NetlinkHeader::default();
    header.message_type = answer.kind;
    RouteNetlinkMessage::deserialize(&header, answer.payload).map_err(|error| {
        debug!(kind = answer.kind, %error, "cannot parse an rtnetlink message");
        MalformedMessage("an invalid rtnetlink message")
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use rtnetlink::packet_route::{
        AddressFamily,
        address::{AddressAttribute, AddressMessage},
    };

    use super::*;

    fn received(kind: u16, payload: &[u8]) -> ReceivedMessage<'_> {
        ReceivedMessage { kind, flags: 0, sequence: 0, payload }
    }

    /// A request has the layout of `struct ifaddrmsg` and its attributes, and is parsed to the same message.
    #[test]
    fn an_encoded_message_is_parsed_to_the_same_message() {
        let mut address = AddressMessage::default();
        address.header.family = AddressFamily::Inet;
        address.header.prefix_len = 32;
        address.header.index = 7;
        address.attributes.push(AddressAttribute::Local(IpAddr::from([192, 0, 2, 1])));
        let message = RouteNetlinkMessage::NewAddress(address);
        let request = request(&message, 0x4);
        assert_eq!((request.kind, request.flags), (20, 0x5));
        let index = 7_u32.to_ne_bytes();
        let length = 8_u16.to_ne_bytes();
        let kind = 2_u16.to_ne_bytes();
        assert_eq!(request.header, [&[2, 32, 0, 0][..], &index, &length, &kind, &[192, 0, 2, 1]].concat());
        assert_eq!(parse(&received(request.kind, &request.header)).unwrap(), message);
        assert!(parse(&received(request.kind, &request.header[..7])).is_err(), "header cut off");
        assert!(parse(&received(3, &[])).is_err(), "not a message of rtnetlink");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            kind in 16_u16..36,
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            header_bytes in prop::sample::select(vec![8_usize, 12, 16]),
            attributes in prop::collection::vec((0_u16..70, prop::collection::vec(any::<u8>(), 0..40)), 0..4),
        ) {
            let _ = parse(&received(kind, &bytes));
            // The bytes as a header, followed by attributes.
            let mut payload = bytes;
            payload.resize(header_bytes, 0);
            let encoded = attributes.iter().fold(Attributes::default(), |list, (kind, value)| list.bytes(*kind, value));
            payload.extend(encoded.as_bytes());
            let _ = parse(&received(kind, &payload));
        }
    }
}
