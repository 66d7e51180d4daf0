//! Users of OpenID Connect. The ID tokens are from a certified provider (`lab/oidc/`), or are forged.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use api::base::{
    clock_and_random::Source as _,
    config::{
        Settings,
        oidc::{OidcFlags, OidcSettings},
    },
};
use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::{self, Fixed, Lines, Server};

mod login;

#[path = "../../../lab/oidc/provider.rs"]
mod provider;

use provider::Provider;

impl Provider {
    async fn get(&self, path: &str) -> String {
        // An HTTP client of the server needs a TLS configuration; curl needs none.
        let output = tokio::process::Command::new("curl")
            .args(["--silent", "--fail", "--insecure", &format!("{}{path}", self.issuer)])
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{path}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns an ID token. `query` may have client, alg, sub, groups and ttl.
    async fn token(&self, query: &str) -> String {
        self.get(&format!("/test/token?{query}")).await
    }
}

/// Starts a server with authentication and the clock of this machine, which accepts tokens of the provider.
async fn start(provider: &Provider, groups: &[&str]) -> Server {
    let flags = OidcFlags {
        oidc_issuer: Some(provider.issuer.clone()),
        oidc_client_id: Some("tidegate".to_owned()),
        oidc_group: groups.iter().map(|group| group.parse().unwrap()).collect(),
        ..OidcFlags::default()
    };
    let source = clock();
    let store = store::open("memory:", source.now()).await.unwrap();
    support::start_on(settings(flags), store, source).await
}

fn settings(flags: OidcFlags) -> Settings {
    let oidc = OidcSettings::new(flags).unwrap();
    Settings { oidc, is_auth_required: true, ..support::settings(30000..=32767) }
}

/// Returns a clock with the time of this machine, which is that of the provider.
fn clock() -> Arc<Fixed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Fixed::at(i64::try_from(now).unwrap())
}

async fn call(server: &Server, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("if-match", "*")
        .header("content-type", "application/json")
        .header("x-tidegate-author", "root")
        .header("authorization", format!("Bearer {token}"));
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let response = server.send(request.body(body).unwrap()).await;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// Asserts that a token is rejected with a reason that contains no part of the token.
async fn expect_rejected(server: &Server, token: &str, reason: &str) {
    let (status, answer) = call(server, token, "GET", "/v1/whoami", None).await;
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(status == 401 && detail.contains(reason), "{reason}: {status} {answer}");
    let text = answer.to_string();
    let parts = token.split('.').filter(|part| part.len() > 8);
    assert!(parts.into_iter().all(|part| !text.contains(part)), "{answer}");
}

fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// Returns the header and the claims of a token.
fn decode(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let mut next = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
    (next(), next())
}

fn service(name: &str) -> Value {
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

#[tokio::test]
async fn users_have_the_roles_of_their_groups_and_are_the_authors_of_their_changes() {
    let provider = Provider::start();
    let server = start(&provider, &["operator=platform", "web/operator=web-team", "gone=platform"]).await;
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let token = provider.token(&format!("alg={algorithm}&sub=kim")).await;
        let (status, who) = call(&server, &token, "GET", "/v1/whoami", None).await;
        assert_eq!((status, &who["identity"]["type"]), (200, &"user".into()), "{algorithm}: {who}");
        assert_eq!(
            (&who["identity"]["name"], &who["bindings"]),
            (&"kim".into(), &json!([{ "role": "operator" }]))
        );
    }
    let kim = provider.token("sub=kim").await;
    let (status, answer) = call(&server, &kim, "POST", "/v1/apply", Some(service("web"))).await;
    assert_eq!(status, 200, "{answer}");
    let (_, history) = call(&server, &kim, "GET", "/v1/history", None).await;
    assert_eq!(history["items"][0]["author"], "oidc/kim", "{history}");
    let (_, audit) = call(&server, &kim, "GET", "/v1/audit", None).await;
    assert_eq!(audit["items"][0]["author"], "oidc/kim", "{audit}");

    let pat = provider.token("sub=pat&groups=web-team").await;
    let place = |namespace: &str| format!("/v1/namespaces/{namespace}/services");
    let (status, answer) = call(&server, &pat, "POST", &place("web"), Some(service("shop"))).await;
    assert_eq!(status, 201, "{answer}");
    let (status, answer) = call(&server, &pat, "POST", &place("default"), Some(service("shop"))).await;
    assert!(status == 403 && answer["detail"].as_str().unwrap().starts_with("user pat may not"), "{answer}");
    let nobody = provider.token("sub=new&groups=").await;
    assert_eq!(call(&server, &nobody, "GET", "/v1/services", None).await.0, 403);
    assert_eq!(call(&server, &nobody, "GET", "/v1/whoami", None).await.0, 200);
    assert_eq!(server.call("GET", "/v1/oidc", None).await.1["clientId"], "tidegate");

    // A stream ends with the token.
    let request = Request::get("/v1/watch").header("authorization", format!("Bearer {kim}"));
    let response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    let mut lines = Lines::new(response.into_body());
    lines.until("web").await;
    let later = provider.token("sub=kim&ttl=5000").await;
    server.source.advance(3000);
    let (status, answer) = call(&server, &later, "POST", "/v1/apply", Some(service("api"))).await;
    assert_eq!(status, 200, "{answer}");
    lines.until("Unauthenticated").await;
    expect_rejected(&server, &kim, "the ID token has expired").await;
}

#[tokio::test]
async fn forged_and_foreign_tokens_are_rejected_with_a_reason() {
    let provider = Provider::start();
    let server = start(&provider, &["admin=platform"]).await;
    let token = provider.token("sub=kim").await;
    let (header, claims) = decode(&token);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    expect_rejected(&server, &provider.token("client=other").await, "to another client").await;
    expect_rejected(&server, &provider.token("alg=PS256").await, "must be signed with").await;
    for name in ["none", "None", "nOnE"] {
        let unsigned = format!("{}.{}.", encode(&json!({ "alg": name })), encode(&claims));
        expect_rejected(&server, &unsigned, "must be signed with").await;
    }
    // The public key as a shared secret.
    let keys: Value = serde_json::from_str(&provider.get("/jwks").await).unwrap();
    let modulus = URL_SAFE_NO_PAD.decode(keys["keys"][0]["n"].as_str().unwrap()).unwrap();
    let text = format!("{}.{}", encode(&json!({ "alg": "HS256", "kid": header["kid"] })), encode(&claims));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&modulus).unwrap();
    mac.update(text.as_bytes());
    let forged = format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()));
    expect_rejected(&server, &forged, "must be signed with").await;

    let changed = |claim: &str, value: &str| {
        let mut claims = claims.clone();
        claims[claim] = value.into();
        format!("{}.{}.{signature}", encode(&header), encode(&claims))
    };
    expect_rejected(&server, &changed("sub", "root"), "signature").await;
    expect_rejected(&server, &changed("iss", "https://id.example.org"), "another issuer").await;
    expect_rejected(&server, &format!("{signed}."), "signature").await;
    let other_key =
        format!("{}.{}.{signature}", encode(&json!({ "alg": "RS256", "kid": "ES256-1" })), encode(&claims));
    expect_rejected(&server, &other_key, "does not publish").await;
    // A token that is not an ID token is treated as before.
    expect_rejected(&server, "eyJx.y", "not a valid token of this cluster").await;
    assert_eq!(call(&server, &token, "GET", "/v1/whoami", None).await.0, 200);
    server.source.advance(4000);
    expect_rejected(&server, &token, "has expired").await;
}

#[tokio::test]
async fn new_keys_are_fetched_at_a_limited_rate_and_known_ones_work_without_the_issuer() {
    let mut provider = Provider::start();
    let server = start(&provider, &["viewer=platform"]).await;
    let works = async |token: &str| call(&server, token, "GET", "/v1/services", None).await.0 == 200;
    let old = provider.token("ttl=5000").await;
    assert!(works(&old).await);
    provider.get("/test/rotate").await;
    let new = provider.token("ttl=5000").await;
    let before = provider.get("/test/count").await;
    for _ in 0..20 {
        expect_rejected(&server, &new, "does not publish").await;
    }
    assert_eq!(provider.get("/test/count").await, before, "the last fetch was a moment ago");
    server.source.advance(10);
    assert!(works(&new).await);
    assert_ne!(provider.get("/test/count").await, before);
    expect_rejected(&server, &old, "does not publish").await;

    // A withdrawn key is forgotten after ten minutes, although tokens that are signed with it continue to arrive.
    provider.get("/test/rotate").await;
    server.source.advance(601);
    let mut attempts = 0;
    while works(&new).await {
        attempts += 1;
        assert!(attempts < 500, "the key is still known");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.source.advance(10);
    let newest = provider.token("ttl=5000").await;
    assert!(works(&newest).await);
    provider.stop();
    server.source.advance(1200);
    for _ in 0..5 {
        assert!(works(&newest).await);
        server.source.advance(20);
    }
    expect_rejected(&server, &new, "does not publish").await;
}
