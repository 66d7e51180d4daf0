//! Requests over TLS: server names, protocols, renewed certificates, and listeners without a certificate.

use model::wire::certificate_keys::CertificateKeyList;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::keys::RingBuilder;

/// Maximum time of a handshake, which a busy machine needs in tests.
pub(super) const HANDSHAKE_TIMES: GateTimes = GateTimes { head: PATIENCE, idle: PATIENCE };
/// Host name without a certificate.
const BAD: &str = "bad.example.net";

/// Certificate of a test with its private key.
struct Identity {
    object: Arc<Object>,
    key: Value,
    root: CertificateDer<'static>,
}

fn identity(name: &str, host: &str) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().self_signed(&key).unwrap();
    let pem = certificate.pem();
    Identity {
        object: object("Certificate", name, &json!({"certificate": pem})),
        key: json!({"namespace": "default", "name": name, "certificate": pem, "privateKey": key.serialize_pem()}),
        root: CertificateDer::from_pem_slice(pem.as_bytes()).unwrap(),
    }
}

fn list(identities: &[&Identity]) -> CertificateKeyList {
    let keys: Vec<_> = identities.iter().map(|one| one.key.clone()).collect();
    serde_json::from_value(json!({"revision": 1, "keys": keys})).unwrap()
}

async fn connect(
    gateway: &TestGateway,
    trusted: &Identity,
    host: &str,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Sends a request over TLS, and returns the response in lower case.
async fn exchange(stream: &mut TlsStream<TcpStream>, host: &str) -> String {
    let request = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    // A server may close the connection without the alert of TLS.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap().to_ascii_lowercase()
}

/// F144: each server name gets its certificate, and the endpoint learns the scheme. A renewed certificate applies to new
/// connections, and open ones go on. A listener without a certificate fails alone.
#[tokio::test]
async fn f144_listeners_terminate_tls() {
    let endpoint = TestEndpoint::start().await;
    let (www, renewed) = (identity("www", "www.example.org"), identity("www", "www.example.org"));
    let wild = identity("wild", "*.example.org");
    let mut objects = [service("web", &[endpoint.port]), vec![routes(&rules())]].concat();
    objects.extend([Arc::clone(&www.object), Arc::clone(&wild.object)]);
    let port = free_port().await;
    let listener = |name: &str, hostname: &str, certificate: &str| {
        let tls = json!({"certificateRefs": [{"name": certificate}]});
        json!({"name": name, "port": port, "protocol": "HTTPS", "hostname": hostname, "tls": tls})
    };
    let listeners = json!([
        listener("www", "www.example.org", "www"),
        listener("wild", "*.example.org", "wild"),
        listener("bad", BAD, "none"),
    ]);
    let metrics = Arc::new(Metrics::default());
    let builder = RingBuilder::new(Arc::clone(&metrics));
    let (ring, certificates) = watch::channel(Arc::new(builder.ring(&list(&[&www, &wild]))));
    let gateway = TestGateway::start_at(port, &listeners, objects, certificates, HANDSHAKE_TIMES).await;
    for (identity, host) in [(&www, "www.example.org"), (&wild, "a.example.org")] {
        let mut stream = connect(&gateway, identity, host, "http/1.1").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let text = exchange(&mut stream, host).await;
        assert!(text.starts_with("http/1.1 200 ") && text.contains("x-forwarded-proto: https"), "{text}");
    }
    let mut stream = connect(&gateway, &www, "www.example.org", "http/1.1").await.unwrap();
    let text = exchange(&mut stream, "a.example.org").await;
    assert!(text.starts_with("http/1.1 421 "), "{text}");
    let stream = connect(&gateway, &www, "www.example.org", "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    for host in [BAD, "example.net"] {
        let error = connect(&gateway, &www, host, "http/1.1").await.unwrap_err().to_string();
        assert!(error.to_ascii_lowercase().contains("unrecogni"), "{host}: {error}");
    }

    let mut open = connect(&gateway, &www, "www.example.org", "http/1.1").await.unwrap();
    ring.send_replace(Arc::new(builder.ring(&list(&[&renewed, &wild]))));
    assert!(connect(&gateway, &www, "www.example.org", "http/1.1").await.is_err());
    assert!(connect(&gateway, &renewed, "www.example.org", "http/1.1").await.is_ok());
    let text = exchange(&mut open, "www.example.org").await;
    assert!(text.starts_with("http/1.1 200 "), "{text}");
    let text = metrics.text();
    for name in ["www", "wild"] {
        let line =
            format!(r#"tidegate_gateway_certificate_not_after_seconds{{certificate="default/{name}"}}"#);
        assert!(text.contains(&line), "{text}");
    }
}
