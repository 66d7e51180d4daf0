//! Delivery of messages to one receiver, in order. A message is repeated until the receiver accepts it.

use std::{sync::Arc, time::Duration};

use ::base::backoff::Backoff;
use reqwest::{Client, Url, header};
use rustls::RootCertStore;
use tokio::{sync::mpsc, time::Instant};

use super::signature::sign;
use crate::{
    base::{config::webhooks::WebhookSecret, outgoing},
    context::server_state::ServerState,
};

/// Maximum duration of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum pause before a repetition.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause between two repetitions.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Time after which a message that the receiver does not accept is dropped.
const GIVE_UP: Duration = Duration::from_hours(24);

/// Message for all receivers.
#[derive(Debug)]
pub(super) struct WebhookMessage {
    /// Id by which receivers recognize a repetition.
    pub(super) id: String,
    /// Body: a JSON document.
    pub(super) body: String,
}

/// Creates the HTTP client of all couriers.
pub(super) fn client(roots: RootCertStore) -> Result<Client, String> {
    outgoing::client(roots, TIMEOUT)
}

/// Delivers the messages of one receiver.
pub(super) struct Courier {
    pub(super) client: Client,
    pub(super) receiver: Url,
    pub(super) secret: Option<WebhookSecret>,
    pub(super) app: Arc<ServerState>,
}

impl Courier {
    /// Delivers messages until the sender of the queue is gone.
    pub(super) async fn run(self, mut messages: mpsc::Receiver<Arc<WebhookMessage>>) {
        while let Some(message) = messages.recv().await {
            self.deliver(&message).await;
        }
    }

    async fn deliver(&self, message: &WebhookMessage) {
        let begun = Instant::now();
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let host = self.receiver.host_str().unwrap_or_default();
        loop {
            let Err(reason) = self.attempt(message).await else {
                self.app.metrics.webhook_deliveries.inc();
                return;
            };
            self.app.metrics.webhook_failures.inc();
            if begun.elapsed() >= GIVE_UP {
                self.app.metrics.webhook_drops.inc();
                tracing::error!(host, message = message.id, reason, "a webhook message was dropped");
                return;
            }
            tracing::warn!(
                host,
                message = message.id,
                reason,
                "a webhook did not accept a message; it is repeated"
            );
            tokio::time::sleep(backoff.next_random_delay()).await;
        }
    }

    async fn attempt(&self, message: &WebhookMessage) -> Result<(), String> {
        let WebhookMessage { id, body } = message;
        let sent = self.app.source.now().unix_seconds();
        let mut request = self
            .client
            .post(self.receiver.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", sent)
            .body(body.clone());
        if let Some(secret) = &self.secret {
            let signature = sign(secret.key(), id, sent, body).ok_or("the secret cannot sign")?;
            request = request.header("webhook-signature", signature);
        }
        match request.send().await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("status {}", response.status().as_u16())),
            Err(error) => Err(outgoing::failure(error)),
        }
    }
}
