//! Codec of BGP messages.
//!
//! ```text
//!   19 bytes ──▶ frame_length ──▶ length of the message, or the NOTIFICATION to send
//!   one frame ─▶ decode ──▶ Decoded { message, faults }, or the NOTIFICATION to send
//!   Message ───▶ encode ──▶ one frame
//! ```
//! Decoding is total: for any input the decoder terminates, reads only within the input, and allocates memory
//! in proportion to it. Malformed UPDATE messages that do not end the session (RFC 7606) are handled by the
//! table in [`errors`]; the decoded message then contains the remaining routes, and `faults` lists the
//! malformed attributes.

mod as_path;
mod attributes;
mod capabilities;
mod errors;
mod frame;
mod multi_protocol;
mod nlri;
mod notification;
mod open;
mod reader;
mod refresh;
mod update;
mod writer;

pub use capabilities::{decode_capabilities, encode_capabilities};
pub use errors::{Action, AttributeFault, Malformation};
use ipnet::IpNet;

use self::frame::Kind;
use crate::{attributes::Attributes, family::Family, message::Message, notification::Notification};

/// Length of the message header (RFC 4271 §4.1).
pub const HEADER_BYTES: usize = 19;
/// Maximum message length including the header, without Extended Messages (RFC 4271 §4).
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Maximum message length with Extended Messages (RFC 8654 §4).
pub const EXTENDED_MESSAGE_BYTES_MAX: usize = 65_535;

/// Negotiated properties that determine the encoding of messages. The default applies before OPEN messages
/// are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each was agreed on by a capability of its own")]
pub struct Context {
    /// True if `AS_PATH` and AGGREGATOR have 4-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// True if UPDATE, NOTIFICATION and ROUTE-REFRESH may have up to [`EXTENDED_MESSAGE_BYTES_MAX`] bytes
    /// (RFC 8654).
    pub extended_messages: bool,
    /// True if IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// True for an external peer outside of the local confederation: `LOCAL_PREF` is neither sent nor
    /// accepted (RFC 4271 §5.1.5).
    pub is_external: bool,
    /// True for a peer in a different member AS of the local confederation (RFC 5065). AS paths of the peer may
    /// contain confederation segments.
    pub is_confederation: bool,
}

/// Result of decoding a message: the message after error handling, and the malformed attributes found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedMessage {
    /// Message after error handling: routes with unusable attributes are withdrawn, and malformed attributes
    /// are discarded.
    pub message: Message,
    /// Malformed attributes of an UPDATE that did not end the session (RFC 7606), in byte order.
    pub faults: Vec<AttributeFault>,
}

/// Reason why [`encode`] or [`encode_capabilities`] returns no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message or capability exceeds its maximum length.
    #[error("{bytes} bytes, more than {bytes_max}")]
    TooLong {
        /// Length of the message or capability, in bytes.
        bytes: usize,
        /// Maximum length of the message or capability, in bytes.
        bytes_max: usize,
    },
    /// The UPDATE has no content, so that it would be decoded as an End-of-RIB marker.
    #[error("an update without routes")]
    Empty,
    /// The UPDATE announces prefixes without path attributes.
    #[error("routes without attributes")]
    NoAttributes,
    /// The routes require several messages: they are of both families, or both announced and withdrawn (RFC
    /// 7606 §5.1).
    #[error("routes that take more than one message")]
    Mixed,
    /// The UPDATE announces an IPv4 prefix with an IPv6 next hop, which was not negotiated (RFC 8950).
    #[error("IPv6 next hops for IPv4 routes were not negotiated")]
    NextHop,
}

impl Context {
    /// Returns the maximum length of UPDATE, NOTIFICATION and ROUTE-REFRESH messages in bytes, including the
    /// header.
    #[must_use]
    pub const fn message_bytes_max(&self) -> usize {
        if self.extended_messages { EXTENDED_MESSAGE_BYTES_MAX } else { MESSAGE_BYTES_MAX }
    }
}

/// Returns the length of a message according to its header: from [`HEADER_BYTES`] to
/// [`Context::message_bytes_max`].
///
/// # Errors
/// Returns the NOTIFICATION to send (RFC 4271 §6.1) if the marker, the length or the type is invalid.
pub fn frame_length(header: &[u8; HEADER_BYTES], context: &Context) -> Result<usize, Notification> {
    frame::read(header, context).map(|(_, length)| length)
}

/// Decodes one complete message with the length returned by [`frame_length`].
///
/// A received UPDATE may contain prefixes of both families. `withdrawn` must be applied before `announced`.
/// If the body contains IPv4 prefixes, the next hop is `NEXT_HOP`, otherwise that of `MP_REACH_NLRI`.
///
/// # Errors
/// Returns the NOTIFICATION to send, after which the session ends (RFC 4271 §6, RFC 7606).
pub fn decode(frame: &[u8], context: &Context) -> Result<DecodedMessage, Notification> {
    let (kind, body) = frame::split(frame, context)?;
    let message = match kind {
        Kind::Open => Message::Open(open::decode(body)?),
        Kind::Update => {
            let (update, faults) = update::decode(body, context)?;
            return Ok(DecodedMessage { message: Message::Update(Box::new(update)), faults });
        }
        Kind::Notification => Message::Notification(notification::decode(body)?),
        Kind::Keepalive => Message::Keepalive,
        Kind::Refresh => Message::Refresh(refresh::decode(body, frame)?),
    };
    Ok(DecodedMessage { message, faults: Vec::new() })
}

/// Encodes one message.
///
/// An UPDATE must contain one kind of routes: announced or withdrawn, of one family. `LOCAL_PREF` is omitted
/// for external peers. The data of a NOTIFICATION is truncated if necessary.
///
/// # Errors
/// Returns [`EncodeError`] if the message is invalid or too long.
pub fn encode(message: &Message, context: &Context) -> Result<Vec<u8>, EncodeError> {
    match message {
        Message::Open(message) => open::encode(message),
        Message::Update(message) => update::encode(message, context),
        Message::Notification(message) => notification::encode(message, context),
        Message::Keepalive => frame::finish(frame::begin(Kind::Keepalive), HEADER_BYTES),
        Message::Refresh(message) => refresh::encode(*message),
    }
}

/// Returns the length of an UPDATE that announces prefixes of `family` with `attributes`, including the
/// header but without the prefixes.
#[must_use]
pub fn update_overhead(attributes: &Attributes, family: Family, context: &Context) -> usize {
    update::overhead(attributes, family, context)
}

/// Returns the length of an UPDATE that withdraws prefixes of `family`, including the header but without the
/// prefixes.
#[must_use]
pub const fn withdrawal_overhead(family: Family) -> usize {
    update::withdrawal_overhead(family)
}

/// Returns the length of a prefix in an UPDATE, in bytes: one length byte and the significant bytes.
#[must_use]
pub fn prefix_bytes(prefix: &IpNet) -> usize {
    1 + usize::from(prefix.prefix_len()).div_ceil(8)
}
