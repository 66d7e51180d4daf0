//! Computes the new statuses of GatewayClasses, Gateways, routes and Ingresses, and writes them.

mod plan;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use imbl::ordmap::DiffItem;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use model::kinds::resource::ObjectKey;
use serde_json::Value;
use translate::json::text;

pub use self::plan::{HttpSources, plan};
use super::{PATIENCE, WRITES_MAX};
use crate::{
    kubernetes::{
        resource::Resource,
        state::{Id, WriteBackInput},
        words,
    },
    wanted::ObservedObjects,
};

type HttpId = (Resource, Id);

/// Objects whose status may need a write.
#[derive(Debug, Default)]
pub(super) struct HttpStatuses {
    dirty: BTreeSet<HttpId>,
    /// Objects of the cluster by the key of each Tidegate object that was derived from them.
    derived: BTreeMap<ObjectKey, BTreeSet<HttpId>>,
}

impl HttpStatuses {
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Marks the objects that differ between two inputs. The cost is proportional to the difference, except that a change of a
    /// Service with addresses marks all objects that publish them.
    pub(super) fn mark(&mut self, old: &WriteBackInput, new: &WriteBackInput) {
        for item in old.http.diff(&new.http) {
            let (id, before, after) = match item {
                DiffItem::Add(id, after) => (id, None, Some(after)),
                DiffItem::Update { old: (id, before), new: (_, after) } => (id, Some(before), Some(after)),
                DiffItem::Remove(id, before) => (id, Some(before), None),
            };
            for key in before.into_iter().flat_map(|entry| &entry.keys) {
                if let Some(ids) = self.derived.get_mut(key) {
                    ids.remove(id);
                    if ids.is_empty() {
                        self.derived.remove(key);
                    }
                }
            }
            for key in after.into_iter().flat_map(|entry| &entry.keys) {
                self.derived.entry(key.clone()).or_default().insert(id.clone());
            }
            self.dirty.insert(id.clone());
        }
        let services: BTreeSet<&Id> = old
            .services
            .diff(&new.services)
            .map(|item| match item {
                DiffItem::Add(id, _) | DiffItem::Remove(id, _) | DiffItem::Update { new: (id, _), .. } => id,
            })
            .collect();
        if !services.is_empty() {
            let publishing =
                new.http.iter().filter(|(_, entry)| entry.publishers.iter().any(|id| services.contains(id)));
            self.dirty.extend(publishing.map(|(id, _)| id.clone()));
        }
    }

    /// Marks the objects from which a Tidegate object was derived.
    pub(super) fn mark_derived(&mut self, key: &ObjectKey) {
        self.dirty.extend(self.derived.get(key).into_iter().flatten().cloned());
    }

    /// Writes the statuses of marked objects. An object whose write fails stays marked.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        input: &WriteBackInput,
        observed: &ObservedObjects,
        now: &str,
    ) {
        let mut patches = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            let Some(entry) = input.http.get(&id) else { continue };
            let sources = HttpSources { observed, services: &input.services };
            if let Some(patch) = plan(id.0, entry, sources, now) {
                patches.push((id, text(&entry.object, "/apiVersion"), patch));
            }
        }
        let writes = patches.into_iter().map(|(id, version, patch)| {
            let client = client.clone();
            async move {
                let written = write(&client, &id, &version, &patch).await;
                (id, written)
            }
        });
        let written: Vec<_> = futures::stream::iter(writes).buffer_unordered(WRITES_MAX).collect().await;
        for (id, written) in written {
            let Err(cause) = written else { continue };
            let (resource, Id { namespace, name }) = &id;
            tracing::warn!(kind = ?resource, namespace, name, cause, "cannot write a status");
            self.dirty.insert(id);
        }
    }
}

async fn write(client: &Client, id: &HttpId, version: &str, patch: &Value) -> Result<(), String> {
    let (resource, Id { namespace, name }) = id;
    let mut places = resource.places();
    let at = places.iter().position(|place| place.api_version == version).unwrap_or_default();
    let place = places.swap_remove(at);
    let api = if namespace.is_empty() {
        Api::<DynamicObject>::all_with(client.clone(), &place)
    } else {
        Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &place)
    };
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    match tokio::time::timeout(PATIENCE, api.patch_status(name, &parameters, &patch)).await {
        Ok(Ok(_)) => Ok(()),
        // The object changed or was deleted concurrently; the watch delivers the new state.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
        Ok(Err(error)) => Err(words(&error)),
        Err(elapsed) => Err(elapsed.to_string()),
    }
}
