//! TLS of the server: its certificate, the verification of client certificates, and renewal at run time.
//!
//! Certificate and key are loaded together and replaced as a pair; if the new pair is invalid, the old one
//! remains in use.
//!
//! ```text
//! first message of the client names one of our CAs (RFC 8446, 4.2.4) ─▶ certificate signed by this CA
//! any other client ─▶ certificate of the operator, if configured, else the one signed by our CA; after a rotation by the former one
//! ```
//! Agents verify servers by the CA certificates that they received when they joined. They name them, so that they keep their
//! access when the operator changes to a certificate of another authority, or replaces that authority.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use ::base::chain;
use arc_swap::ArcSwap;
use model::primitives::quantity::Timestamp;
use rustls::{
    DistinguishedName, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    CertificateFiles, TlsOptions,
    base::{clock_and_random::Source, config::tls::TlsMin},
    context::server_state::ServerState,
    security::{
        authority::{Authority, ServerCertificate, TrustVersion, default_transition_secs},
        ca::SERVER_LIFE_SECS,
        certificates::ConnectionCertificate,
        vault::Vault,
    },
};

/// Interval at which the task checks for changed certificate files, changed CAs and an expiring certificate.
const LOOK: Duration = Duration::from_secs(2);
/// Time in seconds between two checks if a CA has to be removed or rotated.
const TEND_SECS: u64 = 60;
/// Maximum size of a certificate or key file in bytes. A certificate chain has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Protocols offered by ALPN (RFC 7301), in order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Reason why a certificate cannot be used. Messages contain no key material.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file that a flag names cannot be read.
    #[error("{flag} {path} cannot be read")]
    Unreadable {
        /// Name of the flag, such as `--tls-cert-file`.
        flag: &'static str,
        /// Path of the file that the flag names.
        path: PathBuf,
        /// I/O error of the read.
        #[source]
        cause: io::Error,
    },
    /// The file that a flag names has unexpected contents.
    #[error("{flag} {path} must hold {expected} as PEM")]
    Malformed {
        /// Name of the flag, such as `--tls-cert-file`.
        flag: &'static str,
        /// Path of the file that the flag names.
        path: PathBuf,
        /// Description of the expected contents.
        expected: &'static str,
    },
    /// A certificate in the file of `--tls-cert-file` has expired.
    #[error("--tls-cert-file {path} has a certificate that expired {expired}: clients reject it")]
    Expired {
        /// Path of the file.
        path: PathBuf,
        /// End of validity.
        expired: Timestamp,
    },
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("the certificate and the key cannot be used together: {0}")]
    Unfit(rustls::Error),
    /// The CA failed to sign the server certificate.
    #[error("the certificate of the server cannot be signed")]
    Unsigned(#[source] rcgen::Error),
    /// The server runs without TLS and therefore has no CA, which the operation needs.
    #[error("the server has no CA: --tls is off")]
    Off,
}

/// Current TLS configuration of the server, replaced when the certificate is renewed.
pub struct Tls {
    config: ArcSwap<ServerConfig>,
    options: TlsOptions,
    authority: Arc<Authority>,
    vault: Arc<Vault>,
    source: Arc<dyn Source>,
}

/// Certificate chain and private key of the server.
struct ServerIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Certificates of the server, one for each group of clients.
struct ServerIdentities {
    /// Certificates signed by each of our CAs; clients that name no CA get the last one.
    own: Vec<ServerCertificate>,
    /// Certificate of the operator, if configured.
    configured: Option<ServerIdentity>,
}

/// Certificates that the server presents.
#[derive(Debug)]
struct CertificateResolver {
    /// Certificates for clients that name one of our CAs, each with the name of the CA; the first one that fits is presented.
    own: Vec<(DistinguishedName, Arc<CertifiedKey>)>,
    /// Certificate for all other clients.
    general: Arc<CertifiedKey>,
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.certificate_authorities().unwrap_or_default();
        let is_named = |ours: &DistinguishedName| named.iter().any(|name| name.as_ref() == ours.as_ref());
        let own = self.own.iter().find(|(ours, _)| is_named(ours));
        Some(Arc::clone(own.map_or(&self.general, |(_, certificate)| certificate)))
    }
}

/// Modification time and size of the certificate and the key file, by which changes are detected.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Tls {
    /// Loads or creates the server certificate and starts the task that renews it.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be loaded or created.
    pub async fn start(app: &Arc<ServerState>) -> Result<Arc<Self>, TlsError> {
        let (Some(options), Some(authority)) = (app.settings.tls.clone(), app.authority.clone()) else {
            return Err(TlsError::Off);
        };
        let source = Arc::clone(&app.source);
        let (stamp, begun) = (stamp(&options).await, source.now());
        let trust = authority.version(begun);
        let identities = obtain(&options, &authority, &*source).await?;
        let config = configure(options.min, identities, &source)?;
        let vault = Arc::clone(&app.vault);
        let tls = Arc::new(Self { config: ArcSwap::from_pointee(config), options, authority, vault, source });
        let pin = tls.authority.trusted(begun).pin;
        tracing::info!(
            pin = format!("sha256:{pin}"),
            "TLS is ready; agents and clients can pin this certificate"
        );
        tokio::spawn(look_after(Arc::downgrade(&tls), (stamp, trust), begun));
        Ok(tls)
    }

    /// Performs the TLS handshake of a connection. Returns the encrypted stream and the client certificate, if the
    /// client presented one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<ConnectionCertificate>)> {
        let stream = TlsAcceptor::from(self.config.load_full()).accept(stream).await?;
        let certificates = stream.get_ref().1.peer_certificates();
        let proven = certificates.and_then(|chain| {
            ConnectionCertificate::read(chain.first()?, &self.authority, &self.vault, &self.source)
        });
        Ok((stream, proven))
    }

    async fn renew(&self) -> Result<(), TlsError> {
        let identities = obtain(&self.options, &self.authority, &*self.source).await?;
        self.config.store(Arc::new(configure(self.options.min, identities, &self.source)?));
        Ok(())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Replaces the server certificate when its files or the trusted CAs change, or when it is about to expire. Rotates the CA before
/// it expires. Ends when `tls` is dropped.
async fn look_after(tls: Weak<Tls>, mut in_force: (Stamp, TrustVersion), mut begun: Timestamp) {
    let mut turn = tokio::time::interval(LOOK);
    // Last unusable version of the files, and whether it was logged.
    let mut unusable: Option<((Stamp, TrustVersion), bool)> = None;
    let mut tended: Option<Timestamp> = None;
    loop {
        turn.tick().await;
        let Some(tls) = tls.upgrade() else { return };
        let now = tls.source.now();
        if tended.is_none_or(|at| now.unix_seconds().abs_diff(at.unix_seconds()) >= TEND_SECS) {
            let TlsOptions { agent_life_secs, agent_renewal_grace_secs, .. } = tls.options;
            let transition_secs = default_transition_secs(agent_life_secs, agent_renewal_grace_secs);
            tls.authority.tend(transition_secs, &*tls.source).await;
            tended = Some(now);
        }
        let found = (stamp(&tls.options).await, tls.authority.version(now));
        let is_old = now.unix_seconds().saturating_sub(begun.unix_seconds()) > SERVER_LIFE_SECS / 3 * 2;
        if found == in_force && !is_old {
            unusable = None;
            continue;
        }
        match tls.renew().await {
            Ok(()) => {
                (in_force, begun, unusable) = (found, now, None);
                tracing::info!("the server certificate was replaced");
            }
            Err(error) => {
                // Operators replace two files one after the other; only a mismatch that persists is an error.
                let (is_same, was_said) =
                    unusable.map_or((false, false), |(last, said)| (last == found, said && last == found));
                if is_same && !was_said {
                    tracing::error!(
                        error = chain(&error),
                        "the new certificate cannot be used; the old one stays in force"
                    );
                }
                unusable = Some((found, is_same));
            }
        }
    }
}

async fn stamp(options: &TlsOptions) -> Stamp {
    let Some(CertificateFiles { certificate, key }) = &options.files else { return [None, None] };
    let of = async |path: &PathBuf| {
        let metadata = tokio::fs::metadata(path).await.ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    [of(certificate).await, of(key).await]
}

async fn obtain(
    options: &TlsOptions,
    authority: &Authority,
    source: &dyn Source,
) -> Result<ServerIdentities, TlsError> {
    // Validate before the trust anchors change, so that a mismatching pair has no effect.
    let configured = match &options.files {
        Some(files) => Some(read_pair(files, source.now()).await?),
        None => None,
    };
    let first = configured.as_ref().and_then(|configured| configured.chain.first());
    let own = authority.sign_server(&options.names, first, source).map_err(TlsError::Unsigned)?;
    if let Some(last) = configured.as_ref().and_then(|configured| configured.chain.last()) {
        authority.trust_also(last);
    }
    Ok(ServerIdentities { own, configured })
}

/// Checks that the files contain a certificate chain that has not expired, and the private key of its first certificate.
pub(crate) async fn check(files: &CertificateFiles, now: Timestamp) -> Result<(), TlsError> {
    let ServerIdentity { chain, key: _ } = read_pair(files, now).await?;
    match first_end(&chain).filter(|end| *end <= now) {
        Some(expired) => Err(TlsError::Expired { path: files.certificate.clone(), expired }),
        None => Ok(()),
    }
}

/// Returns the earliest end of validity in a chain.
fn first_end(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let ends = chain.iter().filter_map(|certificate| {
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        Some(Timestamp::from_unix_seconds(certificate.validity().not_after.timestamp()))
    });
    ends.min()
}

async fn read_pair(
    CertificateFiles { certificate, key }: &CertificateFiles,
    now: Timestamp,
) -> Result<ServerIdentity, TlsError> {
    let flag = "--tls-cert-file";
    let malformed = || TlsError::Malformed { flag, path: certificate.clone(), expected: "certificates" };
    let pem = read(flag, certificate).await?;
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|_| malformed())?;
    if chain.is_empty() {
        return Err(malformed());
    }
    warn_of_end(&chain, now);
    let flag = "--tls-key-file";
    let pem = read(flag, key).await?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::Malformed {
        flag,
        path: key.clone(),
        expected: "one private key",
    })?;
    let signing = provider().key_provider.load_private_key(key.clone_key()).map_err(TlsError::Unfit)?;
    CertifiedKey::new(chain.clone(), signing).keys_match().map_err(TlsError::Unfit)?;
    Ok(ServerIdentity { chain, key })
}

async fn read(flag: &'static str, path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    let unreadable = |cause| TlsError::Unreadable { flag, path: path.clone(), cause };
    let length = tokio::fs::metadata(path).await.map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX {
        return Err(TlsError::Malformed { flag, path: path.clone(), expected: "at most 1 MiB" });
    }
    tokio::fs::read(path).await.map_err(unreadable)
}

fn warn_of_end(chain: &[CertificateDer<'_>], now: Timestamp) {
    if first_end(chain).is_some_and(|end| end <= now) {
        tracing::error!("a certificate of --tls-cert-file has expired; clients reject it");
    }
}

fn configure(
    min: TlsMin,
    identities: ServerIdentities,
    source: &Arc<dyn Source>,
) -> Result<ServerConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in &identities.own {
        roots.add(certificate.authority.clone()).map_err(TlsError::Unfit)?;
    }
    let presented = presented(identities, &roots)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::Unfit(rustls::Error::General(error.to_string())))?;
    let clock = Arc::new(Clock(Arc::clone(source)));
    let versions: &[_] = match min {
        TlsMin::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsMin::V1_3 => &[&rustls::version::TLS13],
    };
    let mut config = ServerConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(versions)
        .map_err(TlsError::Unfit)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(presented));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    // Resumption is disabled, because a resumed connection presents no certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Returns the certificates to present; `roots` contains the CAs of `identities.own`, in the same order.
fn presented(identities: ServerIdentities, roots: &RootCertStore) -> Result<CertificateResolver, TlsError> {
    let usable =
        |chain, key| CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(TlsError::Unfit);
    let ServerIdentities { own, configured } = identities;
    let own = own.into_iter().map(|ServerCertificate { authority: _, chain, key }| usable(chain, key));
    let own = roots.subjects().into_iter().zip(own.collect::<Result<Vec<_>, _>>()?).collect::<Vec<_>>();
    let configured = configured.map(|ServerIdentity { chain, key }| usable(chain, key)).transpose()?;
    let general = configured.or_else(|| own.last().map(|(_, last)| Arc::clone(last)));
    let general = general.expect("the cluster has a CA");
    Ok(CertificateResolver { own, general })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Time source for rustls that uses the clock of the server, which tests can replace.
struct Clock(Arc<dyn Source>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let unix = u64::try_from(self.0.now().unix_seconds()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(unix)))
    }
}
