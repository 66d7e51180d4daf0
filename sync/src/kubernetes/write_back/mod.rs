//! Writes addresses and conditions to the status of Services and of objects of HTTP routing, and publishes as Kubernetes events: findings
//! (reports of settings that are not translated exactly), and the rejections of Workloads and NetworkPolicies by the control server.
//!
//! One loop receives the complete states of the cluster and of Tidegate's objects. Services that have changed
//! are marked as dirty until their status is written or needs no write.

mod http;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt as _;
use imbl::{OrdMap, ordmap::DiffItem};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use model::kinds::resource::{Kind, ObjectKey};
use tokio::sync::watch;
use translate::json::text;

use self::http::HttpStatuses;
pub use self::{
    http::{HttpSources, plan as plan_http},
    plan::{SUPPORTED, ServiceState, plan},
};
use super::{
    resource::Resource,
    state::{Entry, Findings, Id, WriteBackInput},
    translate::{Finding, Severity},
    words,
};
use crate::wanted::ObservedObjects;

/// Time for which changes are collected, so that a Service that passes through several conditions is written
/// once.
const COLLECT: Duration = Duration::from_millis(100);
/// Retry delay after a failed write.
const RETRY: Duration = Duration::from_secs(5);
/// Timeout of one write to the API server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of concurrent writes; limited because the API server has other clients.
const WRITES_MAX: usize = 8;
/// Maximum number of Kubernetes events written per iteration of the write-back loop.
const EVENTS_MAX: usize = 32;
/// Field manager and event controller name.
const MANAGER: &str = "tidegate-sync";

/// Writes statuses and events after each change of the inputs, until the input channels are closed.
pub(super) async fn run(
    client: Client,
    instance: String,
    mut published: watch::Receiver<WriteBackInput>,
    mut observed: watch::Receiver<ObservedObjects>,
) {
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(instance) };
    let recorder = Recorder::new(client.clone(), reporter);
    let mut desk = Desk::default();
    loop {
        let retry = tokio::time::sleep(RETRY);
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return },
            changed = observed.changed() => if changed.is_err() { return },
            () = retry, if desk.has_work() => {}
        }
        tokio::time::sleep(COLLECT).await;
        let (new, said) = (published.borrow_and_update().clone(), observed.borrow_and_update().clone());
        desk.take(new, said);
        desk.write(&client).await;
        desk.tell(&recorder).await;
    }
}

/// State of the write-back task: its last inputs, the Services whose status may need a write (dirty), and the
/// published events.
#[derive(Default)]
struct Desk {
    published: WriteBackInput,
    observed: ObservedObjects,
    /// Cluster Service by the key of the Tidegate object translated from it.
    services: BTreeMap<ObjectKey, Id>,
    dirty: BTreeSet<Id>,
    http: HttpStatuses,
    /// Problems that were already published as events, by cluster object.
    told: BTreeMap<(Resource, Id), Vec<Notice>>,
    untold: BTreeSet<(Resource, Id)>,
}

impl Desk {
    fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.untold.is_empty() || self.http.has_work()
    }

    /// Replaces the inputs, and marks the Services that differ from the previous inputs as dirty. The cost is
    /// proportional to the difference.
    fn take(&mut self, published: WriteBackInput, observed: ObservedObjects) {
        for item in self.published.services.diff(&published.services) {
            let (id, old, new) = match item {
                DiffItem::Add(id, new) => (id, None, Some(new)),
                DiffItem::Update { old: (id, old), new: (_, new) } => (id, Some(old), Some(new)),
                DiffItem::Remove(id, old) => (id, Some(old), None),
            };
            if let Some(key) = old.and_then(|entry| entry.key.as_ref()) {
                self.services.remove(key);
            }
            if let Some(key) = new.and_then(|entry| entry.key.as_ref()) {
                self.services.insert(key.clone(), id.clone());
            }
            self.dirty.insert(id.clone());
            self.untold.insert((Resource::Service, id.clone()));
        }
        for item in self.published.findings.diff(&published.findings) {
            let key = match item {
                DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => {
                    key
                }
            };
            self.untold.insert(key.clone());
        }
        let refused = keys_that_differ(&self.observed.refused, &observed.refused);
        self.mark_refused(&published, &refused);
        for key in keys_that_differ(&self.observed.objects, &observed.objects).into_iter().chain(refused) {
            self.dirty.extend(self.services.get(&key).cloned());
            self.http.mark_derived(&key);
        }
        self.http.mark(&self.published, &published);
        (self.published, self.observed) = (published, observed);
    }

    /// Marks the Pods and NetworkPolicies whose events may differ because of these rejections, and those that were deleted.
    fn mark_refused(&mut self, published: &WriteBackInput, refused: &[ObjectKey]) {
        let is_of_policy = |key: &&ObjectKey| matches!(key.kind, Kind::Workload | Kind::NetworkPolicy);
        let refused: BTreeSet<_> = refused.iter().filter(is_of_policy).collect();
        if !refused.is_empty() {
            let is_concerned = |(origin, keys): &(&(Resource, Id), &Vec<ObjectKey>)| {
                Resource::POLICY.contains(&origin.0) && keys.iter().any(|key| refused.contains(key))
            };
            let concerned = published.made.iter().filter(is_concerned);
            self.untold.extend(concerned.map(|(origin, _)| origin.clone()));
        }
        for item in self.published.made.diff(&published.made) {
            match item {
                DiffItem::Remove(origin, _) if self.told.contains_key(origin) => {
                    self.untold.insert(origin.clone());
                }
                DiffItem::Remove(..) | DiffItem::Add(..) | DiffItem::Update { .. } => {}
            }
        }
    }

    /// Writes the status of dirty Services. A Service whose write fails stays dirty.
    async fn write(&mut self, client: &Client) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut patches = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.published.services.get(&id) else { continue };
            if let Some(patch) = plan(entry, self.said(entry), &now) {
                patches.push((id, patch));
            }
        }
        let writes = patches.into_iter().map(|(id, patch)| async move {
            let api = Api::<Service>::namespaced(client.clone(), &id.namespace);
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
            let written =
                tokio::time::timeout(PATIENCE, api.patch_status(&id.name, &parameters, &patch)).await;
            (id, written)
        });
        let failed: Vec<_> = futures::stream::iter(writes).buffer_unordered(WRITES_MAX).collect().await;
        for (id, written) in failed {
            let cause = match written {
                Ok(Ok(_)) => continue,
                // The Service changed or was deleted concurrently; the watch delivers the new state.
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => continue,
                Ok(Err(error)) => words(&error),
                Err(elapsed) => elapsed.to_string(),
            };
            tracing::warn!(
                service = format!("{}/{}", id.namespace, id.name),
                cause,
                "cannot write the status of the Service"
            );
            self.dirty.insert(id);
        }
        self.http.write(client, &self.published, &self.observed, &now).await;
    }

    fn said(&self, entry: &Entry) -> ServiceState<'_> {
        let Some(key) = &entry.key else { return ServiceState::default() };
        ServiceState {
            published: self.observed.objects.get(key),
            refused: self.observed.refused.get(key).map(String::as_str),
        }
    }

    /// Publishes new problems of cluster objects as Kubernetes events. Events are informational: failures are
    /// logged and not retried.
    async fn tell(&mut self, recorder: &Recorder) {
        let now: Vec<_> = self.untold.iter().take(EVENTS_MAX).cloned().collect();
        for key in now {
            self.untold.remove(&key);
            let (notices, reference) = self.notices(&key);
            let told = self.told.remove(&key).unwrap_or_default();
            for notice in notices.iter().filter(|notice| !told.contains(notice)) {
                publish(recorder, &reference, notice).await;
            }
            if !notices.is_empty() {
                self.told.insert(key, notices);
            }
        }
    }

    fn notices(&self, key: &(Resource, Id)) -> (Vec<Notice>, ObjectReference) {
        let (resource, id) = key;
        let place = resource.places().into_iter().next();
        let entry = self.published.services.get(id).filter(|_| *resource == Resource::Service);
        let findings = match entry {
            Some(entry) => entry.findings.clone(),
            None => of(&self.published.findings, key),
        };
        let notices = findings.iter().map(Notice::of).chain(self.refusals(key)).collect();
        let reference = ObjectReference {
            api_version: place.as_ref().map(|place| place.api_version.clone()),
            kind: place.map(|place| place.kind),
            name: Some(id.name.clone()),
            namespace: Some(id.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            uid: entry.map(|entry| text(&entry.object, "/metadata/uid")),
            ..ObjectReference::default()
        };
        (notices, reference)
    }

    /// Returns the rejections of the Workload of a Pod, or of the object of a NetworkPolicy. Other objects have rejections in their
    /// status.
    fn refusals(&self, key: &(Resource, Id)) -> Vec<Notice> {
        let (resource, id) = key;
        // The policy that isolates pods has no object in the cluster.
        if !Resource::POLICY.contains(resource) || id.name.is_empty() {
            return Vec::new();
        }
        let keys = self.published.made.get(key).into_iter().flatten();
        let refused = keys.filter_map(|key| Some((key, self.observed.refused.get(key)?)));
        refused.map(|(key, why)| Notice::of_refusal(key, why)).collect()
    }
}

/// Content of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Notice {
    is_warning: bool,
    reason: &'static str,
    note: String,
}

impl Notice {
    fn of(finding: &Finding) -> Self {
        let (is_warning, reason) = match finding.severity {
            Severity::Approximated => (false, "Approximated"),
            Severity::NotSupported => (true, "NotSupported"),
            Severity::Invalid => (true, "Invalid"),
        };
        Self { is_warning, reason, note: format!("{}: {}", finding.field, finding.message) }
    }

    fn of_refusal(key: &ObjectKey, why: &str) -> Self {
        let kind = key.kind.as_str();
        let note = format!("the control server rejects the {kind}, so that changes have no effect: {why}");
        Self { is_warning: true, reason: "Refused", note }
    }
}

fn of(findings: &Findings, key: &(Resource, Id)) -> Vec<Finding> {
    findings.get(key).cloned().unwrap_or_default()
}

async fn publish(recorder: &Recorder, reference: &ObjectReference, notice: &Notice) {
    let Notice { is_warning, reason, note } = notice;
    tracing::info!(
        kind = reference.kind,
        name = reference.name,
        namespace = reference.namespace,
        reason,
        note
    );
    let event = Event {
        type_: if *is_warning { EventType::Warning } else { EventType::Normal },
        reason: (*reason).to_owned(),
        // Length limit of the API server.
        note: Some(note.chars().take(1000).collect()),
        action: "Translate".to_owned(),
        secondary: None,
    };
    match tokio::time::timeout(PATIENCE, recorder.publish(&event, reference)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("cannot write an event: {error}"),
        Err(elapsed) => tracing::warn!("cannot write an event: {elapsed}"),
    }
}

fn keys_that_differ<V: PartialEq + Clone>(
    old: &OrdMap<ObjectKey, V>,
    new: &OrdMap<ObjectKey, V>,
) -> Vec<ObjectKey> {
    let keys = old.diff(new).map(|item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => {
            key.clone()
        }
    });
    keys.collect()
}
