//! Setting of an upstream server: `ADDRESS[:PORT]`, or `tls://ADDRESS[:PORT][#NAME]` for DNS over TLS, after `ZONE=` for the
//! names of a zone only.

use std::{fmt, net::SocketAddr};

use clap::ValueEnum;
use model::primitives::domain_name::DomainName;
use rustls_pki_types::ServerName;

use super::{parse_server, parse_tls_server};

/// Prefix of servers that are asked over TLS.
const TLS_PREFIX: &str = "tls://";

/// Upstream server with the zone for whose names it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSetting {
    /// Zone whose names are asked of the server, unless a longer zone with servers contains them. `None` for all names.
    pub zone: Option<DomainName>,
    /// Server to ask.
    pub server: UpstreamServer,
}

impl UpstreamSetting {
    /// Parses `[ZONE=]SERVER`. The zone may be in upper case and end with a dot.
    ///
    /// # Errors
    /// Returns the expected form if the text does not have it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((zone, server)) = text.split_once('=') else {
            return Ok(Self { zone: None, server: UpstreamServer::parse(text)? });
        };
        let name = zone.strip_suffix('.').unwrap_or(zone).to_ascii_lowercase();
        let zone = DomainName::parse(&name)
            .map_err(|error| format!("must have the name of a zone before =: `{zone}` {error}"))?;
        Ok(Self { zone: Some(zone), server: UpstreamServer::parse(server)? })
    }
}

impl fmt::Display for UpstreamSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{zone}={}", self.server),
            None => self.server.fmt(f),
        }
    }
}

/// Order in which the upstream servers of a zone are asked. Servers that did not respond within the last 10 s are last with
/// every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UpstreamPolicy {
    /// Order of the setting
    Sequential,
    /// Another random order for each question
    Random,
    /// Shortest average response time first
    Fastest,
}

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

    #[test]
    fn a_server_may_have_a_zone() {
        let show = |text: &str| UpstreamSetting::parse(text).map(|setting| setting.to_string());
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("corp.example=192.0.2.1", "corp.example=192.0.2.1:53"),
            ("Corp.Example.=[2001:db8::1]:54", "corp.example=[2001:db8::1]:54"),
            ("10.in-addr.arpa=tls://192.0.2.1#a.example", "10.in-addr.arpa=tls://192.0.2.1:853#a.example"),
        ] {
            assert_eq!(show(text).as_deref(), Ok(expected));
        }
        for text in ["=192.0.2.1", ".=192.0.2.1", "*.example=192.0.2.1", "a..b=192.0.2.1", "corp.example="] {
            assert!(show(text).is_err(), "{text}");
        }
    }

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
