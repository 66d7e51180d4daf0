//! Identity of this node: a private key created by the agent, and a short-lived certificate signed by the
//! control server.
//!
//! ```text
//! join token ──▶ keeper ──CSR──────▶ control      initially, and after a revocation
//!                  │  ◀──certificate───┘ ▲
//!                  │  ── renewal at two thirds of the lifetime, authenticated by the certificate;
//!                  │     after its expiry by a signature of its key
//!                  ▼
//!          state directory (0600) and the client of all control connections
//! ```
//! The key never leaves the machine. Traffic and the saved state do not depend on the certificate.

mod client;
mod identity;
mod keeper;
mod request;
mod token;

use std::path::PathBuf;

use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use serde::Serialize;

pub use keeper::{CertificateHandle, start};

/// Options by which this node obtains a certificate.
#[derive(Debug, Clone, Default)]
pub struct EnrolOptions {
    /// PEM file with the CA certificates of the control servers, if configured.
    pub ca_file: Option<PathBuf>,
    /// File that contains the join token, if configured.
    pub join_token_file: Option<PathBuf>,
    /// Join token from the environment variable `TIDEGATE_JOIN_TOKEN`, if set.
    pub join_token: Option<Secret>,
}

/// Node name and location of the saved identity.
#[derive(Debug, Clone)]
pub struct IdentityLocation {
    /// Name of the node, which the certificate must contain.
    pub node: Name,
    /// State directory, where key and certificate are saved.
    pub state_dir: PathBuf,
}

/// Status of this node's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// End of validity; `None` without a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Current problem with its remedy, as text; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
