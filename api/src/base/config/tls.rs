//! TLS settings of the server: flags and their validation.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::ValueEnum;
use rustls_pki_types::ServerName;

/// Default lifetime of agent certificates in seconds: one day, so that a stolen key is not useful for long.
const AGENT_LIFE_SECS_DEFAULT: u32 = 86_400;
/// Minimum lifetime of agent certificates that can be configured, in seconds. Agents renew after about two
/// thirds of the lifetime, so at least 5 s remain for the renewal.
const AGENT_LIFE_SECS_MIN: u32 = 15;
/// Maximum lifetime of agent certificates in seconds: 90 days, for nodes that are offline for long.
const AGENT_LIFE_SECS_MAX: u32 = 90 * 86_400;
/// Default time in seconds after its expiry during which an agent certificate can be renewed: 30 days, longer than a
/// company holiday.
const AGENT_RENEWAL_GRACE_SECS_DEFAULT: u32 = 30 * 86_400;
/// Maximum of that time in seconds, one year.
pub(super) const AGENT_RENEWAL_GRACE_SECS_MAX: i64 = 365 * 86_400;
/// Maximum number of interface addresses in the server certificate. A machine that announces virtual addresses may
/// have thousands.
const ADDRESSES_MAX: usize = 64;

/// TLS mode of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TlsChoice {
    /// TLS is enabled if the server listens on an address other than loopback, unless `--insecure` is set, and
    /// whenever a certificate file is given
    #[default]
    Auto,
    /// TLS is always enabled
    On,
    /// TLS is always disabled
    Off,
}

/// Minimum TLS version that the server accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TlsMin {
    /// TLS 1.2 (RFC 5246), restricted to its secure cipher suites
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446)
    #[default]
    #[value(name = "1.3")]
    V1_3,
}

/// TLS flags as given, before they are validated and combined.
#[derive(Debug, Clone, Default)]
pub(super) struct TlsWish {
    pub(super) choice: TlsChoice,
    pub(super) min: Option<TlsMin>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) names: Vec<String>,
    pub(super) agent_life_secs: Option<u32>,
    pub(super) agent_renewal_grace_secs: Option<u32>,
}

/// Invalid or contradictory TLS flags.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTls {
    /// Only one of `--tls-cert-file` and `--tls-key-file` is given. The payload is the missing flag.
    #[error("--tls-cert-file and --tls-key-file belong together; {0} is missing")]
    HalfAPair(&'static str),
    /// Flag that has no effect without TLS.
    #[error("{0} needs TLS; remove --tls off")]
    Off(&'static str),
    /// `--insecure` and `--tls on` are both given.
    #[error("--insecure and --tls on contradict each other; leave one out")]
    Insecure,
    /// `--tls-name` is given with `--tls-cert-file`, whose certificate already determines the names.
    #[error(
        "--tls-name is for the certificate of Tidegate's own authority; the names of --tls-cert-file are in that file"
    )]
    NamesOfFile,
    /// Value of `--tls-name` that is neither a DNS name nor an IP address.
    #[error("--tls-name {0} must be a DNS name or an address")]
    Name(String),
    /// The lifetime of agent certificates is outside of the permitted range.
    #[error(
        "--agent-certificate-secs must be between {AGENT_LIFE_SECS_MIN} and {AGENT_LIFE_SECS_MAX}, not {0}"
    )]
    AgentLife(u32),
}

impl TlsWish {
    /// Validates the TLS flags. Returns the TLS options, or `None` for plain HTTP.
    ///
    /// # Errors
    /// Returns the first contradiction or invalid value.
    pub(super) fn check(
        self,
        listen: SocketAddr,
        is_insecure: bool,
    ) -> Result<Option<TlsOptions>, InvalidTls> {
        let Self { choice, min, certificate, key, names, agent_life_secs, agent_renewal_grace_secs } = self;
        let files = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(InvalidTls::HalfAPair("--tls-key-file")),
            (None, Some(_)) => return Err(InvalidTls::HalfAPair("--tls-cert-file")),
        };
        let is_on = match choice {
            TlsChoice::On if is_insecure => return Err(InvalidTls::Insecure),
            TlsChoice::On => true,
            TlsChoice::Off => false,
            TlsChoice::Auto => files.is_some() || !(listen.ip().is_loopback() || is_insecure),
        };
        if !is_on {
            let settings = [
                ("--tls-cert-file", files.is_some()),
                ("--tls-name", !names.is_empty()),
                ("--tls-min", min.is_some()),
            ];
            let idle = settings.into_iter().find(|(_, is_said)| *is_said && choice == TlsChoice::Off);
            return idle.map_or(Ok(None), |(flag, _)| Err(InvalidTls::Off(flag)));
        }
        if files.is_some() && !names.is_empty() {
            return Err(InvalidTls::NamesOfFile);
        }
        let life = agent_life_secs.unwrap_or(AGENT_LIFE_SECS_DEFAULT);
        if !(AGENT_LIFE_SECS_MIN..=AGENT_LIFE_SECS_MAX).contains(&life) {
            return Err(InvalidTls::AgentLife(life));
        }
        let names = all_names(names, listen.ip())?;
        let min = min.unwrap_or_default();
        let grace = agent_renewal_grace_secs.unwrap_or(AGENT_RENEWAL_GRACE_SECS_DEFAULT);
        Ok(Some(TlsOptions {
            names,
            files,
            min,
            agent_life_secs: i64::from(life),
            agent_renewal_grace_secs: i64::from(grace),
        }))
    }
}

/// Returns the names for the server certificate: the configured names, the host name, `localhost` and the
/// addresses of the machine.
fn all_names(given: Vec<String>, listen: IpAddr) -> Result<Vec<ServerName<'static>>, InvalidTls> {
    let mut names = Vec::new();
    for name in given {
        let text = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        names.push(ServerName::try_from(text).map_err(|_| InvalidTls::Name(name))?);
    }
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let found = ["localhost".to_owned()].into_iter().chain(host);
    names.extend(found.filter_map(|name| ServerName::try_from(name).ok()));
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0_u16, 0, 0, 0, 0, 0, 0, 1])];
    if !listen.is_unspecified() {
        addresses.push(listen);
    }
    addresses.extend(of_interfaces().into_iter().take(ADDRESSES_MAX));
    names.extend(addresses.into_iter().map(|address| ServerName::IpAddress(address.into())));
    let mut seen = Vec::new();
    names.retain(|name| {
        !seen.contains(name) && {
            seen.push(name.clone());
            true
        }
    });
    Ok(names)
}

fn of_interfaces() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    addresses.filter(|address| !address.is_loopback()).collect()
}

/// Validated TLS options of a server that serves HTTPS.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Names in the server certificate if Tidegate's own CA signs it.
    pub names: Vec<ServerName<'static>>,
    /// Configured certificate files, used instead of a certificate that Tidegate's own CA signs.
    pub files: Option<CertificateFiles>,
    /// Lowest accepted TLS version.
    pub min: TlsMin,
    /// Lifetime of agent certificates, in seconds.
    pub agent_life_secs: i64,
    /// Time in seconds after its expiry during which an agent certificate can be renewed; 0 disables that.
    pub agent_renewal_grace_secs: i64,
}

/// Certificate and key files configured by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Path of the certificate chain in PEM, server certificate first.
    pub certificate: PathBuf,
    /// Path of the private key in PEM.
    pub key: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, insecure: bool, wish: TlsWish) -> Result<Option<TlsOptions>, String> {
        let listen = listen.parse().map_err(|_| listen.to_owned())?;
        wish.check(listen, insecure).map_err(|error| error.to_string())
    }

    fn chosen(choice: TlsChoice) -> TlsWish {
        TlsWish { choice, ..TlsWish::default() }
    }

    fn files() -> TlsWish {
        TlsWish { certificate: Some("a".into()), key: Some("b".into()), ..TlsWish::default() }
    }

    #[test]
    fn tls_is_spoken_off_loopback_and_with_a_certificate_unless_it_is_refused() {
        let (here, everywhere) = ("127.0.0.1:1", "0.0.0.0:1");
        let is_on = |listen, insecure, wish: TlsWish| check(listen, insecure, wish).unwrap().is_some();
        assert!(is_on(everywhere, false, TlsWish::default()));
        assert!(!is_on(here, false, TlsWish::default()) && !is_on(everywhere, true, TlsWish::default()));
        assert!(is_on(here, false, chosen(TlsChoice::On)) && is_on(here, false, files()));
        assert!(!is_on(everywhere, false, chosen(TlsChoice::Off)));
    }

    #[test]
    fn contradictions_are_refused_with_the_flag() {
        let here = "127.0.0.1:1";
        let name = |name: &str| TlsWish {
            choice: TlsChoice::On,
            names: vec![name.to_owned()],
            ..TlsWish::default()
        };
        for (wish, insecure, flag) in [
            (TlsWish { key: None, ..files() }, false, "--tls-key-file is missing"),
            (TlsWish { certificate: None, ..files() }, false, "--tls-cert-file is missing"),
            (TlsWish { choice: TlsChoice::Off, ..files() }, false, "--tls-cert-file needs TLS"),
            (TlsWish { names: vec!["x".to_owned()], ..files() }, false, "--tls-name"),
            (TlsWish { min: Some(TlsMin::V1_2), ..chosen(TlsChoice::Off) }, false, "--tls-min needs TLS"),
            (TlsWish { choice: TlsChoice::On, ..TlsWish::default() }, true, "--insecure"),
            (name("a b"), false, "--tls-name a b"),
            (TlsWish { agent_life_secs: Some(1), ..files() }, false, "--agent-certificate-secs"),
        ] {
            let refusal = check(here, insecure, wish).unwrap_err();
            assert!(refusal.contains(flag), "{refusal}");
        }
        let names = check(here, false, name("[2001:db8::1]")).unwrap().unwrap().names;
        for expected in ["2001:db8::1", "localhost", "127.0.0.1", "::1"] {
            assert!(names.contains(&ServerName::try_from(expected).unwrap()), "{expected} in {names:?}");
        }
    }
}
