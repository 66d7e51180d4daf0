//! Who makes a request, as far as connection and token prove it.

use model::primitives::name::Name;

/// What the TLS connection proved: an agent's certificate, issued by this cluster's own authority and valid now. `serve`
/// puts it into the extensions of every request of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The node that it names.
    pub node: Name,
    /// The serial number, in hexadecimal.
    pub serial: String,
}

/// Who makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nobody is asked: the server runs without security, on loopback or in a lab.
    Anyone,
    /// Nothing was proven.
    Nobody,
    /// The agent of a node.
    Agent(Name),
    /// Who holds a token.
    Token {
        /// The id of the token; not secret.
        id: String,
        /// The name that its maker gave it: the author of what is done with it.
        name: String,
    },
}
