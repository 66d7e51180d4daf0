//! Task that orders certificates from ACME servers and renews them. Every control server runs it, and only the leader orders.
//!
//! ```text
//! Certificates (every 2 s) ─▶ order is due? ─▶ OrderJob, at most 8 at once ─▶ SetIssuance: certificate, or failure and pause
//! ```
//! All decisions follow from the stored objects, so that a new leader goes on: failures, pauses and the time of the renewal are
//! part of the Certificate.

mod connection;
mod order;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{
    cluster::snapshot::Snapshot,
    http::{HttpObjectKey, is_order_due, retry_delay},
    kinds::{
        certificate::{ACME_TEXT_BYTES_MAX, CertificateSpec, IssuanceRecord},
        resource::Kind,
    },
    primitives::{quantity::Timestamp, secret::Secret},
};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, sleep},
};

use self::{
    connection::AcmeConnection,
    order::{IssuedCertificate, OrderJob, names_of, random},
};
use super::leader_task::write;
use crate::{base::config::acme::AcmeServers, context::server_state::ServerState};

/// Interval at which the Certificates are examined.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum number of concurrent orders.
const ORDERS_MAX: usize = 8;
/// Number of attempts to store the result of an order. A certificate that is lost counts for the limits of the ACME server.
const WRITES_MAX: u32 = 30;

/// Runs the task until the server stops.
pub(crate) async fn run(app: Arc<ServerState>, servers: AcmeServers) {
    let mut connection = None;
    let mut running: BTreeMap<HttpObjectKey, AbortHandle> = BTreeMap::new();
    // Dropping the set ends the orders with this task.
    let mut orders = JoinSet::new();
    let mut turn = tokio::time::interval(LOOK);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        while orders.try_join_next().is_some() {}
        running.retain(|_, order| !order.is_finished());
        if !app.leadership.holds() {
            orders.abort_all();
            continue;
        }
        for (key, spec) in due(&app.hub.load().snapshot, app.source.now()) {
            let CertificateSpec { acme: Some(settings), issuance, .. } = spec else { continue };
            if running.len() >= ORDERS_MAX || running.contains_key(&key) {
                continue;
            }
            let ready = connection.get_or_insert_with(|| AcmeConnection::new(servers.trusted())).clone();
            let is_permitted = servers.directories.contains(&settings.directory);
            let connection = if is_permitted {
                ready
            } else {
                Err("the control servers do not permit this ACME server (setting --acme-directory)"
                    .to_owned())
            };
            let record = issuance.unwrap_or_default();
            let job = OrderJob { app: Arc::clone(&app), connection, key: key.clone(), settings, record };
            running.insert(key, orders.spawn(order(job)));
        }
    }
}

/// Returns the Certificates that must be ordered at a time.
fn due(snapshot: &Snapshot, now: Timestamp) -> Vec<(HttpObjectKey, CertificateSpec)> {
    let all = snapshot.list(Kind::Certificate, None, None);
    let due = all.filter_map(|object| {
        let spec = object.as_certificate().filter(|spec| is_order_due(spec, now))?;
        let namespace = object.metadata.namespace.clone()?;
        Some((HttpObjectKey { namespace, name: object.metadata.name.clone() }, spec.clone()))
    });
    due.collect()
}

/// Orders a certificate, and stores it or the reason of the failure.
async fn order(job: OrderJob) {
    let (certificate, names) = (job.key.to_string(), names_of(&job.settings));
    tracing::info!(certificate, names, directory = job.settings.directory, "ordering a certificate");
    match job.run().await {
        Ok(IssuedCertificate { certificate: pem, private_key, renew_at }) => {
            job.app.metrics.certificate_orders.inc();
            tracing::info!(certificate, names, %renew_at, "a certificate was issued");
            let record = IssuanceRecord { renew_at: Some(renew_at), ..IssuanceRecord::default() };
            store(&job, &record, Some(&(pem, private_key))).await;
        }
        Err(mut reason) => {
            job.app.metrics.certificate_orders_failed.inc();
            tracing::warn!(
                certificate,
                names,
                reason,
                "an order of a certificate failed; it is repeated later"
            );
            reason.truncate(reason.floor_char_boundary(ACME_TEXT_BYTES_MAX));
            let failures = job.record.failures.saturating_add(1);
            let delay = retry_delay(failures, random(&job.app));
            let retry_after = job.app.source.now().unix_seconds().saturating_add(delay);
            let record = IssuanceRecord {
                challenges: BTreeMap::new(),
                failures,
                error: reason,
                retry_after: Some(Timestamp::from_unix_seconds(retry_after)),
                renew_at: job.record.renew_at,
            };
            store(&job, &record, None).await;
        }
    }
}

async fn store(job: &OrderJob, record: &IssuanceRecord, issued: Option<&(String, Secret)>) {
    for _ in 0..WRITES_MAX {
        let operation = job.operation(record.clone(), issued.cloned());
        match write(&job.app, vec![operation]).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(certificate = %job.key, ?error, "the result of an order is not stored yet");
                sleep(LOOK).await;
            }
        }
    }
}
