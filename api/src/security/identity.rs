//! Identity of a caller, as proven by connection or token.

use model::primitives::name::Name;

/// Client certificate of the TLS connection: issued by this cluster's CA and valid now. `serve` adds it to
/// the extensions of every request of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Node that it names.
    pub node: Name,
    /// Serial number in hexadecimal.
    pub serial: String,
}

/// Identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Authentication is disabled: the server runs on loopback or in a lab.
    Anyone,
    /// Unauthenticated caller.
    Nobody,
    /// Agent of a node.
    Agent(Name),
    /// Holder of a token.
    Token {
        /// Id of the token; not secret.
        id: String,
        /// Name of the token; recorded as the author of its requests.
        name: String,
    },
}
