//! Names of all NOTIFICATION codes and subcodes, as defined in the RFCs.

use super::{cease, code, fsm, header, open, refresh, update};

/// Returns the name of an error code with its subcode.
#[must_use]
pub const fn words(code: u8, subcode: u8) -> &'static str {
    match code {
        code::HEADER => header_words(subcode),
        code::OPEN => open_words(subcode),
        code::UPDATE => update_words(subcode),
        code::HOLD_TIMER => "Hold Timer Expired",
        code::FSM => fsm_words(subcode),
        code::CEASE => cease_words(subcode),
        code::REFRESH => match subcode {
            refresh::BAD_LENGTH => "ROUTE-REFRESH Message Error: Invalid Message Length",
            _ => "ROUTE-REFRESH Message Error",
        },
        code::SEND_HOLD_TIMER => "Send Hold Timer Expired",
        _ => "unknown error",
    }
}

const fn header_words(subcode: u8) -> &'static str {
    match subcode {
        header::NOT_SYNCHRONIZED => "Message Header Error: Connection Not Synchronized",
        header::BAD_LENGTH => "Message Header Error: Bad Message Length",
        header::BAD_TYPE => "Message Header Error: Bad Message Type",
        _ => "Message Header Error",
    }
}

const fn open_words(subcode: u8) -> &'static str {
    match subcode {
        open::VERSION => "OPEN Message Error: Unsupported Version Number",
        open::BAD_PEER_AS => "OPEN Message Error: Bad Peer AS",
        open::BAD_IDENTIFIER => "OPEN Message Error: Bad BGP Identifier",
        open::OPTIONAL_PARAMETER => "OPEN Message Error: Unsupported Optional Parameter",
        // Deprecated since RFC 4271, but still worth displaying if a peer sends it.
        5 => "OPEN Message Error: Authentication Failure",
        open::HOLD_TIME => "OPEN Message Error: Unacceptable Hold Time",
        open::CAPABILITY => "OPEN Message Error: Unsupported Capability",
        open::ROLE_MISMATCH => "OPEN Message Error: Role Mismatch",
        _ => "OPEN Message Error",
    }
}

const fn update_words(subcode: u8) -> &'static str {
    match subcode {
        update::ATTRIBUTE_LIST => "UPDATE Message Error: Malformed Attribute List",
        update::UNRECOGNIZED_WELL_KNOWN => "UPDATE Message Error: Unrecognized Well-known Attribute",
        update::MISSING_WELL_KNOWN => "UPDATE Message Error: Missing Well-known Attribute",
        update::FLAGS => "UPDATE Message Error: Attribute Flags Error",
        update::LENGTH => "UPDATE Message Error: Attribute Length Error",
        update::ORIGIN => "UPDATE Message Error: Invalid ORIGIN Attribute",
        7 => "UPDATE Message Error: AS Routing Loop",
        update::NEXT_HOP => "UPDATE Message Error: Invalid NEXT_HOP Attribute",
        update::OPTIONAL_ATTRIBUTE => "UPDATE Message Error: Optional Attribute Error",
        update::NETWORK_FIELD => "UPDATE Message Error: Invalid Network Field",
        update::AS_PATH => "UPDATE Message Error: Malformed AS_PATH",
        _ => "UPDATE Message Error",
    }
}

const fn fsm_words(subcode: u8) -> &'static str {
    match subcode {
        fsm::OPEN_SENT => "Finite State Machine Error: Unexpected Message in OpenSent",
        fsm::OPEN_CONFIRM => "Finite State Machine Error: Unexpected Message in OpenConfirm",
        fsm::ESTABLISHED => "Finite State Machine Error: Unexpected Message in Established",
        _ => "Finite State Machine Error",
    }
}

const fn cease_words(subcode: u8) -> &'static str {
    match subcode {
        cease::MAX_PREFIXES => "Cease: Maximum Number of Prefixes Reached",
        cease::SHUTDOWN => "Cease: Administrative Shutdown",
        cease::DECONFIGURED => "Cease: Peer De-configured",
        cease::RESET => "Cease: Administrative Reset",
        cease::REJECTED => "Cease: Connection Rejected",
        cease::CONFIGURATION_CHANGE => "Cease: Other Configuration Change",
        cease::COLLISION => "Cease: Connection Collision Resolution",
        cease::OUT_OF_RESOURCES => "Cease: Out of Resources",
        cease::HARD_RESET => "Cease: Hard Reset",
        cease::BFD_DOWN => "Cease: BFD Down",
        _ => "Cease",
    }
}
