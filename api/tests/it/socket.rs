//! Tests of the Unix socket of a server that requires authentication.

use std::{path::Path, sync::Arc};

use api::{
    base::config::Settings,
    server::serve::{listen_socket, serve_socket},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;

use crate::support;

async fn call(path: &Path, method: &str, target: &str, token: Option<&str>, body: &Value) -> (u16, Value) {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let body = body.to_string();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Clients of the socket need no token; a token that they send limits them to its permissions.
#[tokio::test]
async fn clients_of_the_socket_need_no_token_and_may_use_one() {
    let settings = Settings { is_auth_required: true, ..support::settings(30000..=32767) };
    let server = support::start_with(settings).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve_socket(
        listen_socket(&path).unwrap(),
        Arc::clone(&server.running.app),
        stop.clone(),
    ));
    let services = "/v1/namespaces/default/services";
    let service = json!({ "metadata": { "name": "web" }, "spec": { "clusterIP": "None" } });
    assert_eq!(server.call("POST", services, Some(service.clone())).await.0, 401, "without the socket");
    let (status, answer) = call(&path, "POST", services, None, &service).await;
    assert_eq!(status, 201, "{answer}");
    let viewer = json!({ "name": "viewer", "bindings": [{ "role": "viewer" }] });
    let (status, created) = call(&path, "POST", "/v1/tokens", None, &viewer).await;
    assert_eq!(status, 201, "{created}");
    let token = created["token"].as_str().unwrap();
    let other = json!({ "metadata": { "name": "other" }, "spec": { "clusterIP": "None" } });
    assert_eq!(call(&path, "POST", services, Some(token), &other).await.0, 403);
    assert_eq!(call(&path, "GET", services, Some(token), &Value::Null).await.0, 200);
    assert_eq!(call(&path, "GET", services, Some("tgt_wrong"), &Value::Null).await.0, 401);
    stop.cancel();
    serving.await.unwrap();
}
