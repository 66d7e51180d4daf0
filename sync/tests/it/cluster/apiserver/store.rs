//! Versioned objects of the test cluster, and the log of changes for watches.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// API path of a kind: its prefix, as in `apis/metallb.io/v1beta1`, and its plural.
pub(super) type Place = (String, String);
/// Identity of an object within its kind: namespace (empty for cluster-scoped objects) and name.
pub(super) type Id = (String, String);

/// Message for a kind that is not installed.
pub(super) const NO_SUCH_KIND: &str = "the server could not find the requested resource";

/// Error response in the format of the Kubernetes API.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    pub(super) fn status(&self) -> Value {
        let Self { code, reason, message } = self;
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code })
    }
}

/// Recorded change with its resource version, for watches.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) version: u64,
    pub(super) word: &'static str,
    pub(super) place: Place,
    pub(super) object: Value,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    version: u64,
    next_uid: u64,
    /// Latest discarded resource version; a watch from it or an earlier one gets 410.
    pub(super) forgotten: u64,
    pub(super) kinds: BTreeMap<Place, BTreeMap<Id, Value>>,
    pub(super) log: Vec<Told>,
}

impl Store {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Discards all recorded changes and increments the version, so that every known version has expired.
    pub(super) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
        self.log.clear();
    }

    pub(super) fn kind(&self, place: &Place) -> Result<&BTreeMap<Id, Value>, Refusal> {
        let missing = || Refusal::new(404, "NotFound", NO_SUCH_KIND);
        self.kinds.get(place).ok_or_else(missing)
    }

    pub(super) fn get(&self, place: &Place, id: &Id) -> Result<&Value, Refusal> {
        let missing = || Refusal::new(404, "NotFound", format!("{} \"{}\" not found", place.1, id.1));
        self.kind(place)?.get(id).ok_or_else(missing)
    }

    pub(super) fn create(&mut self, place: &Place, mut object: Value) -> Result<Value, Refusal> {
        let id = id_of(&object);
        if self.kind(place)?.contains_key(&id) {
            return Err(Refusal::new(
                409,
                "AlreadyExists",
                format!("{} \"{}\" already exists", place.1, id.1),
            ));
        }
        self.next_uid += 1;
        object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{:012}", self.next_uid));
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        Ok(self.store(place, id, object, "ADDED"))
    }

    /// Replaces an object if the writer's version is current.
    pub(super) fn replace(&mut self, place: &Place, id: &Id, mut object: Value) -> Result<Value, Refusal> {
        let old = self.get(place, id)?.clone();
        let sent = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if sent.is_some_and(|sent| Some(sent) != old["metadata"]["resourceVersion"].as_str()) {
            let message =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Refusal::new(409, "Conflict", message));
        }
        object["metadata"]["uid"] = old["metadata"]["uid"].clone();
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if object == old {
            return Ok(old);
        }
        Ok(self.store(place, id.clone(), object, "MODIFIED"))
    }

    /// Applies a merge patch to an object, or only to its status.
    pub(super) fn patch(
        &mut self,
        place: &Place,
        id: &Id,
        patch: &Value,
        is_status: bool,
    ) -> Result<Value, Refusal> {
        let old = self.get(place, id)?.clone();
        let mut object = old.clone();
        json_patch::merge(&mut object, patch);
        if is_status {
            let status = object["status"].take();
            let version = object["metadata"]["resourceVersion"].take();
            object = old;
            object["status"] = status;
            object["metadata"]["resourceVersion"] = version;
        }
        self.replace(place, id, object)
    }

    pub(super) fn delete(&mut self, place: &Place, id: &Id) -> Result<Value, Refusal> {
        let old = self.get(place, id)?.clone();
        self.kinds.entry(place.clone()).or_default().remove(id);
        Ok(self.tell(place, old, "DELETED"))
    }

    fn store(&mut self, place: &Place, id: Id, object: Value, word: &'static str) -> Value {
        let object = self.tell(place, object, word);
        self.kinds.entry(place.clone()).or_default().insert(id, object.clone());
        object
    }

    fn tell(&mut self, place: &Place, mut object: Value, word: &'static str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push(Told { version: self.version, word, place: place.clone(), object: object.clone() });
        object
    }
}

pub(super) fn id_of(object: &Value) -> Id {
    let of = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (of("namespace"), of("name"))
}
