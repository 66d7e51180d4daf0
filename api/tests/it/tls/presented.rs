//! Certificate that the server presents, depending on the authorities that the client names.

use tls_trust::Trust;

use super::*;

/// Sends a request as an agent does: it names the authorities that it trusts, and presents its certificate.
async fn call_as_agent(server: &Server, node: &Shown) -> io::Result<(u16, String)> {
    let config = Trust::authorities(server.roots.clone()).unwrap().control_client().unwrap();
    let config = config.with_client_auth_cert(node.0.clone(), node.1.clone_key()).unwrap();
    let stream = TcpStream::connect(server.address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from("control.example.org").unwrap(), stream).await?;
    exchange(stream, "GET", "/v1/whoami", None).await
}

/// Input: nodes have joined, then the operator configures a certificate of another authority, with names that only this
/// certificate has. Output: the agents keep their access; other clients get the certificate of the operator.
#[tokio::test]
async fn agents_keep_their_access_when_the_operator_changes_to_another_authority() {
    let before = start(own()).await;
    let node = before.join("n1").await;
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        certificate: folder.path().join("server.pem"),
        key: folder.path().join("server.key"),
    };
    let key = KeyPair::generate().unwrap();
    let names = ["localhost", "*.example.org", "192.0.2.1"].map(str::to_owned);
    let foreign = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    std::fs::write(&files.certificate, foreign.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let tls = TlsOptions { names: Vec::new(), files: Some(files), ..own() };
    let server = start_on(tls, Arc::clone(&before.store), Arc::clone(&before.source)).await;
    let (status, answer) = call_as_agent(&server, &node).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let others = connect(server.address, &server.roots, None, &[&version::TLS13]).await;
    let error = others.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "without a hint, the operator's certificate: {error}");
    let operators = [foreign.der().clone()];
    assert!(connect(server.address, &operators, None, &[&version::TLS13]).await.is_ok());
}
