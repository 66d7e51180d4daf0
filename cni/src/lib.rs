//! CNI plugin `tidegate-cni`: a client of the agent's socket for attachments
//! ([CNI specification 1.1.0](https://github.com/containernetworking/cni/blob/main/SPEC.md)).
//!
//! ```text
//!  environment, standard input ──▶ parse ──▶ run ──socket──▶ agent
//!  standard output ◀── render ◀──────────────┘
//! ```
//! Invariants: the plugin has no state; every operation can be repeated. All limits of the input are constants in `parse`.

pub mod parse;
pub mod render;
pub mod run;

use std::fmt;

/// Error of an operation, as defined by the section *Error* of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniError {
    /// Code of the error.
    pub code: CniCode,
    /// Short description of the error.
    pub message: String,
    /// Cause and remedy.
    pub details: String,
}

/// Code of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CniCode {
    /// Version of the configuration that the plugin does not support (1).
    IncompatibleVersion,
    /// The container does not exist (3).
    UnknownContainer,
    /// An environment variable is missing or invalid (4).
    InvalidEnvironment,
    /// The input cannot be read (5).
    Io,
    /// The configuration is not JSON of the expected form (6).
    Decode,
    /// A value of the configuration is invalid (7).
    InvalidConfig,
    /// The operation can succeed later (11).
    TryAgain,
    /// The plugin cannot serve ADD requests (50).
    NotAvailable,
    /// The agent rejected the operation (100).
    Rejected,
}

impl CniCode {
    /// Returns the number of the code.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decode => 6,
            Self::InvalidConfig => 7,
            Self::TryAgain => 11,
            Self::NotAvailable => 50,
            Self::Rejected => 100,
        }
    }
}

impl CniError {
    /// Creates an error.
    #[must_use]
    pub fn new(code: CniCode, message: impl Into<String>, details: impl fmt::Display) -> Self {
        Self { code, message: message.into(), details: details.to_string() }
    }
}
