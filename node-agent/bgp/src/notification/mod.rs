//! NOTIFICATION messages: codes, subcodes and data (RFC 4271 §4.5, §6), kept as numbers, so that unknown
//! codes can be displayed.

pub(crate) mod text;
mod words;

use std::fmt;

pub use words::words;

/// NOTIFICATION message, which reports an error or another reason and ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Error code; see [`code`].
    pub code: u8,
    /// Error subcode within the error code; 0 if there is no specific one.
    pub subcode: u8,
    /// Data field, whose content depends on code and subcode.
    pub data: Vec<u8>,
}

/// Error codes (RFC 4271 §4.5, RFC 7313).
pub mod code {
    /// Message Header Error: invalid marker, length or type; subcodes in [`header`](super::header).
    pub const HEADER: u8 = 1;
    /// OPEN Message Error: an OPEN is malformed or not acceptable; subcodes in [`open`](super::open).
    pub const OPEN: u8 = 2;
    /// UPDATE Message Error: an UPDATE has an error that ends the session; subcodes in
    /// [`update`](super::update).
    pub const UPDATE: u8 = 3;
    /// Hold Timer Expired: no KEEPALIVE or UPDATE arrived within the Hold Time; no subcodes.
    pub const HOLD_TIMER: u8 = 4;
    /// Finite State Machine Error: a message is not expected in the current state; subcodes of RFC 6608.
    pub const FSM: u8 = 5;
    /// Cease: the connection ends for a reason other than an error; subcodes of RFC 4486.
    pub const CEASE: u8 = 6;
    /// ROUTE-REFRESH Message Error: a ROUTE-REFRESH has an invalid length (RFC 7313 §5).
    pub const REFRESH: u8 = 7;
    /// Send Hold Timer Expired: the peer accepted no bytes for too long (RFC 9687).
    pub const SEND_HOLD_TIMER: u8 = 8;
}

/// Subcodes of Message Header Error (RFC 4271 §6.1).
pub mod header {
    /// Connection Not Synchronized: the marker is not all ones.
    pub const NOT_SYNCHRONIZED: u8 = 1;
    /// Bad Message Length; the data field contains the Length field.
    pub const BAD_LENGTH: u8 = 2;
    /// Bad Message Type; the data field contains the Type field.
    pub const BAD_TYPE: u8 = 3;
}

/// Subcodes of OPEN Message Error (RFC 4271 §6.2, RFC 5492, RFC 9234).
pub mod open {
    /// Unspecific error in an OPEN message.
    pub const UNSPECIFIC: u8 = 0;
    /// Unsupported Version Number; the data field contains the supported version in two bytes.
    pub const VERSION: u8 = 1;
    /// Bad Peer AS: the AS number is not the configured one.
    pub const BAD_PEER_AS: u8 = 2;
    /// Bad BGP Identifier: zero, or equal to that of the receiver within one AS (RFC 6286 §2.2).
    pub const BAD_IDENTIFIER: u8 = 3;
    /// Unsupported Optional Parameter: the type of an optional parameter is unknown.
    pub const OPTIONAL_PARAMETER: u8 = 4;
    /// Unacceptable Hold Time, such as 1 or 2 seconds.
    pub const HOLD_TIME: u8 = 6;
    /// Unsupported Capability: a required capability is missing, which the data field lists (RFC 5492 §5).
    pub const CAPABILITY: u8 = 7;
    /// Role Mismatch: the roles of the speakers do not correspond (RFC 9234 §4.2).
    pub const ROLE_MISMATCH: u8 = 11;
}

/// Subcodes of UPDATE Message Error (RFC 4271 §6.3). If the error concerns one attribute, the data field
/// contains that attribute.
pub mod update {
    /// Malformed Attribute List: attributes extend beyond the list, or an attribute occurs twice.
    pub const ATTRIBUTE_LIST: u8 = 1;
    /// Unrecognized Well-known Attribute: an unknown attribute is not flagged as optional.
    pub const UNRECOGNIZED_WELL_KNOWN: u8 = 2;
    /// Missing Well-known Attribute: a mandatory attribute is missing; the data field contains its type code.
    pub const MISSING_WELL_KNOWN: u8 = 3;
    /// Attribute Flags Error: flags conflict with the attribute type.
    pub const FLAGS: u8 = 4;
    /// Attribute Length Error: the length conflicts with the attribute type.
    pub const LENGTH: u8 = 5;
    /// Invalid ORIGIN Attribute: the value is undefined.
    pub const ORIGIN: u8 = 6;
    /// Invalid `NEXT_HOP` Attribute: the value is not a valid host address.
    pub const NEXT_HOP: u8 = 8;
    /// Optional Attribute Error: a known optional attribute has an invalid value.
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    /// Invalid Network Field: the prefixes are malformed.
    pub const NETWORK_FIELD: u8 = 10;
    /// Malformed `AS_PATH`: segments are syntactically incorrect.
    pub const AS_PATH: u8 = 11;
}

/// Subcodes of Finite State Machine Error (RFC 6608).
pub mod fsm {
    /// Unspecified Error, such as a message in an unknown state.
    pub const UNSPECIFIED: u8 = 0;
    /// Receive Unexpected Message in `OpenSent` State; the data field contains the message type.
    pub const OPEN_SENT: u8 = 1;
    /// Receive Unexpected Message in `OpenConfirm` State; the data field contains the message type.
    pub const OPEN_CONFIRM: u8 = 2;
    /// Receive Unexpected Message in `Established` State; the data field contains the message type.
    pub const ESTABLISHED: u8 = 3;
}

/// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
pub mod cease {
    /// Maximum Number of Prefixes Reached: the peer has announced more prefixes than the speaker allows.
    pub const MAX_PREFIXES: u8 = 1;
    /// Administrative Shutdown: the operator has stopped the session. The data field contains a Shutdown
    /// Communication (RFC 9003).
    pub const SHUTDOWN: u8 = 2;
    /// Peer De-configured: the peer was removed from the configuration.
    pub const DECONFIGURED: u8 = 3;
    /// Administrative Reset: the operator restarts the session. The data field contains a Shutdown
    /// Communication (RFC 9003).
    pub const RESET: u8 = 4;
    /// Connection Rejected: the speaker currently accepts no connections from this peer.
    pub const REJECTED: u8 = 5;
    /// Other Configuration Change: a changed setting needs a new session.
    pub const CONFIGURATION_CHANGE: u8 = 6;
    /// Connection Collision Resolution: a different connection with this peer is kept (RFC 4271 §6.8).
    pub const COLLISION: u8 = 7;
    /// Out of Resources: the speaker lacks a resource, such as memory.
    pub const OUT_OF_RESOURCES: u8 = 8;
    /// Hard Reset: the receiver must not retain routes; the data field contains the actual notification (RFC
    /// 8538 §3).
    pub const HARD_RESET: u8 = 9;
    /// BFD Down: BFD has declared the path down (RFC 9384).
    pub const BFD_DOWN: u8 = 10;
}

/// Subcodes of ROUTE-REFRESH Message Error (RFC 7313 §5).
pub mod refresh {
    /// Invalid Message Length; the data field contains the whole message.
    pub const BAD_LENGTH: u8 = 1;
}

impl Notification {
    /// Creates a notification with an empty data field.
    #[must_use]
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// Creates a Cease notification. Administrative Shutdown and Administrative Reset carry `text` as
    /// Shutdown Communication (RFC 9003), truncated to 255 bytes at a character boundary and omitted if
    /// empty. Other subcodes ignore it.
    #[must_use]
    pub fn cease(subcode: u8, text: &str) -> Self {
        let data = if text::is_carried_by(code::CEASE, subcode) { text::write(text) } else { Vec::new() };
        Self { code: code::CEASE, subcode, data }
    }

    /// Wraps the notification into a Hard Reset, so that a peer with Graceful Restart does not retain the
    /// routes (RFC 8538 §3.1).
    #[must_use]
    pub fn into_hard_reset(self) -> Self {
        let Self { code, subcode, data } = self;
        let data = [code, subcode].into_iter().chain(data).collect();
        Self { code: code::CEASE, subcode: cease::HARD_RESET, data }
    }

    /// Returns true if the notification is a Hard Reset (RFC 8538 §3).
    #[must_use]
    pub const fn is_hard_reset(&self) -> bool {
        self.code == code::CEASE && self.subcode == cease::HARD_RESET
    }

    /// Returns the notification inside a Hard Reset; `None` for other notifications.
    #[must_use]
    pub fn inner(&self) -> Option<Self> {
        match self.data.as_slice() {
            [code, subcode, data @ ..] if self.is_hard_reset() => {
                Some(Self { code: *code, subcode: *subcode, data: data.into() })
            }
            _ => None,
        }
    }

    /// Returns the Shutdown Communication (RFC 9003) of this notification, or of the notification inside a
    /// Hard Reset, sanitized for display.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let inner = self.inner();
        let Self { code, subcode, data } = inner.as_ref().unwrap_or(self);
        if text::is_carried_by(*code, *subcode) { text::read(data) } else { None }
    }
}

/// Maximum number of bytes of the data field in the text representation.
const DATA_BYTES_SHOWN: usize = 16;

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, subcode, data } = self;
        write!(f, "{} ({code}/{subcode})", words(*code, *subcode))?;
        if let Some(inner) = self.inner() {
            // A Hard Reset inside a Hard Reset is invalid and not followed.
            write!(f, " by {} ({}/{})", words(inner.code, inner.subcode), inner.code, inner.subcode)?;
        }
        if let Some(text) = self.text() {
            return write!(f, ": {text:?}");
        }
        if self.inner().is_some() || data.is_empty() || text::is_carried_by(*code, *subcode) {
            return Ok(());
        }
        f.write_str(", data ")?;
        for byte in data.iter().take(DATA_BYTES_SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        if data.len() > DATA_BYTES_SHOWN { f.write_str("…") } else { Ok(()) }
    }
}
