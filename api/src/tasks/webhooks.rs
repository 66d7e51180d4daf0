//! Task that reports problems of the cluster to webhooks. Every control server runs it, and only the leader reports.
//!
//! ```text
//! overview (every 2 s) ─▶ NoticeBook: begun, changed, ended ─▶ message ─▶ queue of each receiver ─▶ POST, repeated
//! ```
//! A new leader, and a server after a restart, report the problems that exist once more. The id of a message depends only on
//! the problem, its start and the event, so that receivers recognize a repetition.

mod delivery;
mod signature;

use std::{sync::Arc, time::Duration};

use model::views::overview::notices::{Notice, NoticeBook};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use self::delivery::{Courier, WebhookMessage};
use crate::{
    base::{config::webhooks::WebhookSettings, hex::hex},
    context::server_state::ServerState,
};

/// Interval at which the problems are compared with those that receivers know.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum number of messages that wait for a receiver. Further ones are dropped.
const QUEUE_MAX: usize = 1000;

/// Runs the task until the server stops. Without receivers it ends at once.
pub(crate) async fn run(app: Arc<ServerState>, settings: WebhookSettings) {
    if settings.receivers.is_empty() {
        return;
    }
    let delay_secs = i64::from(settings.delay_secs);
    let client = match delivery::client(settings.roots) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(error, "webhooks are disabled, because their HTTP client cannot be created");
            return;
        }
    };
    let mut queues = Vec::new();
    // Dropping the set ends the couriers with this task.
    let mut couriers = tokio::task::JoinSet::new();
    for receiver in settings.receivers {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        queues.push(queue);
        let courier = Courier {
            client: client.clone(),
            receiver,
            secret: settings.secret.clone(),
            app: Arc::clone(&app),
        };
        couriers.spawn(courier.run(messages));
    }
    let mut book = NoticeBook::new(delay_secs);
    let mut turn = tokio::time::interval(LOOK);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        if !app.leadership.holds() {
            book = NoticeBook::new(delay_secs);
            continue;
        }
        let Some(document) = app.overview.current(&app).await else { return };
        let overview = &document.overview;
        for notice in book.update(&overview.problems, overview.problems_total, app.source.now()) {
            let message = Arc::new(message(&notice));
            for queue in &queues {
                if queue.try_send(Arc::clone(&message)).is_err() {
                    app.metrics.webhook_drops.inc();
                    tracing::warn!(
                        message = message.id,
                        "a webhook message was dropped, because too many wait"
                    );
                }
            }
        }
    }
}

/// Creates the message of a notice: `type`, `timestamp` and `data`, as in Standard Webhooks.
fn message(notice: &Notice) -> WebhookMessage {
    let Notice { kind, since, at, problem } = notice;
    let identity = format!("{}\n{}\n{since}\n{:?}", kind.as_str(), problem.id, problem.impact);
    let digest = Sha256::digest(identity.as_bytes());
    let id = format!("msg_{}", hex(&digest[..16]));
    let body = json!({ "type": kind, "timestamp": at, "data": problem }).to_string();
    WebhookMessage { id, body }
}

#[cfg(test)]
mod tests {
    use model::{
        kinds::resource::Kind,
        primitives::{name::Name, quantity::Timestamp},
        views::overview::{Impact, Problem, SubjectKind, notices::NoticeKind},
    };

    use super::*;

    #[test]
    fn the_id_of_a_message_is_the_same_after_a_restart_and_different_for_each_event() {
        let problem = Problem {
            id: "Service/default/web/EndpointsAvailable".to_owned(),
            kind: SubjectKind::Object(Kind::Service),
            namespace: None,
            name: Name::parse("web").unwrap(),
            impact: Impact::Unreachable,
            reason: "NoEndpoints".to_owned(),
            message: "no endpoints".to_owned(),
            hint: None,
            since: None,
            affects: Vec::new(),
            affects_more: 0,
            change: None,
        };
        let time = Timestamp::from_unix_seconds;
        let notice =
            |kind, since, at| Notice { kind, since: time(since), at: time(at), problem: problem.clone() };
        let began = message(&notice(NoticeKind::Began, 5, 40));
        assert_eq!(began.id, message(&notice(NoticeKind::Began, 5, 90)).id);
        assert_ne!(began.id, message(&notice(NoticeKind::Began, 6, 40)).id);
        assert_ne!(began.id, message(&notice(NoticeKind::Ended, 5, 40)).id);
        let body: serde_json::Value = serde_json::from_str(&began.body).unwrap();
        assert_eq!(
            (&body["type"], &body["timestamp"]),
            (&"problem.began".into(), &"1970-01-01T00:00:40Z".into())
        );
        assert_eq!(body["data"]["impact"], "unreachable");
    }
}
