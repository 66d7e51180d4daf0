//! Polls the statuses of a source's Services, because a watch does not report a change of the status alone.

use std::time::Duration;

use model::{kinds::resource::ObjectKey, primitives::name::Label};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{keep::SOURCE_LABEL, mirror::own};
use crate::control::{Control, Request};

/// Poll interval. Polling more often would gain little, because agents' reports, from which statuses follow,
/// take seconds themselves, and each poll lists all Services of the source.
const LOOK: Duration = Duration::from_secs(5);
/// Number of Services per page of a listing.
const PAGE: usize = 500;

/// Polls the statuses of the source's Services and sends them to `shown`, until the receiver is closed.
pub(super) async fn follow(control: &Control, source: &Label, shown: mpsc::Sender<Vec<(ObjectKey, Value)>>) {
    while !shown.is_closed() {
        tokio::time::sleep(LOOK).await;
        let mut token = None::<String>;
        loop {
            let request = Request::get("/v1/services")
                .query("labelSelector", Some(format!("{SOURCE_LABEL}={source}")))
                .query("limit", Some(PAGE.to_string()))
                .query("continue", token.take());
            // The watch reports the same failure.
            let Ok(mut page) = control.send(&request).await else { break };
            let next = page.pointer("/metadata/continue").and_then(Value::as_str).map(str::to_owned);
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                let services = items.into_iter().filter_map(|item| own(source, item));
                let services = services.map(|(key, own)| (key, own.published)).collect();
                if shown.send(services).await.is_err() {
                    return;
                }
            }
            match next.filter(|next| !next.is_empty()) {
                Some(next) => token = Some(next),
                None => break,
            }
        }
    }
}
