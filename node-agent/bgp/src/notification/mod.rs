//! Why a connection ends: codes, subcodes and data of NOTIFICATION (RFC 4271 §4.5, §6), kept raw so that any can be shown.

pub(crate) mod text;
mod words;

use std::fmt;

pub use words::words;

/// The message that ends a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The error subcode.
    pub subcode: u8,
    /// What goes with it.
    pub data: Vec<u8>,
}

/// Error codes (RFC 4271 §4.5, RFC 7313).
pub mod code {
    /// Message Header Error.
    pub const HEADER: u8 = 1;
    /// OPEN Message Error.
    pub const OPEN: u8 = 2;
    /// UPDATE Message Error.
    pub const UPDATE: u8 = 3;
    /// Hold Timer Expired.
    pub const HOLD_TIMER: u8 = 4;
    /// Finite State Machine Error; subcodes of RFC 6608.
    pub const FSM: u8 = 5;
    /// Cease.
    pub const CEASE: u8 = 6;
    /// ROUTE-REFRESH Message Error (RFC 7313 §5).
    pub const REFRESH: u8 = 7;
    /// Send Hold Timer Expired (RFC 9687).
    pub const SEND_HOLD_TIMER: u8 = 8;
}

/// Subcodes of Message Header Error (RFC 4271 §6.1).
pub mod header {
    /// The marker is not all ones.
    pub const NOT_SYNCHRONIZED: u8 = 1;
    /// The length is none that a message of the type has; the Length field goes with it.
    pub const BAD_LENGTH: u8 = 2;
    /// The type is unknown; it goes with it.
    pub const BAD_TYPE: u8 = 3;
}

/// Subcodes of OPEN Message Error (RFC 4271 §6.2, RFC 5492, RFC 9234).
pub mod open {
    /// None of the others.
    pub const UNSPECIFIC: u8 = 0;
    /// Another version than 4; the one that is spoken goes with it, in two bytes.
    pub const VERSION: u8 = 1;
    /// The AS number is not the expected one, or none.
    pub const BAD_PEER_AS: u8 = 2;
    /// The BGP Identifier is zero, or the own one inside of an AS (RFC 6286 §2.2).
    pub const BAD_IDENTIFIER: u8 = 3;
    /// An optional parameter of an unknown type.
    pub const OPTIONAL_PARAMETER: u8 = 4;
    /// A hold time of 1 or 2 seconds, or one that is not acceptable.
    pub const HOLD_TIME: u8 = 6;
    /// A capability that is asked for is missing; what is missing goes with it (RFC 5492 §5).
    pub const CAPABILITY: u8 = 7;
    /// The roles do not fit (RFC 9234 §4.2).
    pub const ROLE_MISMATCH: u8 = 11;
}

/// Subcodes of UPDATE Message Error (RFC 4271 §6.3). With all that are about one attribute, the attribute goes.
pub mod update {
    /// The lists of attributes and prefixes do not fit each other.
    pub const ATTRIBUTE_LIST: u8 = 1;
    /// A well-known attribute that is unknown.
    pub const UNRECOGNIZED_WELL_KNOWN: u8 = 2;
    /// A mandatory attribute is missing; its type code goes with it.
    pub const MISSING_WELL_KNOWN: u8 = 3;
    /// Flags that contradict the type.
    pub const FLAGS: u8 = 4;
    /// A length that the type does not have.
    pub const LENGTH: u8 = 5;
    /// An undefined ORIGIN.
    pub const ORIGIN: u8 = 6;
    /// A `NEXT_HOP` that is no host.
    pub const NEXT_HOP: u8 = 8;
    /// An optional attribute with a bad value.
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    /// Prefixes that are none.
    pub const NETWORK_FIELD: u8 = 10;
    /// A bad `AS_PATH`.
    pub const AS_PATH: u8 = 11;
}

/// Subcodes of Finite State Machine Error (RFC 6608).
pub mod fsm {
    /// None of the others.
    pub const UNSPECIFIED: u8 = 0;
    /// A message that does not belong into `OpenSent`; its type goes with it.
    pub const OPEN_SENT: u8 = 1;
    /// A message that does not belong into `OpenConfirm`; its type goes with it.
    pub const OPEN_CONFIRM: u8 = 2;
    /// A message that does not belong into `Established`; its type goes with it.
    pub const ESTABLISHED: u8 = 3;
}

/// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
pub mod cease {
    /// The peer sent more prefixes than are allowed.
    pub const MAX_PREFIXES: u8 = 1;
    /// Administrative Shutdown; text by RFC 9003.
    pub const SHUTDOWN: u8 = 2;
    /// The peer is configured no longer.
    pub const DECONFIGURED: u8 = 3;
    /// Administrative Reset; text by RFC 9003.
    pub const RESET: u8 = 4;
    /// Connection Rejected.
    pub const REJECTED: u8 = 5;
    /// Other Configuration Change.
    pub const CONFIGURATION_CHANGE: u8 = 6;
    /// Connection Collision Resolution.
    pub const COLLISION: u8 = 7;
    /// Out of Resources.
    pub const OUT_OF_RESOURCES: u8 = 8;
    /// Hard Reset: routes are not kept (RFC 8538 §3); holds another notification.
    pub const HARD_RESET: u8 = 9;
    /// BFD Down (RFC 9384).
    pub const BFD_DOWN: u8 = 10;
}

/// Subcodes of ROUTE-REFRESH Message Error (RFC 7313 §5).
pub mod refresh {
    /// The length is not the one of its subtype; the whole message goes with it.
    pub const BAD_LENGTH: u8 = 1;
}

impl Notification {
    /// One without data.
    #[must_use]
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// A Cease. Shutdown and reset carry `text` for the operator of the peer (RFC 9003), cut to 255 bytes between two
    /// characters; the other subcodes have no place for one, and an empty one is left out.
    #[must_use]
    pub fn cease(subcode: u8, text: &str) -> Self {
        let data = if text::is_carried_by(code::CEASE, subcode) { text::write(text) } else { Vec::new() };
        Self { code: code::CEASE, subcode, data }
    }

    /// Wraps it into a Hard Reset: a peer that would keep routes over a restart drops them (RFC 8538 §3.1).
    #[must_use]
    pub fn into_hard_reset(self) -> Self {
        let Self { code, subcode, data } = self;
        let data = [code, subcode].into_iter().chain(data).collect();
        Self { code: code::CEASE, subcode: cease::HARD_RESET, data }
    }

    /// It is a Hard Reset (RFC 8538 §3).
    #[must_use]
    pub const fn is_hard_reset(&self) -> bool {
        self.code == code::CEASE && self.subcode == cease::HARD_RESET
    }

    /// What a Hard Reset holds; `None` for others, and for one that holds nothing.
    #[must_use]
    pub fn inner(&self) -> Option<Self> {
        match self.data.as_slice() {
            [code, subcode, data @ ..] if self.is_hard_reset() => {
                Some(Self { code: *code, subcode: *subcode, data: data.into() })
            }
            _ => None,
        }
    }

    /// The text of a shutdown or a reset (RFC 9003), also inside of a Hard Reset: harmless to print whatever was sent.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let inner = self.inner();
        let Self { code, subcode, data } = inner.as_ref().unwrap_or(self);
        if text::is_carried_by(*code, *subcode) { text::read(data) } else { None }
    }
}

/// Bytes of data that are printed.
const DATA_BYTES_SHOWN: usize = 16;

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, subcode, data } = self;
        write!(f, "{} ({code}/{subcode})", words(*code, *subcode))?;
        if let Some(inner) = self.inner() {
            // A Hard Reset inside of a Hard Reset is nothing that exists; it is not followed.
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
