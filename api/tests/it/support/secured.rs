//! Server with authentication, and requests of different callers.

use std::sync::Arc;

use api::{ClientCertificate, base::config::Settings};
use axum::{body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt;
use model::primitives::name::Name;
use serde_json::{Value, json};
use store::Store;

use super::{Fixed, START, Server, settings, start_with};

/// Caller in whose name a test sends a request.
#[derive(Debug, Clone)]
pub(crate) enum Who {
    /// Caller without credentials.
    Nobody,
    /// Holder of a token; contains the text of the token.
    Token(String),
    /// Agent of the named node, with a certificate of the cluster CA.
    Agent(&'static str),
}

/// Server with authentication, and its bootstrap token.
pub(crate) struct Secured {
    pub(crate) server: Server,
    pub(crate) admin: Who,
}

pub(crate) async fn start() -> Secured {
    start_on(settings(30000..=32767)).await
}

/// Starts a server with authentication and the given settings.
pub(crate) async fn start_on(settings: Settings) -> Secured {
    let settings = Settings { is_auth_required: true, ..settings };
    bootstrapped(start_with(settings).await).await
}

/// Starts a server with authentication on an existing store.
pub(crate) async fn start_in(store: Arc<dyn Store>) -> Secured {
    let settings = Settings { is_auth_required: true, ..settings(30000..=32767) };
    bootstrapped(super::start_on(settings, store, Fixed::at(START)).await).await
}

async fn bootstrapped(server: Server) -> Secured {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bootstrap-token");
    assert!(api::bootstrap(&server.running.app, &file).await.unwrap());
    let text = std::fs::read_to_string(&file).unwrap();
    Secured { server, admin: Who::Token(text.trim().to_owned()) }
}

impl Secured {
    /// Sends a request in the name of a caller, with an optional JSON body, and returns the response.
    pub(crate) async fn send(&self, who: &Who, method: &str, path: &str, body: Option<&Value>) -> Response {
        let mut request = Request::builder().method(method).uri(path).header("if-match", "*");
        if let Who::Token(token) = who {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = match body {
            Some(body) => {
                request.header("content-type", "application/json").body(Body::from(body.to_string()))
            }
            None => request.body(Body::empty()),
        }
        .unwrap();
        if let Who::Agent(node) = who {
            let node = Name::parse(node).unwrap();
            request.extensions_mut().insert(ClientCertificate { node, serial: "01".to_owned() });
        }
        self.server.send(request).await
    }

    /// Sends a request in the name of a caller and returns status and body.
    pub(crate) async fn call(
        &self,
        who: &Who,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let response = self.send(who, method, path, body.as_ref()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Sends a request with the bootstrap token and asserts success.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(&self.admin.clone(), method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Creates a token with one role binding.
    pub(crate) async fn token(&self, name: &str, binding: Value) -> Who {
        let made =
            self.admin("POST", "/v1/tokens", Some(json!({ "name": name, "bindings": [binding] }))).await;
        Who::Token(made["token"].as_str().unwrap().to_owned())
    }
}
