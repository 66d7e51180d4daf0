//! Identity of this node: a private key created by the agent, and a short-lived certificate signed by
//! control.
//!
//! ```text
//! join token ──▶ keeper ──CSR──────▶ control      initially, and when there is no valid certificate
//!                  │  ◀──certificate───┘ ▲
//!                  │  ── renewal at two thirds of the lifetime, authenticated by the certificate
//!                  ▼
//!          state directory (0600) and the client of all control connections
//! ```
//! The key never leaves the machine. Traffic and the saved state do not depend on this.

mod client;
mod identity;
mod keeper;
mod request;
mod token;

use std::path::PathBuf;

use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use serde::Serialize;

pub use keeper::{CertificateHandle, start};

/// Options for certificates.
#[derive(Debug, Clone, Default)]
pub struct EnrolOptions {
    /// CA certificates of the control servers, as a PEM file.
    pub ca_file: Option<PathBuf>,
    /// File with the join token.
    pub join_token_file: Option<PathBuf>,
    /// Join token from the environment.
    pub join_token: Option<Secret>,
}

/// Node name and location of the saved identity.
#[derive(Debug, Clone)]
pub struct IdentityLocation {
    /// Name of the node.
    pub node: Name,
    /// State directory.
    pub state_dir: PathBuf,
}

/// Status of the certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// Expiry time; `None` without a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Current problem and its remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
