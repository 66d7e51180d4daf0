//! Dynamic updates (RFC 2136): each becomes a write of the static records of its DnsZone at a control server.
//!
//! One update is made at a time. It is computed from the state of this server, and the write applies to this state of the
//! DnsZone only: if another write came first, the update is computed again. A client that got no response repeats its
//! request over UDP; the prerequisites of the repetition may no longer hold, so it gets the result of the first one.

use std::{collections::VecDeque, fmt, net::IpAddr, sync::Arc, time::Duration};

use client::{Client, Error, Request};
use hickory_proto::op::ResponseCode;
use model::{
    discovery::dns::{UpdateError, Zone, ZoneUpdate, apply_update},
    kinds::{
        dns_key::DnsOperation,
        dns_zone::DnsRecord,
        resource::{Kind, Object, ObjectKey},
    },
    primitives::quantity::Revision,
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::responder::Zones;

/// Maximum number of updates that wait; others fail. Clients send them again.
const QUEUE_MAX: usize = 32;
/// Maximum time for an update, after which it fails. Clients such as `nsupdate` wait longer.
const TIME_MAX: Duration = Duration::from_secs(8);
/// Maximum time after a write until this server has it. The update has succeeded even if it takes longer.
const VISIBLE_TIME_MAX: Duration = Duration::from_secs(2);
/// Time for which the result of an update is remembered. `nsupdate` repeats a request after 3 s, three times.
const REPETITION_TIME_MAX: Duration = Duration::from_secs(15);
/// Maximum number of results that are remembered.
const RESULTS_MAX: usize = 256;
/// Media type of a merge patch (RFC 7396).
const MERGE_PATCH: &str = "application/merge-patch+json";
/// HTTP status code of a write whose precondition failed.
const PRECONDITION_FAILED: u16 = 412;

/// Author of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpdateAuthor {
    /// Key that signed the update.
    Key(String),
    /// ExternalDNS, which may change the zones that the settings name.
    ExternalDns,
}

impl fmt::Display for UpdateAuthor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => write!(f, "dns-key/{name}"),
            Self::ExternalDns => f.write_str("external-dns"),
        }
    }
}

/// Update of a client that may make it.
#[derive(Debug)]
pub(crate) struct ZoneChange {
    /// Name of the zone.
    pub(crate) zone: String,
    /// Author of the update.
    pub(crate) author: UpdateAuthor,
    /// Address of the client.
    pub(crate) client: IpAddr,
    /// Id and signature of the request, which a repetition of it has too.
    pub(crate) transaction: Option<(u16, Vec<u8>)>,
    /// Prerequisites and changes.
    pub(crate) update: ZoneUpdate,
}

/// Receiver of updates, each with the sender for its result code.
pub(crate) type QueuedUpdates = mpsc::Receiver<(ZoneChange, oneshot::Sender<ResponseCode>)>;

/// Queue of updates to the task that makes them.
#[derive(Debug, Clone)]
pub(crate) struct UpdateQueue(mpsc::Sender<(ZoneChange, oneshot::Sender<ResponseCode>)>);

/// Client, id and signature of a request.
type Transaction = (IpAddr, u16, Vec<u8>);

/// Results of the latest updates.
#[derive(Debug, Default)]
struct UpdateResults(VecDeque<(Instant, Transaction, ResponseCode)>);

/// Task that makes updates.
pub(crate) struct UpdateWriter {
    client: Client,
    zones: Zones,
    queue: QueuedUpdates,
    results: UpdateResults,
}

impl UpdateQueue {
    /// Creates the queue with its receiver.
    pub(crate) fn new() -> (Self, QueuedUpdates) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// Makes an update and returns the result code of its response.
    pub(crate) async fn make(&self, update: ZoneChange) -> ResponseCode {
        let (sender, receiver) = oneshot::channel();
        if self.0.try_send((update, sender)).is_err() {
            return ResponseCode::ServFail;
        }
        receiver.await.unwrap_or(ResponseCode::ServFail)
    }
}

impl UpdateResults {
    /// Returns the result of the request of which this one is a repetition.
    fn find(&self, update: &ZoneChange, now: Instant) -> Option<ResponseCode> {
        let transaction = transaction_of(update)?;
        let found = self.0.iter().find(|(time, known, _)| {
            *known == transaction && now.duration_since(*time) < REPETITION_TIME_MAX
        });
        found.map(|(_, _, code)| *code)
    }

    /// Remembers the result of an update. A failure is not remembered: a repetition may succeed.
    fn remember(&mut self, update: &ZoneChange, code: ResponseCode, now: Instant) {
        let Some(transaction) = transaction_of(update).filter(|_| code != ResponseCode::ServFail) else {
            return;
        };
        self.0.push_back((now, transaction, code));
        if self.0.len() > RESULTS_MAX {
            self.0.pop_front();
        }
    }
}

fn transaction_of(update: &ZoneChange) -> Option<Transaction> {
    let (id, signature) = update.transaction.clone()?;
    Some((update.client, id, signature))
}

impl UpdateWriter {
    /// Creates the task for the updates of a queue.
    pub(crate) fn new(client: Client, zones: Zones, queue: QueuedUpdates) -> Self {
        Self { client, zones, queue, results: UpdateResults::default() }
    }

    /// Makes updates until the task is cancelled.
    pub(crate) async fn run(mut self) {
        while let Some((update, done)) = self.queue.recv().await {
            if let Some(code) = self.results.find(&update, Instant::now()) {
                let _ = done.send(code);
                continue;
            }
            let deadline = Instant::now() + TIME_MAX;
            let code = timeout_at(deadline, self.make(&update)).await.unwrap_or(ResponseCode::ServFail);
            let ZoneChange { zone, author, client, transaction: _, update: _ } = &update;
            tracing::info!(zone, %author, %client, %code, "dynamic update");
            self.results.remember(&update, code, Instant::now());
            // The client has gone away.
            let _ = done.send(code);
        }
        std::future::pending().await
    }

    async fn make(&mut self, update: &ZoneChange) -> ResponseCode {
        loop {
            let Some(zone) = self.zones.borrow_and_update().clone() else { return ResponseCode::ServFail };
            let (object, records) = match plan(&zone, update) {
                Ok(Some(planned)) => planned,
                Ok(None) => return ResponseCode::NoError,
                Err(code) => return code,
            };
            match self.client.send(&write(object, &records, update)).await {
                Ok(body) => {
                    self.wait_until_visible(&body).await;
                    return ResponseCode::NoError;
                }
                Err(Error::Rejected(problem)) if problem.status == PRECONDITION_FAILED => {
                    // Another write came first, which this server will receive.
                    if self.zones.changed().await.is_err() {
                        return ResponseCode::ServFail;
                    }
                }
                Err(Error::Rejected(problem)) if !problem.is_transient() => {
                    tracing::warn!(zone = update.zone, author = %update.author, %problem, "rejected a dynamic update");
                    return ResponseCode::Refused;
                }
                Err(error) => {
                    tracing::warn!(
                        zone = update.zone,
                        cause = base::chain(&error),
                        "cannot write a dynamic update"
                    );
                    self.client.use_next();
                    return ResponseCode::ServFail;
                }
            }
        }
    }

    /// Waits until this server has the state after a write, so that its next answer has the new records.
    async fn wait_until_visible(&mut self, body: &serde_json::Value) {
        let revision = body.pointer("/metadata/resourceVersion").and_then(serde_json::Value::as_str);
        let Some(revision) = revision.and_then(|text| text.parse().ok()).map(Revision) else { return };
        let is_new = |zone: &Option<Arc<Zone>>| {
            zone.as_ref().is_some_and(|zone| zone.snapshot().revision() >= revision)
        };
        if tokio::time::timeout(VISIBLE_TIME_MAX, self.zones.wait_for(is_new)).await.is_err() {
            tracing::warn!("a dynamic update is written, but not received yet");
        }
    }
}

/// Returns the DnsZone of an update and its new records; `None` if they do not change.
///
/// # Errors
/// Returns the result code if the update must not be made.
fn plan<'a>(
    zone: &'a Zone,
    update: &ZoneChange,
) -> Result<Option<(&'a Object, Vec<DnsRecord>)>, ResponseCode> {
    let found =
        zone.snapshot().dns_zone_of(&update.zone).filter(|(_, spec)| spec.zone.as_str() == update.zone);
    let (name, spec) = found.ok_or(ResponseCode::NotAuth)?;
    let is_permitted = match &update.author {
        UpdateAuthor::Key(key) => spec.permits(key, DnsOperation::Update),
        UpdateAuthor::ExternalDns => true,
    };
    if !is_permitted {
        return Err(ResponseCode::Refused);
    }
    let records = apply_update(zone, spec, &update.update).map_err(|error| {
        tracing::debug!(zone = update.zone, author = %update.author, %error, "rejected a dynamic update");
        code_of(&error)
    })?;
    let key = ObjectKey { kind: Kind::DnsZone, namespace: None, name: name.clone() };
    let object = zone.snapshot().get(&key).ok_or(ResponseCode::ServFail)?;
    Ok((records != spec.records).then_some((&**object, records)))
}

const fn code_of(error: &UpdateError) -> ResponseCode {
    match error {
        UpdateError::NameUnused => ResponseCode::NXDomain,
        UpdateError::NameInUse => ResponseCode::YXDomain,
        UpdateError::SetExists => ResponseCode::YXRRSet,
        UpdateError::SetMissing => ResponseCode::NXRRSet,
        UpdateError::NotInZone(_) => ResponseCode::NotZone,
        UpdateError::Refused(_) => ResponseCode::Refused,
        UpdateError::Unknown => ResponseCode::ServFail,
    }
}

/// Returns the write of the new records. Other fields, which a newer server may have, stay as they are.
fn write(object: &Object, records: &[DnsRecord], update: &ZoneChange) -> Request {
    let name = &object.metadata.name;
    let uid = object.metadata.uid.map(|uid| uid.to_string()).unwrap_or_default();
    let tag = format!("\"{uid}.{}\"", object.metadata.revision());
    Request::patch(format!("/v1/dnszones/{name}"))
        .body(MERGE_PATCH, json!({ "spec": { "records": records } }).to_string())
        .if_match(tag)
        .author(update.author.to_string())
        .message(Some(format!("dynamic update from {}", update.client)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(client: &str, id: u16) -> ZoneChange {
        ZoneChange {
            zone: "example.org".to_owned(),
            author: UpdateAuthor::Key("k".to_owned()),
            client: client.parse().unwrap(),
            transaction: Some((id, vec![7; 32])),
            update: ZoneUpdate::default(),
        }
    }

    /// A repetition gets the result of the first request for 15 s, unless that was a failure of this server.
    #[test]
    fn a_repeated_update_has_the_same_result() {
        let (mut results, start) = (UpdateResults::default(), Instant::now());
        let (one, failed) = (update("192.0.2.1", 1), update("192.0.2.1", 3));
        results.remember(&one, ResponseCode::YXDomain, start);
        results.remember(&failed, ResponseCode::ServFail, start);
        let at = |secs: u64| start + Duration::from_secs(secs);
        assert_eq!(results.find(&one, at(14)), Some(ResponseCode::YXDomain));
        assert_eq!(results.find(&one, at(15)), None);
        for other in [update("192.0.2.2", 1), update("192.0.2.1", 2), failed] {
            assert_eq!(results.find(&other, start), None, "{other:?}");
        }
        let unsigned = ZoneChange { transaction: None, ..update("192.0.2.1", 1) };
        assert_eq!(results.find(&unsigned, start), None);
        for id in 0..300 {
            results.remember(&update("192.0.2.9", id), ResponseCode::NoError, start);
        }
        assert_eq!(results.0.len(), RESULTS_MAX);
    }
}
