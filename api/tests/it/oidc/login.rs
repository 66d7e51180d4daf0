//! Login to the status page at the issuer, by a client that follows the redirects and the forms of the provider.

use std::{fs, sync::Arc};

use api::base::{
    clock_and_random::Source as _,
    config::oidc::{OidcFlags, OidcPageFlags},
};
use axum::{body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Provider, clock, settings};
use crate::support::{self, Lines, Server};

/// Address of the page in the settings.
const PAGE: &str = "https://control.example.org:7440";

/// Browser with the cookie of a login, which has come back from the issuer.
struct Return {
    cookie: String,
    /// Path and query of the callback.
    callback: String,
}

fn flags(provider: &Provider) -> OidcFlags {
    let page = OidcPageFlags {
        oidc_page_url: Some(PAGE.to_owned()),
        oidc_page_client_id: Some("page".to_owned()),
        oidc_page_client_secret_file: None,
    };
    OidcFlags {
        oidc_issuer: Some(provider.issuer.clone()),
        oidc_client_id: Some("tidegate".to_owned()),
        oidc_group: vec!["admin=platform".parse().unwrap()],
        page,
        ..OidcFlags::default()
    }
}

async fn start(flags: OidcFlags) -> Server {
    let source = clock();
    let store = store::open("memory:", source.now()).await.unwrap();
    support::start_on(settings(flags), store, source).await
}

async fn get(server: &Server, path: &str, cookie: &str) -> Response {
    let request = Request::get(path).header("cookie", cookie);
    server.send(request.body(Body::empty()).unwrap()).await
}

/// Returns the address of a redirect.
fn location(response: &Response) -> &str {
    assert_eq!(response.status(), 303);
    response.headers()["location"].to_str().unwrap()
}

/// Returns the cookies that a response sets, without those that it deletes.
fn cookies(response: &Response) -> Vec<&str> {
    let all = response.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    all.filter(|cookie| !cookie.contains("Max-Age=0")).collect()
}

/// Returns the cookie that a browser sends after a response that sets one.
fn sent(response: &Response) -> String {
    let [cookie] = cookies(response)[..] else { panic!("{:?}", response.headers()) };
    cookie.split(';').next().unwrap().to_owned()
}

/// Lets the user log in at the issuer, and returns the address that the issuer redirects to.
async fn approve(provider: &Provider, url: &str, more: &str) -> String {
    let query = url.replace('%', "%25").replace('&', "%26").replace('+', "%2B");
    provider.get(&format!("/test/approve?url={query}{more}")).await
}

/// Begins a login, and lets the user log in at the issuer at the address that `change` returns for that of the server.
async fn log_in(server: &Server, provider: &Provider, change: impl Fn(&str) -> String, more: &str) -> Return {
    let response = get(server, "/v1/session/oidc?view=/services/default/web", "").await;
    let url = approve(provider, &change(location(&response)), more).await;
    let callback = url.strip_prefix(PAGE).unwrap_or_else(|| panic!("{url}")).to_owned();
    Return { cookie: sent(&response), callback }
}

/// Asserts that a login fails with a reason and without a session.
async fn expect_fault(server: &Server, path: &str, cookie: &str, fault: &str) {
    let response = get(server, path, cookie).await;
    let found = location(&response);
    assert!(found.starts_with(&format!("/#/login?fault={fault}&view=%2F")), "{fault}: {found}");
    assert!(cookies(&response).is_empty(), "{:?}", response.headers());
}

async fn body(response: Response) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_user_logs_in_to_the_page_at_the_issuer_and_the_session_ends_with_the_id_token() {
    let provider = Provider::start();
    let source = clock();
    let store = store::open("memory:", source.now()).await.unwrap();
    let server = support::start_on(settings(flags(&provider)), Arc::clone(&store), Arc::clone(&source)).await;
    // A load balancer may send the browser to another control server.
    let other = support::start_on(settings(flags(&provider)), store, source).await;
    let shown = body(get(&server, "/v1/session", "").await).await;
    assert_eq!(shown["issuerLogin"]["url"], format!("{PAGE}/v1/session/oidc"));
    assert_eq!(format!("http://{}", shown["issuerLogin"]["host"].as_str().unwrap()), provider.issuer);

    let begun = get(&server, "/v1/session/oidc?view=/services/default/web", "").await;
    let [cookie] = cookies(&begun)[..] else { panic!("{:?}", begun.headers()) };
    assert!(cookie.starts_with("__Host-tidegate-login="), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    let url = location(&begun);
    assert!(url.starts_with(&format!("{}/auth?", provider.issuer)), "{url}");
    assert!(url.contains("response_type=code") && url.contains("code_challenge_method=S256"), "{url}");
    let address = approve(&provider, url, "").await;
    let callback = address.strip_prefix(PAGE).unwrap_or_else(|| panic!("{address}"));
    let ended = get(&other, callback, &sent(&begun)).await;
    assert_eq!(location(&ended), "/#/services/default/web");
    let mut all = ended.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    assert!(all.any(|one| one.starts_with("__Host-tidegate-login=; Path=/; Max-Age=0")), "the login is kept");

    let own = sent(&ended);
    let shown = body(get(&other, "/v1/session", &own).await).await;
    assert_eq!((&shown["who"], &shown["authenticated"]), (&"user kim".into(), &true.into()), "{shown}");
    let whoami = body(get(&other, "/v1/whoami", &own).await).await;
    assert_eq!(whoami["identity"]["expires"], shown["expires"], "the session ends with the ID token");
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let request = Request::post("/v1/namespaces/default/services")
        .header("cookie", &own)
        .header("x-tidegate-page", "1")
        .header("content-type", "application/json");
    let response = other.send(request.body(Body::from(service.to_string())).unwrap()).await;
    assert_eq!(response.status(), 201);
    let audit = body(get(&other, "/v1/audit", &own).await).await;
    let entries = audit["items"].as_array().unwrap();
    assert_eq!(entries[0]["author"], "oidc/kim by the page", "{audit}");
    assert_eq!(
        (&entries[1]["path"], &entries[1]["objects"], &entries[1]["decision"]),
        (&"/v1/session/oidc/callback".into(), &json!(["Session of user kim"]), &"accepted".into()),
        "{audit}"
    );

    // The issuer accepts a code once.
    expect_fault(&other, callback, &sent(&begun), "rejected").await;

    let mut lines = Lines::new(get(&other, "/v1/watch", &own).await.into_body());
    lines.until("web").await;
    other.source.advance(400);
    assert_eq!(get(&other, "/v1/services", &own).await.status(), 401);
    let Return { cookie, callback } = log_in(&other, &provider, str::to_owned, "").await;
    // The clock of the test is ahead of that of the provider.
    expect_fault(&other, &callback, &cookie, "invalidToken").await;
}

#[tokio::test]
async fn a_login_that_is_not_that_of_the_browser_fails_with_a_reason() {
    let mut provider = Provider::start();
    let server = start(flags(&provider)).await;
    let begin = async || log_in(&server, &provider, str::to_owned, "").await;
    let Return { cookie, callback } = begin().await;
    let forged = format!("{}AAAA", &cookie[..cookie.len() - 4]);
    for other in ["", "__Host-tidegate-login=x", &forged, &cookie.replace("__Host-", "")] {
        expect_fault(&server, &callback, other, "expired").await;
    }
    for changed in [
        callback.replace("state=", "state=0"),
        callback.replace("state=", "other="),
        format!("{callback}&state=x"),
        callback.replace("code=", "other="),
        callback.replace("iss=", "iss=https://id.example.org&x="),
        callback.replace("iss=", "other="),
    ] {
        assert_ne!(changed, callback);
        expect_fault(&server, &changed, &cookie, "mismatch").await;
    }
    // A code of another login: the issuer has the hash of another verifier.
    let other = begin().await;
    let part = |text: &str, name: &str| {
        let (_, rest) = text.split_once(name).unwrap();
        rest.split('&').next().unwrap().to_owned()
    };
    let swapped = callback.replace(&part(&callback, "code="), &part(&other.callback, "code="));
    expect_fault(&server, &swapped, &cookie, "rejected").await;
    let foreign = |url: &str| url.replace("nonce=", "nonce=0");
    let Return { cookie, callback } = log_in(&server, &provider, foreign, "").await;
    expect_fault(&server, &callback, &cookie, "invalidToken").await;
    let cancelled = log_in(&server, &provider, str::to_owned, "&cancel=1").await;
    expect_fault(&server, &cancelled.callback, &cancelled.cookie, "denied").await;

    // The browser returns to this page only.
    for view in ["https://evil.example/", "%5Cevil.example", "evil", "/a%0D%0Ab"] {
        let response = get(&server, &format!("/v1/session/oidc?view={view}"), "").await;
        assert_eq!(response.status(), 400, "{view}");
    }
    let late = begin().await;
    server.source.advance(600);
    expect_fault(&server, &late.callback, &late.cookie, "expired").await;

    // Failures are counted, and too many of them end all attempts of the address.
    server.source.advance(60);
    for _ in 0..20 {
        expect_fault(&server, "/v1/session/oidc/callback", "", "expired").await;
    }
    expect_fault(&server, "/v1/session/oidc/callback", "", "tooMany").await;
    expect_fault(&server, "/v1/session/oidc?view=/nodes", "", "tooMany").await;
    server.source.advance(1);
    let begun = get(&server, "/v1/session/oidc", "").await;
    let url = approve(&provider, location(&begun), "").await;
    provider.stop();
    expect_fault(&server, &url[PAGE.len()..], &sent(&begun), "unreachable").await;
    let fresh = start(flags(&provider)).await;
    expect_fault(&fresh, "/v1/session/oidc?view=/nodes", "", "unreachable").await;
}

#[tokio::test]
async fn a_client_may_have_a_secret_and_a_user_needs_a_role() {
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let confidential = || {
        let page = OidcPageFlags {
            oidc_page_client_id: Some("confidential".to_owned()),
            oidc_page_client_secret_file: Some(file.clone()),
            ..flags(&provider).page
        };
        OidcFlags { page, ..flags(&provider) }
    };
    for (secret, expected) in [("a secret: 100%\n", None), ("wrong", Some("rejected"))] {
        fs::write(&file, secret).unwrap();
        let server = start(confidential()).await;
        let Return { cookie, callback } = log_in(&server, &provider, str::to_owned, "").await;
        match expected {
            None => {
                let response = get(&server, &callback, &cookie).await;
                assert_eq!(location(&response), "/#/services/default/web");
            }
            Some(fault) => expect_fault(&server, &callback, &cookie, fault).await,
        }
    }
    let group = "admin=others".parse().unwrap();
    let server = start(OidcFlags { oidc_group: vec![group], ..flags(&provider) }).await;
    let Return { cookie, callback } = log_in(&server, &provider, str::to_owned, "").await;
    expect_fault(&server, &callback, &cookie, "noRole").await;

    let none = start(OidcFlags { page: OidcPageFlags::default(), ..flags(&provider) }).await;
    assert_eq!(get(&none, "/v1/session/oidc", "").await.status(), 404);
    assert_eq!(get(&none, &callback, &cookie).await.status(), 404);
    assert_eq!(body(get(&none, "/v1/session", "").await).await.get("issuerLogin"), None);
}

/// Creates a CA, and a certificate that it signs for localhost, in a directory.
fn authority() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, names: &[String]| {
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = named("CA of a test", &[]);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let own = named("localhost", &["localhost".to_owned()]).signed_by(&key, &issuer).unwrap();
    for (name, text) in
        [("ca.pem", certificate.pem()), ("cert.pem", own.pem()), ("key.pem", key.serialize_pem())]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[tokio::test]
async fn the_issuer_is_verified_with_its_own_ca() {
    let (authority, other) = (authority(), authority());
    let ca = authority.path().join("ca.pem");
    let provider = Provider::start_with(&[("OIDC_TLS", authority.path()), ("NODE_EXTRA_CA_CERTS", &ca)]);
    assert!(provider.issuer.starts_with("https://localhost:"), "{}", provider.issuer);
    let with = |ca| OidcFlags { oidc_ca_file: Some(ca), ..flags(&provider) };
    let server = start(with(ca)).await;
    let Return { cookie, callback } = log_in(&server, &provider, str::to_owned, "").await;
    let response = get(&server, &callback, &cookie).await;
    assert_eq!(location(&response), "/#/services/default/web");
    let token = provider.token("sub=kim").await;
    assert_eq!(super::call(&server, &token, "GET", "/v1/services", None).await.0, 200);

    let server = start(with(other.path().join("ca.pem"))).await;
    expect_fault(&server, "/v1/session/oidc?view=/nodes", "", "unreachable").await;
    super::expect_rejected(&server, &token, "keys of the issuer cannot be fetched").await;
}
