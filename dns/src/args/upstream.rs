//! Setting of an upstream server: `ADDRESS[:PORT]`, or `tls://ADDRESS[:PORT][#NAME]` for DNS over TLS.

use std::{fmt, net::SocketAddr};

use rustls_pki_types::ServerName;

use super::{parse_server, parse_tls_server};

/// Prefix of servers that are asked over TLS.
const TLS_PREFIX: &str = "tls://";

/// Server to which questions are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamServer {
    /// Server that is asked over UDP, and over TCP if the response is truncated.
    Plain(SocketAddr),
    /// Server that is asked over TLS (RFC 7858). Its certificate must be valid for the name, or for the address if the
    /// setting has no name.
    Tls(SocketAddr, ServerName<'static>),
}

impl UpstreamServer {
    /// Parses a setting. The default port is 53, and 853 over TLS.
    ///
    /// # Errors
    /// Returns the expected form if the text does not have it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(text) = text.strip_prefix(TLS_PREFIX) else { return parse_server(text).map(Self::Plain) };
        let (address, name) =
            text.split_once('#').map_or((text, None), |(address, name)| (address, Some(name)));
        let address = parse_tls_server(address)?;
        let name = match name {
            None => ServerName::from(address.ip()),
            Some(name) => ServerName::try_from(name.to_owned())
                .map_err(|_| format!("must have the name of the server after #, not `{name}`"))?,
        };
        Ok(Self::Tls(address, name))
    }

    /// Returns the address at which the server is asked.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        match self {
            Self::Plain(address) | Self::Tls(address, _) => *address,
        }
    }
}

impl fmt::Display for UpstreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(address) => write!(f, "{address}"),
            Self::Tls(address, name) => write!(f, "{TLS_PREFIX}{address}#{}", name.to_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name after `#` is that of the certificate; without one, the certificate must have the address.
    #[test]
    fn servers_over_tls_have_a_port_and_a_name() {
        let show = |text: &str| UpstreamServer::parse(text).map(|server| server.to_string());
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("tls://192.0.2.1", "tls://192.0.2.1:853#192.0.2.1"),
            ("tls://192.0.2.1#dns.example.org", "tls://192.0.2.1:853#dns.example.org"),
            ("tls://[2001:db8::1]:8853#dns.example.org", "tls://[2001:db8::1]:8853#dns.example.org"),
            ("tls://2001:db8::1", "tls://[2001:db8::1]:853#2001:db8::1"),
        ] {
            assert_eq!(show(text).as_deref(), Ok(expected));
        }
        for text in
            ["tls://dns.example.org", "tls://192.0.2.1#", "tls://192.0.2.1#a b", "192.0.2.1#dns.example.org"]
        {
            assert!(show(text).is_err(), "{text}");
        }
    }
}
