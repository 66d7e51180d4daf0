//! Execution of a plan: writes objects in batches, and deletes the objects of a kind concurrently. If the server rejects a batch,
//! the rejected object is found by the fields that the rejection names, or else by bisection, and the rest of
//! the batch is written without it.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use model::{
    kinds::resource::{Object, ObjectKey},
    primitives::{name::Label, quantity::Revision},
};
use serde_json::Value;

use super::{
    mirror::{Own, own},
    plan::{Write, batches},
};
use crate::control::{Control, Error, Problem, Request, is_final};

/// Maximum number of concurrent removals. Each is a write of its own at the server, which has other clients.
const REMOVALS_MAX: usize = 16;

/// Outcome of a write or removal of one object.
#[derive(Debug)]
pub(super) enum Fate {
    /// The write succeeded, or the object was already as desired. Contains the object as stored by the
    /// server.
    Written {
        /// Object as the server stores it now.
        own: Box<Own>,
        /// True if the write created a new revision.
        is_changed: bool,
        /// Desired object that was written.
        wanted: Box<Object>,
    },
    /// The object was deleted; contains the revision of the deletion, or the maximum revision if the object
    /// did not exist anymore.
    Removed(Revision),
    /// The server rejected the write or removal; contains the reason.
    Refused {
        /// Reason that the server gives for the rejection.
        why: String,
        /// True if the server rejected the change because it would remove too much at once; the operator can
        /// confirm such a change.
        by_guard: bool,
        /// True if the object has a newer state, which the watch will deliver.
        is_stale: bool,
    },
}

/// Outcome of the writes or removals of a plan. Partial if a failure stopped them.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Outcome of each write or removal, by object.
    pub(super) fates: Vec<(ObjectKey, Fate)>,
    /// Failure, such as an unreachable server, that stopped the remaining changes.
    pub(super) failure: Option<String>,
}

/// Context of the writes of one plan.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    /// Connection to the servers.
    pub(super) control: &'a Control,
    /// Name of the source.
    pub(super) source: &'a Label,
    /// Keys of the changes that the operator has confirmed.
    pub(super) confirmed: &'a BTreeSet<ObjectKey>,
    /// True to request a dry run, in which the server changes nothing.
    pub(super) is_dry_run: bool,
}

impl Writer<'_> {
    /// Creates and replaces the objects in batches. Returns the outcome of each object.
    pub(super) async fn write(&self, writes: Vec<Write>) -> Outcome {
        let mut outcome = Outcome::default();
        // Confirmed objects are written separately, because the confirmation covers nothing else.
        let (confirmed, others): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|write| self.confirmed.contains(&write.key));
        let confirmed = batches(confirmed).into_iter().map(|batch| (batch, true));
        let others = batches(others).into_iter().map(|batch| (batch, false));
        let mut todo: Vec<_> = others.chain(confirmed).collect();
        todo.reverse();
        while let Some((batch, is_confirmed)) = todo.pop() {
            match self.apply(&batch, is_confirmed).await {
                Ok(results) => outcome.fates.extend(self.fates(batch, results)),
                Err(Error::Rejected(problem)) if is_final(&problem) => {
                    let rest = refused(batch, &problem, &mut outcome.fates);
                    todo.extend(rest.into_iter().rev().map(|batch| (batch, is_confirmed)));
                }
                Err(failure) => {
                    outcome.failure = Some(failure.to_string());
                    return outcome;
                }
            }
        }
        outcome
    }

    /// Deletes objects, each only if its entity tag on the server is still the given one. Objects of one kind, which do not
    /// refer to each other, are deleted concurrently; the next kind follows when all of them are gone. Returns the outcome of
    /// each object. After a failure, the outcome of up to [`REMOVALS_MAX`] sent requests is unknown.
    pub(super) async fn remove(&self, removals: Vec<(ObjectKey, String)>) -> Outcome {
        let mut outcome = Outcome::default();
        for same_kind in removals.chunk_by(|(a, _), (b, _)| a.kind == b.kind) {
            let requests = same_kind.iter().map(|(key, tag)| self.remove_one(key.clone(), tag.clone()));
            let mut removed = futures::stream::iter(requests).buffer_unordered(REMOVALS_MAX);
            while let Some((key, fate)) = removed.next().await {
                match fate {
                    Ok(fate) => outcome.fates.push((key, fate)),
                    Err(failure) => {
                        outcome.failure = Some(failure.to_string());
                        return outcome;
                    }
                }
            }
        }
        outcome
    }

    async fn remove_one(&self, key: ObjectKey, tag: String) -> (ObjectKey, Result<Fate, Error>) {
        let request = Request::delete(key.path())
            .if_match(tag)
            .query("dryRun", self.is_dry_run.then_some("true"))
            .query("confirm", self.confirmed.contains(&key).then_some("true"));
        let fate = match self.control.send(&request).await {
            Ok(answer) => Ok(Fate::Removed(revision_of(&answer))),
            Err(Error::Rejected(problem)) if problem.status == 404 => Ok(Fate::Removed(Revision(u64::MAX))),
            Err(Error::Rejected(problem)) if is_final(&problem) => Ok(refusal(&problem, problem.to_string())),
            Err(failure) => Err(failure),
        };
        (key, fate)
    }

    async fn apply(&self, batch: &[Write], is_confirmed: bool) -> Result<Vec<Value>, Error> {
        let mut body = vec![b'['];
        for (at, write) in batch.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&write.json);
        }
        body.push(b']');
        let request = Request::post("/v1/apply")
            .body("application/json", body)
            .query("applySet", Some(self.source.as_str()))
            .query("adopt", Some("false"))
            .query("dryRun", self.is_dry_run.then_some("true"))
            .query("confirm", is_confirmed.then_some("true"));
        let mut answer = self.control.send(&request).await?;
        match answer.get_mut("results").map(Value::take) {
            Some(Value::Array(results)) if results.len() >= batch.len() => Ok(results),
            _ => Err(Error::Unexpected {
                url: self.control.url(),
                found: "the response to an apply contains no results".to_owned(),
            }),
        }
    }

    fn fates(&self, batch: Vec<Write>, results: Vec<Value>) -> Vec<(ObjectKey, Fate)> {
        let fate = |write: Write, mut result: Value| {
            let object = result.get_mut("object").map(Value::take).unwrap_or_default();
            let is_changed = result.get("action").and_then(Value::as_str) != Some("unchanged");
            let fate = match own(self.source, object) {
                Some((_, own)) => {
                    Fate::Written { own: Box::new(own), is_changed, wanted: Box::new(write.wanted) }
                }
                None => Fate::Refused {
                    why: "the response does not contain the object".to_owned(),
                    by_guard: false,
                    is_stale: true,
                },
            };
            (write.key, fate)
        };
        batch.into_iter().zip(results).map(|(write, result)| fate(write, result)).collect()
    }
}

/// Records the rejection of the objects that a problem document names. Returns the remaining objects as
/// batches to send again.
fn refused(batch: Vec<Write>, problem: &Problem, fates: &mut Vec<(ObjectKey, Fate)>) -> Vec<Vec<Write>> {
    let mut named = std::collections::BTreeMap::<usize, Vec<String>>::new();
    for violation in &problem.violations {
        if let Some(item) = violation.item().filter(|item| *item < batch.len()) {
            named.entry(item).or_default().push(violation.to_string());
        }
    }
    if named.is_empty() {
        return by_halves(batch, problem, fates);
    }
    let mut rest = Vec::new();
    for (at, write) in batch.into_iter().enumerate() {
        match named.remove(&at) {
            Some(reasons) => fates.push((write.key, refusal(problem, reasons.join("; ")))),
            None => rest.push(write),
        }
    }
    if rest.is_empty() { Vec::new() } else { vec![rest] }
}

fn by_halves(
    mut batch: Vec<Write>,
    problem: &Problem,
    fates: &mut Vec<(ObjectKey, Fate)>,
) -> Vec<Vec<Write>> {
    // Bisection is useless if writing is forbidden altogether.
    if batch.len() <= 1 || problem.status == 403 {
        fates.extend(batch.into_iter().map(|write| (write.key, refusal(problem, problem.to_string()))));
        return Vec::new();
    }
    let second = batch.split_off(batch.len() / 2);
    vec![batch, second]
}

fn refusal(problem: &Problem, why: String) -> Fate {
    Fate::Refused {
        why,
        by_guard: problem.code == "GuardHeld",
        is_stale: matches!(problem.code.as_str(), "Conflict" | "PreconditionFailed"),
    }
}

fn revision_of(answer: &Value) -> Revision {
    let text = answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Revision(text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
