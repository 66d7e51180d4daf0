//! Decides what is to be written so that Tidegate has what a source wants. Pure: what is looked at is what may differ, never
//! everything.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    admission::admit::PRUNE_FREE,
    kinds::resource::{Object, ObjectKey},
    primitives::{name::Label, quantity::Revision},
};

use super::{
    keep::{is_as_prepared, prepared},
    mirror::Mirror,
};
use crate::wanted::Wanted;

/// Objects in one write. Large enough that a first synchronisation is a few requests, small enough that a refusal of one
/// object has little to repeat.
pub const BATCH_OBJECTS_MAX: usize = 500;
/// Bytes of one write; half of what the server reads.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What rests on more than the objects themselves.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The source.
    pub source: &'a Label,
    /// Removals at once that nobody needs to confirm; five or a fifth of the objects, as the server's, without.
    pub prune_limit: Option<usize>,
    /// Whether a source without any object is believed.
    pub allow_empty: bool,
    /// What somebody has confirmed.
    pub confirmed: &'a BTreeSet<ObjectKey>,
    /// What the server has said to be so already, although it looks different from here.
    pub settled: &'a BTreeMap<ObjectKey, Settled>,
}

/// A wish that is fulfilled by an object in some state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What is wanted.
    pub wanted: Object,
    /// The state of the object.
    pub revision: Revision,
}

/// An object to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which.
    pub key: ObjectKey,
    /// Whether there is none yet.
    pub is_new: bool,
    /// Its JSON.
    pub json: Vec<u8>,
    /// What is wanted, as the source says it.
    pub wanted: Object,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects to make or replace; what others refer to comes first.
    pub writes: Vec<Write>,
    /// Objects to remove; what refers to others comes first.
    pub removals: Vec<ObjectKey>,
    /// Objects that are not removed until somebody confirms it.
    pub held: BTreeSet<ObjectKey>,
    /// Objects that are not wanted, but the source has not been read to its end.
    pub waiting: BTreeSet<ObjectKey>,
}

/// Decides about the objects that may differ.
#[must_use]
pub fn plan<'a>(
    rules: Rules<'_>,
    wanted: &Wanted,
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
    plan.writes.sort_by(|a, b| a.key.cmp(&b.key));
    plan
}

fn write(rules: Rules<'_>, key: &ObjectKey, wanted: &Object, current: Option<&Object>) -> Option<Write> {
    let object = prepared(rules.source, wanted, current);
    let is_done = current.is_some_and(|current| {
        let is_settled =
            |settled: &Settled| settled.revision == current.metadata.revision() && settled.wanted == *wanted;
        is_as_prepared(&object, current) || rules.settled.get(key).is_some_and(is_settled)
    });
    (!is_done).then(|| Write {
        key: key.clone(),
        is_new: current.is_none(),
        json: secret_json(&object),
        wanted: wanted.clone(),
    })
}

/// The published form, with the secrets that are written and never shown.
fn secret_json(object: &Object) -> Vec<u8> {
    let mut json = object.to_json();
    let password = object.as_bgp_peer().and_then(|peer| peer.password.as_ref());
    if let Some(password) = password {
        json["spec"]["password"] = password.reveal().into();
    }
    json.to_string().into_bytes()
}

/// The removals that are too many, or come from a source that has lost everything.
fn held(
    rules: Rules<'_>,
    wanted: &Wanted,
    mirror: &Mirror,
    removals: &BTreeSet<ObjectKey>,
) -> BTreeSet<ObjectKey> {
    let unasked: BTreeSet<_> = removals.difference(rules.confirmed).cloned().collect();
    let limit = rules.prune_limit.unwrap_or_else(|| PRUNE_FREE.max(mirror.objects().len() / 5));
    let has_lost_everything = wanted.objects.is_empty() && !rules.allow_empty;
    if unasked.len() > limit || has_lost_everything { unasked } else { BTreeSet::new() }
}

/// Splits writes into requests of a bounded size.
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
