//! Rotation of the certificate authority.

use tls_trust::Trust;

use super::*;

/// Time in seconds after a rotation from which the new authority signs.
const SETTLED: i64 = 11;

/// Sends a request as an agent with these trusted authorities does: it names them, and presents its certificate.
async fn call_as_agent(
    server: &Server,
    roots: &[CertificateDer<'static>],
    node: &Shown,
    path: &str,
) -> io::Result<(u16, String)> {
    let config = Trust::authorities(roots.to_vec()).unwrap().control_client().unwrap();
    let config = config.with_client_auth_cert(node.0.clone(), node.1.clone_key()).unwrap();
    let stream = TcpStream::connect(server.address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
    exchange(stream, "GET", path, None).await
}

/// Renews the certificate of a node. Returns the new one, and the authorities in the response.
async fn renew(server: &Server, node: &Shown) -> (Shown, Vec<CertificateDer<'static>>) {
    let (key, csr) = request(|_| {});
    let (status, answer) = server.call(Some(node), "POST", "/v1/renew", Some(json!({ "csr": csr }))).await;
    assert_eq!(status, 200, "{answer}");
    let pem = answer["ca"].as_str().unwrap();
    let roots = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    (shown(&answer, &key), roots)
}

async fn status(server: &Server) -> Value {
    let (status, answer) = server.call(None, "GET", "/v1/authority", None).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn rotate(server: &Server, body: Value) -> (u16, Value) {
    server.call(None, "POST", "/v1/authority/rotate", Some(body)).await
}

/// Waits until the server presents a certificate of each of these authorities to clients that name it.
async fn until_presented(server: &Server, roots: &[CertificateDer<'static>], node: &Shown) {
    until("the certificates of all authorities", async || {
        for root in roots {
            if call_as_agent(server, std::slice::from_ref(root), node, "/readyz").await.is_err() {
                return false;
            }
        }
        true
    })
    .await;
}

/// Input: two nodes have joined, then the authority is rotated, and one of them renews its certificate. Output: both keep their
/// access, clients that know the former authority only too; after the forced retirement, only the node that has renewed.
#[tokio::test]
async fn nodes_keep_their_access_during_a_rotation_and_those_that_renew_also_after_it() {
    let mut server = start(own()).await;
    let (first, second) = (server.join("n1").await, server.join("n2").await);
    let old = server.roots.clone();
    let unused = server.token(json!({})).await;
    let before = status(&server).await;
    assert_eq!((&before["nodesCurrent"], &before["nodesFormer"]), (&json!(2), &json!(0)), "{before}");
    assert_eq!(server.call(None, "DELETE", "/v1/authority/former", None).await.0, 409, "nothing to retire");
    for seconds in [59, 31_536_001] {
        let (status, answer) = rotate(&server, json!({ "transitionSeconds": seconds })).await;
        assert_eq!(
            (status, &answer["errors"][0]["pointer"]),
            (422, &json!("/transitionSeconds")),
            "{answer}"
        );
    }

    let (code, after) = rotate(&server, json!({})).await;
    assert_eq!(code, 200, "{after}");
    assert_eq!(after["former"]["fingerprint"], before["current"]["fingerprint"]);
    assert_ne!(after["current"]["fingerprint"], before["current"]["fingerprint"]);
    assert_eq!((&after["nodesCurrent"], &after["nodesFormer"]), (&json!(0), &json!(2)), "{after}");
    let (code, again) = rotate(&server, json!({})).await;
    assert!(code == 409 && again["detail"].as_str().unwrap().contains("in progress"), "{again}");

    // At first the former authority signs, because other servers may not trust the new one yet.
    let (early, both) = renew(&server, &first).await;
    assert_eq!((both.len(), &both[1]), (2, &old[0]), "the former authority is the second one");
    assert_eq!(early.0[1], old[0]);
    server.source.0.fetch_add(SETTLED, Ordering::SeqCst);
    let (renewed, _) = renew(&server, &early).await;
    assert_eq!(renewed.0[1], both[0], "signed by the new authority");
    until_presented(&server, &both, &second).await;

    // Clients that name no authority may know the former one only; so do unused join tokens.
    assert!(connect(server.address, &old, None, &[&version::TLS13]).await.is_ok());
    let (key, csr) = request(|_| {});
    let (code, joined) = server.enrol(&unused, "n3", &csr).await;
    assert_eq!((code, shown(&joined, &key).0[1] == both[0]), (200, true), "{joined}");
    let pin = server.token(json!({})).await.rsplit('_').next().unwrap().to_owned();
    assert_eq!(before["current"]["fingerprint"], pin);
    for node in [&first, &second, &renewed] {
        let answer = call_as_agent(&server, &both, node, "/v1/whoami").await.unwrap();
        assert_eq!(answer.0, 200, "{}", answer.1);
    }
    let now = status(&server).await;
    assert_eq!((&now["nodesCurrent"], &now["nodesToRenew"]), (&json!(2), &json!(["n2"])), "{now}");

    let (code, refused) = server.call(None, "DELETE", "/v1/authority/former", None).await;
    assert!(code == 409 && refused["detail"].as_str().unwrap().contains("n2"), "{refused}");
    let mut open = server.connect(Some(&second)).await.unwrap();
    assert_eq!(server.call(None, "DELETE", "/v1/authority/former?force=true", None).await.0, 204);
    let cut = tokio::time::timeout(PATIENCE, open.read_to_end(&mut Vec::new())).await;
    assert!(cut.is_ok(), "the connection with a certificate of the former authority is closed");
    until("the former authority is not presented", async || {
        connect(server.address, &old, None, &[&version::TLS13]).await.is_err()
    })
    .await;
    server.roots = vec![both[0].clone()];
    assert!(server.try_call(Some(&second), "GET", "/v1/whoami", None).await.is_err());
    assert_eq!(call_as_agent(&server, &both, &renewed, "/v1/whoami").await.unwrap().0, 200);
    assert_eq!(status(&server).await.get("former"), None);
}

/// Input: a server is restarted during a rotation, whose transition then ends. Output: the restarted server knows both authorities;
/// after the end it removes the former one, whose certificates are refused.
#[tokio::test]
async fn a_transition_ends_by_itself_also_after_a_restart() {
    let first = start(own()).await;
    let node = first.join("n1").await;
    assert_eq!(rotate(&first, json!({ "transitionSeconds": 3600 })).await.0, 200);
    let old = first.roots.clone();
    let server = start_on(own(), Arc::clone(&first.store), Arc::clone(&first.source)).await;
    let (_, pem) = exchange(
        connect(server.address, &old, None, &[&version::TLS13]).await.unwrap(),
        "GET",
        "/v1/ca",
        None,
    )
    .await
    .unwrap();
    assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 2, "{pem}");
    assert_eq!(call_as_agent(&server, &old, &node, "/v1/whoami").await.unwrap().0, 200);
    server.source.0.fetch_add(3601, Ordering::SeqCst);
    until("the former authority is not presented", async || {
        connect(server.address, &old, None, &[&version::TLS13]).await.is_err()
    })
    .await;
    assert!(server.try_call(Some(&node), "GET", "/v1/whoami", None).await.is_err(), "the CA is not trusted");
    until("the key of the former authority is removed", async || {
        !server.store.vault().await.unwrap().contains_key("ca/former")
    })
    .await;
}

/// An authority that expires within a year is rotated by the server.
#[tokio::test]
async fn an_old_authority_is_rotated_without_a_request() {
    let server = start(own()).await;
    let record = async |key: &str| -> Value {
        let vault = server.store.vault().await.unwrap();
        vault.get(key).map(|record| serde_json::from_slice(&record.body).unwrap()).unwrap_or_default()
    };
    let before = record("ca/current").await;
    server.source.0.fetch_add(9 * 365 * 86_400 - 60, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(record("ca/former").await, Value::Null, "more than a year is left");
    server.source.0.fetch_add(120, Ordering::SeqCst);
    until("the rotation", async || !record("ca/former").await.is_null()).await;
    until("the new authority", async || record("ca/current").await != before).await;
    assert_eq!(record("ca/former").await["ca"], before);
}
