//! What is done about a malformed UPDATE (RFC 7606): one table, attribute by attribute.

use std::fmt;

/// What is done, from the mildest to the strongest (RFC 7606 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The attribute is left out; the routes stand.
    Discard,
    /// The routes of the message are withdrawn.
    TreatAsWithdraw,
    /// The session ends; [`super::decode`] then answers a NOTIFICATION instead of a fault.
    ResetSession,
}

/// What is wrong with an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Malformation {
    /// The Optional or the Transitive bit is not as specified.
    Flags,
    /// Its length is none that it can have.
    Length,
    /// Its value is none that is defined.
    Value,
}

/// A malformed attribute that did not end the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeFault {
    /// The attribute's type code; 0 when the list of attributes ended before one was read.
    pub attribute: u8,
    /// What was done.
    pub action: Action,
    /// What was wrong.
    pub why: Malformation,
}

impl fmt::Display for Malformation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed")
    }
}
