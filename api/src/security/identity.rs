//! Identity of a caller, as authenticated by the connection or a token.

use model::primitives::{name::Name, quantity::Timestamp};

/// Client certificate of the TLS connection: issued by this cluster's CA and valid now. The certificate is part of
/// the extensions of every request of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Name of the node in the certificate.
    pub node: Name,
    /// Serial number of the certificate in lower-case hexadecimal.
    pub serial: String,
}

/// Marker of the requests of a connection whose client certificate has expired or was revoked. They are rejected also where
/// requests without credentials are accepted: otherwise a deleted Node would come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedCertificate;

/// Marker of the requests that arrive over the Unix socket, whose permissions have authenticated the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalClient;

/// Authenticated identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Any caller while authentication is disabled, because the server runs on loopback or in a lab; and every
    /// client of the Unix socket.
    Anyone,
    /// Caller without credentials on a server that requires them.
    Nobody,
    /// Agent of the named node, authenticated by its certificate.
    Agent(Name),
    /// Holder of a token, who sends it with the request or has a session of the status page.
    Token {
        /// Id of the token; not a secret.
        id: String,
        /// Name of the token, recorded as the author of its writes.
        name: String,
    },
    /// User with an ID token of the OpenID Connect issuer.
    User {
        /// Name of the user, unique at the issuer.
        name: String,
        /// Time at which the ID token ends.
        expires: Timestamp,
    },
}
