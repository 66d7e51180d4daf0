//! Renewal of expired certificates: an agent that was away for longer than the lifetime of its certificate returns
//! with the private key of the certificate.

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::SigningKey;

use super::*;

const DAY: i64 = 86_400;
/// Limit of the servers in these tests, in seconds.
const GRACE: i64 = 30 * DAY;

/// Machine with its private key and its newest certificate (PEM).
struct Machine {
    key: KeyPair,
    certificate: String,
}

impl Server {
    /// Joins a machine and creates its Node.
    async fn machine(&self, name: &str) -> Machine {
        let token = self.token(json!({ "node": name })).await;
        let (key, csr) = request(|_| {});
        let (status, answer) = self.enrol(&token, name, &csr).await;
        assert_eq!(status, 200, "{answer}");
        let node = json!({ "kind": "Node", "metadata": { "name": name }, "spec": {} });
        let (status, created) = self.call(None, "POST", "/v1/nodes", Some(node)).await;
        assert!(status == 201 || status == 409, "{created}");
        Machine { key, certificate: answer["certificate"].as_str().unwrap().to_owned() }
    }

    fn pass(&self, secs: i64) {
        self.source.0.fetch_add(secs, Ordering::SeqCst);
    }

    async fn renew_expired(&self, body: &Value) -> (u16, Value) {
        self.call(None, "POST", "/v1/renew/expired", Some(body.clone())).await
    }

    /// Asserts that the renewal is refused with a status and a text.
    async fn expect_refusal(&self, body: &Value, status: u16, text: &str) {
        let (found, answer) = self.renew_expired(body).await;
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(text), "{status} {text}: {found} {answer}");
        assert!(answer["hint"].as_str().is_some_and(|hint| hint.len() > 20), "{answer}");
    }
}

impl Machine {
    /// Returns the request of this machine for a new certificate, with the key of the CSR.
    fn request(&self, server: &Server) -> (KeyPair, Value) {
        let (key, csr) = request(|_| {});
        (key, self.signed(server.source.now(), &csr))
    }

    fn signed(&self, time: Timestamp, csr: &str) -> Value {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        let message = tls_trust::expired_renewal_message(&der, csr, time.unix_seconds());
        let signature = BASE64_STANDARD.encode(self.key.sign(&message).unwrap());
        json!({ "certificate": self.certificate, "csr": csr, "time": time, "signature": signature })
    }
}

fn renewed(answer: &Value, key: KeyPair) -> Machine {
    Machine { key, certificate: answer["certificate"].as_str().unwrap().to_owned() }
}

/// Input: the servers are away for a weekend. Output: the agent gets a certificate for its new key, the audit log
/// and the metrics count it, and a repetition of its request neither helps an attacker nor harms the agent.
#[tokio::test]
async fn an_agent_that_was_away_for_a_weekend_returns_without_a_join_token() {
    let server = start(own()).await;
    let machine = server.machine("n1").await;
    server.pass(DAY - 60);
    server.expect_refusal(&machine.request(&server).1, 403, "has not expired").await;
    server.pass(2 * DAY);
    let (key, body) = machine.request(&server);
    let (status, answer) = server.renew_expired(&body).await;
    assert_eq!(status, 200, "{answer}");
    let node = shown(&answer, &key);
    assert_eq!(server.call(Some(&node), "GET", "/v1/nodes/n1", None).await.0, 200);
    assert_eq!(server.renew_expired(&body).await.0, 200, "the response may have been lost");

    until("the audit log has the renewal", async || {
        let (_, audit) = server.call(None, "GET", "/v1/audit", None).await;
        audit["items"].as_array().unwrap().iter().any(|entry| {
            entry["path"] == "/v1/renew/expired"
                && entry["decision"] == "accepted"
                && entry["objects"] == json!(["Node n1"])
        })
    })
    .await;
    let (_, metrics) = server.try_call(None, "GET", "/metrics", None).await.unwrap();
    for line in ["expired_certificates_renewed_total 2", "expired_certificates_refused_total 1"] {
        assert!(metrics.contains(&format!("tidegate_{line}\n")), "{line}");
    }

    // The certificate of the agent is the newest one, so that it returns from the next outage, too.
    let machine = renewed(&answer, key);
    server.pass(3 * DAY);
    assert_eq!(server.renew_expired(&machine.request(&server).1).await.0, 200);
}

#[tokio::test]
async fn a_certificate_that_expired_too_long_ago_is_not_renewed() {
    let server = start(own()).await;
    let machine = server.machine("n1").await;
    server.pass(DAY + GRACE + 60);
    server.expect_refusal(&machine.request(&server).1, 403, "longer than 2592000 s ago").await;
    let server = start(TlsOptions { agent_renewal_grace_secs: 0, ..own() }).await;
    let machine = server.machine("n1").await;
    server.pass(DAY + 60);
    server.expect_refusal(&machine.request(&server).1, 403, "disabled").await;
}

#[tokio::test]
async fn revoked_and_superseded_certificates_are_not_renewed() {
    let server = start(own()).await;
    let [revoked, deleted, moved, old] = ["revoked", "deleted", "moved", "old"];
    let [revoked, deleted, moved, old] = [
        server.machine(revoked).await,
        server.machine(deleted).await,
        server.machine(moved).await,
        server.machine(old).await,
    ];
    assert_eq!(server.call(None, "DELETE", "/v1/agents/revoked/certificate", None).await.0, 204);
    assert_eq!(server.call(None, "DELETE", "/v1/nodes/deleted", None).await.0, 200);
    server.pass(60);
    server.machine("moved").await;
    // A regular renewal, after which a copy of the old state directory is useless.
    let chain = CertificateDer::pem_slice_iter(old.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let connection = (chain, PrivatePkcs8KeyDer::from(old.key.serialize_der()).into());
    let (key, csr) = request(|_| {});
    let body = Some(json!({ "csr": csr }));
    assert_eq!(server.call(Some(&connection), "POST", "/v1/renew", body).await.0, 200);
    server.pass(2 * DAY);
    server.expect_refusal(&revoked.request(&server).1, 403, "was revoked").await;
    server.expect_refusal(&deleted.request(&server).1, 403, "was revoked").await;
    server.expect_refusal(&moved.request(&server).1, 403, "was revoked").await;
    server.expect_refusal(&old.request(&server).1, 403, "not the newest").await;
    // The holder of the newest key has lost only the response to its renewal.
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let again = params.serialize_request(&key).unwrap().pem().unwrap();
    assert_eq!(server.renew_expired(&old.signed(server.source.now(), &again)).await.0, 200);

    // A node that exists in the vault only has nothing to renew.
    let machine = server.join("n9").await;
    drop(machine);
    let (key, csr) = request(|_| {});
    let token = server.token(json!({ "node": "n9" })).await;
    let (_, answer) = server.enrol(&token, "n9", &csr).await;
    server.pass(2 * DAY);
    server.expect_refusal(&renewed(&answer, key).request(&server).1, 403, "Node n9 does not exist").await;
}

#[tokio::test]
async fn requests_without_proof_are_refused_and_limited() {
    let server = start(own()).await;
    let other = start(own()).await;
    let (machine, stranger) = (server.machine("n1").await, other.machine("n1").await);
    server.pass(2 * DAY);
    other.pass(2 * DAY);
    let (_, good) = machine.request(&server);
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    server.expect_refusal(&stranger.request(&server).1, 401, "CA of this cluster").await;
    let forger = Machine { key: KeyPair::generate().unwrap(), certificate: machine.certificate.clone() };
    server.expect_refusal(&forger.request(&server).1, 401, "not signed with the private key").await;
    server.expect_refusal(&with("csr", json!(request(|_| {}).1)), 401, "not signed").await;
    server.expect_refusal(&with("certificate", json!("x")), 401, "must be PEM").await;
    let early = Timestamp::from_unix_seconds(server.source.now().unix_seconds() - 400);
    server.expect_refusal(&machine.signed(early, &request(|_| {}).1), 403, "differs").await;
    let foreign = SanType::URI("spiffe://tidegate/node/n2".try_into().unwrap());
    let (_, greedy) = request(|params| params.subject_alt_names = vec![foreign]);
    let (status, answer) = server.renew_expired(&machine.signed(server.source.now(), &greedy)).await;
    assert_eq!((status, &answer["errors"][0]["pointer"]), (422, &json!("/csr")), "{answer}");
    let (status, answer) = server.renew_expired(&with("signature", json!("?"))).await;
    assert_eq!((status, &answer["errors"][0]["pointer"]), (422, &json!("/signature")), "{answer}");
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(server.renew_expired(&with("certificate", json!("x"))).await.0);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}
