//! Why a connection ends: codes, subcodes and data of NOTIFICATION (RFC 4271 §4.5, §6), kept raw so that any can be shown.

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
