//! Computes the changes that make the server's objects match the desired objects of a source. Pure: only keys
//! that may differ are compared.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    admission::admit::PRUNE_FREE,
    kinds::resource::{Kind, Object, ObjectKey},
    primitives::{name::Label, quantity::Revision},
};

use super::{
    keep::{is_as_prepared, prepared},
    mirror::Mirror,
};
use crate::wanted::DesiredObjects;

/// Maximum number of objects per write. Large enough for a first synchronization in a few requests, small
/// enough to make retries after a rejection cheap.
pub const BATCH_OBJECTS_MAX: usize = 500;
/// Maximum size of a write in bytes; half of the server's limit.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Inputs of a plan other than the objects: limits, and the operator's confirmations.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Name of the source, used as its apply set and label value.
    pub source: &'a Label,
    /// Maximum number of removals at once without confirmation, not counting [`Self::uncounted`]; by default 5, or a fifth of
    /// the source's counted objects if that is more.
    pub prune_limit: Option<usize>,
    /// True to accept a source without any objects; otherwise every removal for such a source needs
    /// confirmation.
    pub allow_empty: bool,
    /// Kind whose removals are neither counted nor held, as long as the source still has any of its objects on the server:
    /// the instances of an application come and go in large numbers.
    pub uncounted: Option<Kind>,
    /// Keys of the objects whose removal the operator has confirmed.
    pub confirmed: &'a BTreeSet<ObjectKey>,
    /// Objects that the server reported as unchanged, although they differ from the desired form.
    pub settled: &'a BTreeMap<ObjectKey, SettledObject>,
}

/// Desired object that the server considers equal to a revision of the stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledObject {
    /// Desired object for which the server reported no change.
    pub wanted: Object,
    /// Revision at which the server reported the object as unchanged.
    pub revision: Revision,
}

/// Object that a plan creates or replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Key of the object.
    pub key: ObjectKey,
    /// True if the plan creates the object; false if it replaces the object.
    pub is_new: bool,
    /// Request body of the object in JSON.
    pub json: Vec<u8>,
    /// Desired object as given by the source.
    pub wanted: Object,
}

/// Planned changes: all writes in order, followed by all removals in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects to create or replace; an object comes before the ones that refer to it. New NetworkPolicies follow new
    /// Workloads.
    pub writes: Vec<Write>,
    /// Objects to remove; an object comes after the ones that refer to it.
    pub removals: Vec<ObjectKey>,
    /// Objects whose removal waits for confirmation.
    pub held: BTreeSet<ObjectKey>,
    /// Undesired objects that are kept because the source has not been read completely.
    pub waiting: BTreeSet<ObjectKey>,
}

/// Plans the changes that make the objects on the server equal to the desired ones. Only the `dirty` keys are
/// compared; all other objects are known to be equal.
#[must_use]
pub fn plan<'a>(
    rules: Rules<'_>,
    wanted: &DesiredObjects,
    mirror: &Mirror,
    dirty: impl Iterator<Item = &'a ObjectKey>,
) -> Plan {
    let mut plan = Plan::default();
    let mut removals = BTreeSet::new();
    for key in dirty {
        let current = mirror.get(key).map(|own| &*own.object);
        match (wanted.objects.get(key), current) {
            (Some(object), current) => plan.writes.extend(write(rules, key, object, current)),
            (None, Some(_)) => {
                removals.insert(key.clone());
            }
            (None, None) => {}
        }
    }
    if wanted.is_complete {
        plan.held = held(rules, wanted, mirror, &removals);
        plan.removals = removals.iter().rev().filter(|key| !plan.held.contains(*key)).cloned().collect();
    } else {
        plan.waiting = removals;
    }
    plan.writes.sort_by(|a, b| (stage(a), &a.key).cmp(&(stage(b), &b.key)));
    plan
}

/// Returns the position of a write among writes of other kinds. A new NetworkPolicy comes after the new Workloads: written
/// before them, it would end established connections with peers that it accepts and that are not known yet. All other writes
/// have the order of the kinds, so that a changed policy is in force before the Workloads that it selects.
fn stage(write: &Write) -> u8 {
    let kind = write.key.kind;
    if write.is_new && kind == Kind::Workload {
        1
    } else if write.is_new && kind == Kind::NetworkPolicy {
        2
    } else if kind < Kind::Workload {
        0
    } else {
        3
    }
}

fn write(rules: Rules<'_>, key: &ObjectKey, wanted: &Object, current: Option<&Object>) -> Option<Write> {
    let object = prepared(rules.source, wanted, current);
    let is_done = current.is_some_and(|current| {
        let is_settled = |settled: &SettledObject| {
            settled.revision == current.metadata.revision() && settled.wanted == *wanted
        };
        is_as_prepared(&object, current) || rules.settled.get(key).is_some_and(is_settled)
    });
    (!is_done).then(|| Write {
        key: key.clone(),
        is_new: current.is_none(),
        json: secret_json(&object),
        wanted: wanted.clone(),
    })
}

/// Returns the published form of an object as JSON, plus the secrets, which responses of the server omit: the password
/// of a BgpPeer, the keys of a DnsZone, and the private key of a Certificate.
fn secret_json(object: &Object) -> Vec<u8> {
    let mut json = object.to_json();
    let password = object.as_bgp_peer().and_then(|peer| peer.password.as_ref());
    if let Some(password) = password {
        json["spec"]["password"] = password.reveal().into();
    }
    let keys = object.as_dns_zone().into_iter().flat_map(|zone| &zone.keys);
    for (index, key) in keys.enumerate() {
        if let Some(secret) = &key.secret {
            json["spec"]["keys"][index]["secret"] = secret.reveal().into();
        }
    }
    let key = object.as_certificate().and_then(|certificate| certificate.private_key.as_ref());
    if let Some(key) = key {
        json["spec"]["privateKey"] = key.reveal().into();
    }
    json.to_string().into_bytes()
}

/// Returns the removals that need the operator's confirmation: all unconfirmed ones if the source has no objects and
/// [`Rules::allow_empty`] is false, and the counted ones if their number exceeds the limit; otherwise none.
fn held(
    rules: Rules<'_>,
    wanted: &DesiredObjects,
    mirror: &Mirror,
    removals: &BTreeSet<ObjectKey>,
) -> BTreeSet<ObjectKey> {
    let mut unasked: BTreeSet<_> = removals.difference(rules.confirmed).cloned().collect();
    // Most plans remove nothing, and the rest looks at all objects.
    if unasked.is_empty() || (wanted.objects.is_empty() && !rules.allow_empty) {
        return unasked;
    }
    let is_uncounted = |key: &ObjectKey| rules.uncounted == Some(key.kind);
    let has_some = mirror.objects().keys().any(|key| is_uncounted(key) && wanted.objects.contains_key(key));
    let is_counted = |key: &ObjectKey| !(has_some && is_uncounted(key));
    unasked.retain(is_counted);
    let total = || mirror.objects().keys().filter(|key| is_counted(key)).count();
    let limit = rules.prune_limit.unwrap_or_else(|| PRUNE_FREE.max(total() / 5));
    if unasked.len() > limit { unasked } else { BTreeSet::new() }
}

/// Splits writes into batches, one per request, of at most [`BATCH_OBJECTS_MAX`] objects and
/// [`BATCH_BYTES_MAX`] bytes. A larger object forms a batch of its own.
#[must_use]
pub fn batches(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let (mut batches, mut bytes) = (Vec::<Vec<Write>>::new(), 0);
    for write in writes {
        bytes += write.json.len() + 1;
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_OBJECTS_MAX && bytes <= BATCH_BYTES_MAX => batch.push(write),
            Some(_) | None => {
                bytes = write.json.len() + 1;
                batches.push(vec![write]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests;
