//! Tests of the status page: files, sessions, and protection against cross-site requests.

use api::base::config::{Settings, page::PageSettings};
use axum::{body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{
    self, Lines, Server,
    secured::{self, Secured, Who},
};

const PAGE: (&str, &str) = ("x-tidegate-page", "1");

async fn ask(
    server: &Server,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> Response {
    let mut request = Request::builder().method(method).uri(path).header("if-match", "*");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = match body {
        Some(body) => request.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => request.body(Body::empty()),
    };
    server.send(request.unwrap()).await
}

async fn json_of(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// Logs in to the status page, and returns the cookie as a browser sends it.
async fn log_in(server: &Server, who: &Who) -> String {
    let Who::Token(token) = who else { panic!("{who:?} has no token") };
    let response = ask(server, ("POST", "/v1/session"), &[], Some(json!({ "token": token }))).await;
    assert_eq!(response.status(), 200);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["tidegate-session=", "; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age="] {
        assert!(cookie.contains(part), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

fn service(name: &str) -> Value {
    json!({
        "kind": "Service", "metadata": { "name": name, "namespace": "team-a" }, "spec": { "ports": [{ "port": 80 }] },
    })
}

const SERVICES: &str = "/v1/namespaces/team-a/services";

/// A session has the permissions of its token, also for streams, until logout.
#[tokio::test]
async fn a_session_may_what_its_token_may_until_it_is_logged_out() {
    let secured = secured::start().await;
    let server = &secured.server;
    let who = json_of(ask(server, ("GET", "/v1/session"), &[], None).await).await.1;
    assert_eq!(
        (&who["authenticated"], &who["securityEnabled"], &who["who"]),
        (&json!(false), &json!(true), &json!("nobody"))
    );
    let team = secured.token("team", json!({ "role": "operator", "namespaces": ["team-a"] })).await;
    let cookie = log_in(server, &team).await;
    let own = [("cookie", cookie.as_str()), PAGE];
    let who = json_of(ask(server, ("GET", "/v1/session"), &own, None).await).await.1;
    assert_eq!(who["who"], "token team");
    assert_eq!((&who["authenticated"], &who["readOnly"]), (&json!(true), &json!(false)));
    assert_eq!(who["expires"], "2026-11-21T21:00:00Z");
    assert_eq!(ask(server, ("POST", SERVICES), &own, Some(service("web"))).await.status(), 201);
    assert_eq!(ask(server, ("GET", "/v1/nodes"), &own, None).await.status(), 403);
    let history = secured.admin("GET", "/v1/history", None).await;
    assert_eq!(history["items"][0]["author"], "team by the page");
    let mut lines = Lines::new(ask(server, ("GET", "/v1/watch"), &own, None).await.into_body());
    lines.until("BOOKMARK").await;
    let out = ask(server, ("DELETE", "/v1/session"), &own, None).await;
    assert_eq!(out.status(), 204);
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    secured.admin("POST", SERVICES, Some(service("late"))).await;
    let last = lines.until("ERROR").await;
    assert!(last.iter().all(|line| !line.contains("late")), "{last:?}");
    assert_eq!(ask(server, ("GET", SERVICES), &own, None).await.status(), 401);
    let audit = secured.admin("GET", "/v1/audit", None).await.to_string();
    assert!(audit.contains("Session of token team") && audit.contains("team by the page"), "{audit}");
}

/// A session ends when its token is revoked or expires, when it is idle for too long, and at its maximum age. The
/// page itself is still served.
#[tokio::test]
async fn a_session_ends_with_its_token_and_with_time() {
    let secured = secured::start().await;
    let server = &secured.server;
    let wanted = json!({ "name": "short", "bindings": [{ "role": "viewer" }], "ttlSeconds": 60 });
    let made = secured.admin("POST", "/v1/tokens", Some(wanted)).await;
    let short = log_in(server, &Who::Token(made["token"].as_str().unwrap().to_owned())).await;
    let revoked = secured.token("revoked", json!({ "role": "viewer" })).await;
    let revoked = log_in(server, &revoked).await;
    let lasting = log_in(server, &secured.admin).await;
    let status = async |cookie: &str| {
        ask(server, ("GET", "/v1/status"), &[("cookie", cookie)], None).await.status().as_u16()
    };
    for cookie in [&short, &revoked, &lasting] {
        assert_eq!(status(cookie).await, 200);
    }
    let tokens = secured.admin("GET", "/v1/tokens", None).await;
    let of_it = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "revoked").unwrap();
    secured.admin("DELETE", &format!("/v1/tokens/{}", of_it["id"].as_str().unwrap()), None).await;
    assert_eq!((status(&revoked).await, status(&short).await), (401, 200));
    server.source.advance(60);
    assert_eq!((status(&short).await, status(&lasting).await), (401, 200));
    server.source.advance(3600);
    assert_eq!(status(&lasting).await, 401);
    let headers = [("cookie", lasting.as_str())];
    assert_eq!(ask(server, ("GET", "/"), &headers, None).await.status(), 200);
    let again = log_in(server, &secured.admin).await;
    assert_ne!(again, lasting);
}

/// Requests with a session cookie that a page of another site may have triggered are rejected.
#[tokio::test]
async fn a_page_of_another_server_cannot_use_a_session() {
    let secured = secured::start().await;
    let server = &secured.server;
    let cookie = log_in(server, &secured.admin).await;
    let cookie = ("cookie", cookie.as_str());
    let host = ("host", "localhost:7440");
    let refused: [&[(&str, &str)]; 8] = [
        &[],
        &[("x-tidegate-page", "0")],
        &[PAGE, ("origin", "https://evil.example")],
        &[PAGE, ("origin", "null")],
        &[PAGE, ("origin", "http://localhost:7441")],
        &[PAGE, ("origin", "http://localhost:7440"), ("origin", "http://localhost:7440")],
        &[PAGE, ("sec-fetch-site", "cross-site")],
        &[PAGE, ("sec-fetch-site", "same-site"), ("origin", "http://localhost:7440")],
    ];
    for more in refused {
        let headers = [&[cookie, host], more].concat();
        for (method, path) in [("POST", SERVICES), ("DELETE", "/v1/session"), ("POST", "/v1/tokens")] {
            let (status, answer) =
                json_of(ask(server, (method, path), &headers, Some(service("web"))).await).await;
            assert_eq!(
                (status, &answer["code"]),
                (403, &json!("CrossSite")),
                "{method} {path} {more:?}: {answer}"
            );
        }
    }
    // A forced login is an attack, too.
    let Who::Token(token) = &secured.admin else { panic!("the first token is a token") };
    let headers = [host, ("origin", "https://evil.example")];
    let body = json!({ "token": token });
    assert_eq!(ask(server, ("POST", "/v1/session"), &headers, Some(body)).await.status(), 403);
    let own = [cookie, host, PAGE, ("origin", "http://localhost:7440"), ("sec-fetch-site", "same-origin")];
    assert_eq!(ask(server, ("POST", SERVICES), &own, Some(service("web"))).await.status(), 201);
    // A token in the header takes precedence and needs no further proof.
    let viewer = secured.token("viewer", json!({ "role": "viewer" })).await;
    let Who::Token(viewer) = viewer else { panic!("a token is a token") };
    let bearer = format!("Bearer {viewer}");
    let both = [cookie, ("authorization", bearer.as_str()), ("origin", "https://evil.example")];
    let (status, answer) = json_of(ask(server, ("POST", SERVICES), &both, Some(service("more"))).await).await;
    assert_eq!((status, &answer["code"]), (403, &json!("Forbidden")), "{answer}");
}

#[tokio::test]
async fn without_security_a_page_of_another_server_changes_nothing_either() {
    let server = support::start().await;
    let headers = [("host", "localhost:7440"), ("sec-fetch-site", "cross-site")];
    let (status, answer) =
        json_of(ask(&server, ("POST", SERVICES), &headers, Some(service("web"))).await).await;
    assert_eq!((status, &answer["code"]), (403, &json!("CrossSite")), "{answer}");
    let headers =
        [("host", "localhost:7440"), ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:7440")];
    assert_eq!(ask(&server, ("POST", SERVICES), &headers, Some(service("web"))).await.status(), 201);
}

#[tokio::test]
async fn who_guesses_tokens_to_log_in_is_slowed_down() {
    let secured = secured::start().await;
    let server = &secured.server;
    let guess = async |token: &str| {
        let body = Some(json!({ "token": token }));
        json_of(ask(server, ("POST", "/v1/session"), &[], body).await).await
    };
    for number in 0..20 {
        let (status, answer) = guess(&format!("wrong-{number}")).await;
        assert_eq!((status, &answer["code"]), (401, &json!("Unauthenticated")), "{answer}");
        assert!(!answer.to_string().contains("wrong-"), "{answer}");
    }
    let Who::Token(right) = &secured.admin else { panic!("the first token is a token") };
    assert_eq!(guess(right).await.0, 429);
    server.source.advance(1);
    assert_eq!(guess(right).await.0, 200);
    server.source.advance(20);
    for wrong in [json!({}), json!({ "token": 7 }), json!({ "token": right, "more": 1 }), json!([])] {
        let (status, answer) = json_of(ask(server, ("POST", "/v1/session"), &[], Some(wrong)).await).await;
        assert_eq!(status, 422, "{answer}");
        assert!(!answer.to_string().contains(right.as_str()), "{answer}");
    }
}

/// A login without credentials costs little: its body is JSON of at most 16 KiB, and an address that failed too
/// often is refused before its body is parsed.
#[tokio::test]
async fn a_login_is_small_json_and_limited_before_it_is_parsed() {
    let secured = secured::start().await;
    let post = async |kind: &str, body: String| {
        let request = Request::builder().method("POST").uri("/v1/session").header("content-type", kind);
        json_of(secured.server.send(request.body(Body::from(body)).unwrap()).await).await
    };
    let large = json!({ "token": "x".repeat(17 * 1024) }).to_string();
    for _ in 0..10 {
        let (status, answer) = post("application/yaml", "token: x".to_owned()).await;
        assert_eq!((status, &answer["code"]), (415, &json!("UnsupportedMediaType")), "{answer}");
        let (status, answer) = post("application/json", large.clone()).await;
        assert_eq!((status, &answer["code"]), (413, &json!("PayloadTooLarge")), "{answer}");
    }
    for (kind, body) in
        [("application/yaml", "token: x"), ("application/json", "{"), ("application/json", &large)]
    {
        assert_eq!(post(kind, body.to_owned()).await.0, 429);
    }
}

/// If the status page is read-only, requests with a session, and unauthenticated requests of the page, change
/// nothing. Plans still work, and requests with a token are not affected.
#[tokio::test]
async fn a_page_that_may_only_read_changes_nothing() {
    let page = || PageSettings::new(true, &["Wiki=https://wiki.example/".to_owned()]).unwrap();
    let open = support::start_with(Settings { page: page(), ..support::settings(30000..=32767) }).await;
    let (status, answer) = json_of(ask(&open, ("POST", SERVICES), &[PAGE], Some(service("web"))).await).await;
    assert_eq!((status, &answer["code"]), (403, &json!("ReadOnly")), "{answer}");
    assert_eq!(ask(&open, ("POST", SERVICES), &[], Some(service("web"))).await.status(), 201);
    let shown = json_of(ask(&open, ("GET", "/v1/session"), &[], None).await).await.1;
    assert_eq!((&shown["readOnly"], &shown["authenticated"]), (&json!(true), &json!(false)));
    let links = json_of(ask(&open, ("GET", "/v1/page"), &[], None).await).await.1;
    assert_eq!(
        links["links"],
        json!([{ "title": "Wiki", "of": "cluster", "template": "https://wiki.example/" }])
    );

    let secured = start_secured(page()).await;
    let server = &secured.server;
    assert_eq!(ask(server, ("GET", "/v1/page"), &[], None).await.status(), 401);
    let cookie = log_in(server, &secured.admin).await;
    let own = [("cookie", cookie.as_str()), PAGE];
    for (method, path) in
        [("POST", SERVICES), ("POST", "/v1/apply"), ("POST", "/v1/tokens"), ("DELETE", SERVICES)]
    {
        let (status, answer) = json_of(ask(server, (method, path), &own, Some(service("web"))).await).await;
        assert_eq!((status, &answer["code"]), (403, &json!("ReadOnly")), "{method} {path}: {answer}");
    }
    let plan = ask(server, ("POST", "/v1/plan?nodes=false"), &own, Some(json!([service("web")]))).await;
    assert_eq!(plan.status(), 200);
    secured.admin("POST", SERVICES, Some(service("web"))).await;
    assert_eq!(ask(server, ("DELETE", "/v1/session"), &own, None).await.status(), 204);
}

async fn start_secured(page: PageSettings) -> Secured {
    let settings = Settings { is_auth_required: true, page, ..support::settings(30000..=32767) };
    let server = support::start_with(settings).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    assert!(api::bootstrap(&server.running.app, &file).await.unwrap());
    let admin = Who::Token(std::fs::read_to_string(&file).unwrap().trim().to_owned());
    Secured { server, admin }
}
