//! TLS clients that open a connection for each request.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use lab::host::netns::Namespace;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind as SeenKind, SignatureScheme,
    Stream,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    contestant::HttpContest,
    data::{PAGE, host, prefix},
    load::HttpLoadResult,
};

/// Number of clients.
const CLIENTS: usize = 8;
/// Timeout of reads and writes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Kind of the handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeKind {
    /// Full handshakes.
    Full,
    /// Resumed sessions, except the first one of each client.
    Resumed,
}

/// Connects again and again with several clients for the time `slice`, with one request per connection. Returns the latencies
/// from the start of the connection until its end in microseconds.
pub(super) fn connect(
    place: &Namespace,
    contest: &HttpContest,
    kind: HandshakeKind,
    slice: Duration,
) -> Result<(HttpLoadResult, Vec<f64>)> {
    let begun = Instant::now();
    let one = || place.inside(|| client(contest, kind, begun + slice));
    let all: Vec<Result<Vec<f64>>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        let joined = clients.into_iter().map(|client| client.join());
        joined.map(|joined| joined.unwrap_or_else(|_| Err(anyhow!("a client panicked")))).collect()
    });
    let latencies: Vec<f64> = all.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let completed = u64::try_from(latencies.len()).unwrap_or(u64::MAX);
    ensure!(completed > 0, "no connection succeeded");
    let per_second = completed as f64 / begun.elapsed().as_secs_f64();
    Ok((HttpLoadResult { completed, failed: 0, per_second }, latencies))
}

fn client(contest: &HttpContest, kind: HandshakeKind, end: Instant) -> Result<Vec<f64>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().context("versions of TLS")?;
    let verifier = Arc::new(AnyCertificate(provider));
    let mut config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    if kind == HandshakeKind::Full {
        config.resumption = Resumption::disabled();
    }
    let config = Arc::new(config);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        let seen = exchange(contest, &config)?;
        latencies.push(begun.elapsed().as_secs_f64() * 1e6);
        let is_full = kind == HandshakeKind::Full || latencies.len() == 1;
        ensure!((seen != SeenKind::Resumed) == is_full, "handshake {}: {seen:?}", latencies.len());
    }
    Ok(latencies)
}

/// Sends one request over a connection of its own. Returns the kind of its handshake.
fn exchange(contest: &HttpContest, config: &Arc<ClientConfig>) -> Result<SeenKind> {
    let host = host(contest.route);
    let name = ServerName::try_from(host.clone()).context("a host name")?;
    let mut connection = ClientConnection::new(Arc::clone(config), name).context("cannot begin")?;
    let mut socket = TcpStream::connect(("127.0.0.1", contest.proxy.tls_port())).context("cannot connect")?;
    socket.set_read_timeout(Some(TIMEOUT)).and_then(|()| socket.set_write_timeout(Some(TIMEOUT)))?;
    socket.set_nodelay(true)?;
    let mut stream = Stream::new(&mut connection, &mut socket);
    let request = format!("GET {}/page HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n", prefix(0));
    stream.write_all(request.as_bytes()).context("cannot send")?;
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    // Ends with the page, because some servers close the connection without `close_notify`.
    while !response.ends_with(PAGE.as_bytes()) {
        let count = stream.read(&mut buffer).context("no response")?;
        ensure!(count > 0, "the connection ended: {}", String::from_utf8_lossy(&response));
        response.extend(buffer.iter().take(count));
    }
    ensure!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    connection.handshake_kind().context("the handshake has not ended")
}

/// Accepts each certificate, but checks the signatures of handshakes as other clients do.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
