//! Messages for the tests: assembled from bytes, or generated at random.

#![allow(dead_code, reason = "every test uses some of it")]

pub(crate) mod any;

use bgp::{Message, Open, Update, wire::Context};

/// Context of an external peer with 4-octet AS numbers.
pub(crate) const EXTERNAL: Context = Context {
    four_octet_as: true,
    extended_messages: false,
    extended_next_hop: false,
    is_external: true,
    is_confederation: false,
};
/// Context of an internal peer with 4-octet AS numbers.
pub(crate) const INTERNAL: Context = Context { is_external: false, ..EXTERNAL };
/// Context of an external peer that supports only 2-octet AS numbers.
pub(crate) const OLD: Context = Context { four_octet_as: false, ..EXTERNAL };

pub(crate) const OPEN: u8 = 1;
pub(crate) const UPDATE: u8 = 2;
pub(crate) const NOTIFICATION: u8 = 3;
pub(crate) const KEEPALIVE: u8 = 4;
pub(crate) const REFRESH: u8 = 5;

/// Builds a BGP message of this type with a valid header.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).unwrap();
    [&[0xff; 16], length.to_be_bytes().as_slice(), &[kind], body].concat()
}

/// Builds an UPDATE from its fields.
pub(crate) fn update(withdrawn: &[u8], attributes: &[Vec<u8>], announced: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let length = |field: &[u8]| u16::try_from(field.len()).unwrap().to_be_bytes();
    let body = [&length(withdrawn), withdrawn, &length(&attributes), &attributes, announced].concat();
    frame(UPDATE, &body)
}

/// Builds a path attribute with a length field of one octet, or of two if the flags require it.
pub(crate) fn attribute(flags: u8, code: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    let length = if flags & 0x10 == 0 { &length[1..] } else { &length };
    [&[flags, code], length, value].concat()
}

/// Builds the mandatory attributes: ORIGIN IGP, an `AS_PATH` with AS 65001, and `NEXT_HOP` 192.0.2.1.
pub(crate) fn mandatory(context: &Context) -> Vec<Vec<u8>> {
    let path: &[u8] = if context.four_octet_as { &[2, 1, 0, 0, 0xfd, 0xe9] } else { &[2, 1, 0xfd, 0xe9] };
    vec![attribute(0x40, 1, &[0]), attribute(0x40, 2, path), attribute(0x40, 3, &[192, 0, 2, 1])]
}

/// Returns the UPDATE in a message; panics for other messages.
pub(crate) fn as_update(message: Message) -> Update {
    let Message::Update(update) = message else { panic!("{message:?} is no UPDATE") };
    *update
}

/// Returns the OPEN in a message; panics for other messages.
pub(crate) fn as_open(message: Message) -> Open {
    let Message::Open(open) = message else { panic!("{message:?} is no OPEN") };
    open
}
