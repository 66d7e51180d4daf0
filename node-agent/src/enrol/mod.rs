//! How this node proves who it is: a key that it makes itself, and a certificate that control signs and that ends soon.
//!
//! ```text
//! join token ──▶ keeper ──key, request──▶ control      at first, and when nothing counts any longer
//!                  │  ◀──certificate──────┘ ▲
//!                  │  ── renew, at two thirds of its life, with the certificate itself
//!                  ▼
//!          state directory (0600) and the client of all ways to control
//! ```
//! The key never leaves the machine. Traffic and the saved state wait for none of this.

mod client;
mod identity;
mod keeper;
mod request;
mod token;

use std::path::PathBuf;

use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use serde::Serialize;

pub use keeper::{Kept, start};

/// What the operator said about certificates.
#[derive(Debug, Clone, Default)]
pub struct EnrolOptions {
    /// The authorities of control servers, as a PEM file.
    pub ca_file: Option<PathBuf>,
    /// Where the join token is.
    pub join_token_file: Option<PathBuf>,
    /// The join token, from the environment.
    pub join_token: Option<Secret>,
}

/// Where it is kept, and for whom.
#[derive(Debug, Clone)]
pub struct Place {
    /// The node.
    pub node: Name,
    /// The state directory.
    pub state_dir: PathBuf,
}

/// How it is going, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// When the certificate ends; nothing while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// What is wrong with it, and what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
