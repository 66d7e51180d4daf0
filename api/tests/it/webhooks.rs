//! Tests of webhooks: a real HTTP receiver gets the beginning and the end of a problem, signed, and once more if it fails.

use std::{sync::Arc, time::Duration};

use api::base::config::{
    Settings,
    webhooks::{WebhookSecret, WebhookSettings},
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use crate::support::{self, Server};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PATIENCE: Duration = Duration::from_secs(60);

/// Request that the receiver got.
#[derive(Debug)]
struct Delivery {
    id: String,
    sent: String,
    signature: String,
    body: String,
}

/// Receiver that answers the first requests with the given statuses, and all others with 204.
struct Receiver {
    url: String,
    deliveries: mpsc::UnboundedReceiver<Delivery>,
}

impl Receiver {
    async fn start(statuses: &[StatusCode]) -> Self {
        let (sender, deliveries) = mpsc::unbounded_channel();
        let state = Arc::new(Mutex::new((sender, statuses.to_vec())));
        let router = Router::new().route("/hook", post(receive)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, deliveries }
    }

    async fn next(&mut self) -> Delivery {
        tokio::time::timeout(PATIENCE, self.deliveries.recv()).await.expect("a delivery").unwrap()
    }
}

type Received = Arc<Mutex<(mpsc::UnboundedSender<Delivery>, Vec<StatusCode>)>>;

async fn receive(State(state): State<Received>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let delivery = Delivery {
        id: header("webhook-id"),
        sent: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let (sender, statuses) = &mut *state.lock().await;
    sender.send(delivery).unwrap();
    if statuses.is_empty() { StatusCode::NO_CONTENT } else { statuses.remove(0) }
}

async fn start(receiver: &Receiver, secret: Option<&str>) -> Server {
    let webhooks = WebhookSettings {
        receivers: vec![receiver.url.parse().unwrap()],
        secret: secret.map(|text| WebhookSecret::parse(text).unwrap()),
        ..WebhookSettings::default()
    };
    support::start_with(Settings { webhooks, ..support::settings(30000..=32767) }).await
}

async fn apply(server: &Server, objects: Value) {
    let (status, answer) = server.call("POST", "/v1/apply", Some(objects)).await;
    assert_eq!(status, 200, "{answer}");
}

async fn metrics(server: &Server) -> String {
    let response = server.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn service() -> Value {
    json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } })
}

fn endpoints() -> Value {
    json!({ "kind": "EndpointSet", "metadata": { "name": "web" },
            "spec": { "service": "web", "endpoints": [{ "address": "10.1.0.1" }] } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gets_the_beginning_and_the_end_of_a_problem_and_a_failed_message_again() {
    let mut receiver = Receiver::start(&[StatusCode::SERVICE_UNAVAILABLE, StatusCode::FOUND]).await;
    let server = start(&receiver, Some(SECRET)).await;
    apply(&server, service()).await;
    let (first, second, third) = (receiver.next().await, receiver.next().await, receiver.next().await);
    assert_eq!((&first.id, &first.body), (&second.id, &second.body));
    assert_eq!((&first.id, &first.body), (&third.id, &third.body));
    let body: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(body["type"], "problem.began");
    assert_eq!((&body["data"]["kind"], &body["data"]["name"]), (&"Service".into(), &"web".into()));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&(0..32).collect::<Vec<u8>>()).unwrap();
    mac.update(format!("{}.{}.{}", first.id, first.sent, first.body).as_bytes());
    assert_eq!(first.signature, format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));

    apply(&server, endpoints()).await;
    let last = receiver.next().await;
    let ended: Value = serde_json::from_str(&last.body).unwrap();
    assert_eq!((&ended["type"], &ended["data"]["id"]), (&"problem.ended".into(), &body["data"]["id"]));
    assert_ne!(last.id, first.id);
    // The server counts an answer a moment after the receiver has sent it. Other problems may have begun meanwhile.
    let counted = async |name: &str, minimum: u64| {
        let prefix = format!("tidegate_webhook_{name}_total ");
        let count =
            |text: &str| text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<u64>().ok());
        while count(&metrics(&server).await) < Some(minimum) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for (name, minimum) in [("deliveries", 2), ("failures", 2)] {
        tokio::time::timeout(PATIENCE, counted(name, minimum)).await.expect(name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_secret_there_is_no_signature() {
    let mut receiver = Receiver::start(&[]).await;
    let server = start(&receiver, None).await;
    apply(&server, service()).await;
    assert_eq!(receiver.next().await.signature, "");
}
