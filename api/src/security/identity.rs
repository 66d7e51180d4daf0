//! Identity of a caller, as proven by connection or token.

use model::primitives::name::Name;

/// Client certificate of the TLS connection: issued by this cluster's CA and valid now. `serve` adds it to
/// the extensions of every request of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Node that the certificate names.
    pub node: Name,
    /// Serial number in lower-case hexadecimal.
    pub serial: String,
}

/// Authenticated identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Authentication is disabled: the server runs on loopback or in a lab.
    Anyone,
    /// Caller without credentials on a server that requires them.
    Nobody,
    /// Agent of the named node, authenticated by its certificate.
    Agent(Name),
    /// Holder of a token, also through a session of the status page.
    Token {
        /// Id of the token; not a secret.
        id: String,
        /// Name of the token, recorded as the author of its writes.
        name: String,
    },
}
