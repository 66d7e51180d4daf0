//! The bytes of BGP: messages from frames and frames from messages.
//!
//! ```text
//!   19 bytes ──▶ frame_length ──▶ how many more to read, or the NOTIFICATION to answer
//!   one frame ─▶ decode ──▶ Decoded { message, faults }, or the NOTIFICATION to answer
//!   Message ───▶ encode ──▶ one frame
//! ```
//! Reading is total: whatever the bytes, it ends, stays within them, and allocates in proportion to them. What is wrong
//! with an UPDATE without having to end the session (RFC 7606) is decided by the table in [`errors`]; the message is then
//! what it has to be taken for, and the faults say why.

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

/// The header that all messages have (RFC 4271 §4.1), in bytes.
pub const HEADER_BYTES: usize = 19;
/// The longest message, header included, unless more was agreed on (RFC 4271 §4).
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// The longest message between speakers that both take extended messages (RFC 8654 §4).
pub const EXTENDED_MESSAGE_BYTES_MAX: usize = 65_535;

/// What both sides agreed on as far as bytes depend on it. The default is what holds before OPEN messages were exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each was agreed on by a capability of its own")]
pub struct Context {
    /// AS numbers in `AS_PATH` and AGGREGATOR have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// UPDATE, NOTIFICATION and ROUTE-REFRESH have up to [`EXTENDED_MESSAGE_BYTES_MAX`] bytes (RFC 8654).
    pub extended_messages: bool,
    /// Routes of IPv4 have next hops of IPv6 where needed (RFC 8950).
    pub extended_next_hop: bool,
    /// The peer is of another AS, and of no member AS of the own confederation: `LOCAL_PREF` goes neither way
    /// (RFC 4271 §5.1.5).
    pub is_external: bool,
    /// The peer is of another member AS of the own confederation (RFC 5065): its AS paths may have segments of it.
    pub is_confederation: bool,
}

/// A message and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The message, as it has to be taken: routes with unusable attributes are withdrawn, bad attributes left out.
    pub message: Message,
    /// What RFC 7606 handles without the end of the session; only of UPDATE messages. In the order of the bytes.
    pub faults: Vec<AttributeFault>,
}

/// Why a message has no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More bytes than a message, or a capability, may have.
    #[error("{bytes} bytes, more than {bytes_max}")]
    TooLong {
        /// What it needs.
        bytes: usize,
        /// What there is.
        bytes_max: usize,
    },
    /// An UPDATE without anything in it would be read as an End-of-RIB marker.
    #[error("an update without routes")]
    Empty,
    /// Prefixes are announced without attributes.
    #[error("routes without attributes")]
    NoAttributes,
    /// What takes more than one message: routes of both families, or announced ones and withdrawn ones (RFC 7606 §5.1).
    #[error("routes that take more than one message")]
    Mixed,
    /// An IPv4 prefix has an IPv6 next hop and the peer does not take that (RFC 8950).
    #[error("an IPv6 next hop for IPv4 routes was not agreed on")]
    NextHop,
}

impl Context {
    /// The longest UPDATE, NOTIFICATION or ROUTE-REFRESH, header included.
    #[must_use]
    pub const fn message_bytes_max(&self) -> usize {
        if self.extended_messages { EXTENDED_MESSAGE_BYTES_MAX } else { MESSAGE_BYTES_MAX }
    }
}

/// Length of the whole message by its header, [`HEADER_BYTES`] to [`Context::message_bytes_max`].
///
/// # Errors
/// The NOTIFICATION to answer (RFC 4271 §6.1): no marker, a length that no message or none of this type has, an unknown type.
pub fn frame_length(header: &[u8; HEADER_BYTES], context: &Context) -> Result<usize, Notification> {
    frame::read(header, context).map(|(_, length)| length)
}

/// Reads one whole message, of the length that [`frame_length`] said.
///
/// A received UPDATE may hold prefixes of both families. `withdrawn` is to be carried out before `announced`; its
/// attributes' next hop is that of the IPv4 prefixes in its body where there are any, else that of `MP_REACH_NLRI`.
///
/// # Errors
/// The NOTIFICATION to answer, after which the session ends (RFC 4271 §6, RFC 7606).
pub fn decode(frame: &[u8], context: &Context) -> Result<Decoded, Notification> {
    let (kind, body) = frame::split(frame, context)?;
    let message = match kind {
        Kind::Open => Message::Open(open::decode(body)?),
        Kind::Update => {
            let (update, faults) = update::decode(body, context)?;
            return Ok(Decoded { message: Message::Update(Box::new(update)), faults });
        }
        Kind::Notification => Message::Notification(notification::decode(body)?),
        Kind::Keepalive => Message::Keepalive,
        Kind::Refresh => Message::Refresh(refresh::decode(body, frame)?),
    };
    Ok(Decoded { message, faults: Vec::new() })
}

/// Writes one message.
///
/// An UPDATE has one kind of routes in it: announced or withdrawn ones, of one family. `LOCAL_PREF` is left out towards
/// external peers. The data of a NOTIFICATION are cut to what fits.
///
/// # Errors
/// It has no bytes, or too many.
pub fn encode(message: &Message, context: &Context) -> Result<Vec<u8>, EncodeError> {
    match message {
        Message::Open(message) => open::encode(message),
        Message::Update(message) => update::encode(message, context),
        Message::Notification(message) => notification::encode(message, context),
        Message::Keepalive => frame::finish(frame::begin(Kind::Keepalive), HEADER_BYTES),
        Message::Refresh(message) => refresh::encode(*message),
    }
}

/// Bytes of an UPDATE that announces prefixes of `family` with `attributes`, header included, without the prefixes.
#[must_use]
pub fn update_overhead(attributes: &Attributes, family: Family, context: &Context) -> usize {
    update::overhead(attributes, family, context)
}

/// Bytes of an UPDATE that withdraws prefixes of `family`, header included, without the prefixes.
#[must_use]
pub const fn withdrawal_overhead(family: Family) -> usize {
    update::withdrawal_overhead(family)
}

/// Bytes of a prefix in an UPDATE.
#[must_use]
pub fn prefix_bytes(prefix: &IpNet) -> usize {
    1 + usize::from(prefix.prefix_len()).div_ceil(8)
}
