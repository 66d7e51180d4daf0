//! Problem responses for writes that were rejected or failed.

use model::{
    admission::admit::{GuardRefusal, Refusal, RemovalGuard},
    kinds::resource::{Kind, ObjectKey},
    primitives::{
        name::Namespace,
        violation::{Violation, ViolationCode},
    },
};

use crate::{
    base::{
        error::{Code, Problem},
        etag,
    },
    security::{Access, Verb},
    write::writer::WriteError,
};
/// `Retry-After` if the queue of the writer is full, in seconds.
const BUSY_RETRY_SECS: u32 = 1;

/// `Retry-After` if the store fails, in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 5;

fn forbidden(violations: Vec<Violation>, access: &Access) -> Problem {
    match access.refuse_all(violations) {
        Err(problem) => problem,
        Ok(()) => Problem::new(Code::Forbidden, "this request is not allowed"),
    }
}

/// Returns the problem response for a write that failed, naming only objects that the caller may see.
pub(crate) fn problem(error: WriteError, access: &Access) -> Problem {
    match error {
        WriteError::Contended => Problem::new(
            Code::Unavailable,
            "other control servers committed first in every attempt; nothing was changed",
        )
        .retry_after(BUSY_RETRY_SECS),
        WriteError::Refused(refusal) => refused(refusal, access),
        WriteError::Forbidden(violations) => forbidden(violations, access),
        WriteError::Busy => {
            Problem::new(Code::TooManyRequests, "too many writes are queued").retry_after(BUSY_RETRY_SECS)
        }
        WriteError::TooLarge(detail) => Problem::new(Code::PayloadTooLarge, detail),
        WriteError::Unavailable => Problem::new(
            Code::Unavailable,
            "the store did not confirm the write; whether it happened is unknown",
        )
        .hint("read the object before you repeat the write; /readyz reports the state of the store")
        .retry_after(UNAVAILABLE_RETRY_SECS),
    }
}

/// Returns the problem response for a write that admission rejected, naming only objects that the caller may see.
pub(crate) fn refused(refusal: Refusal, access: &Access) -> Problem {
    match refusal {
        Refusal::NotFound(key) => Problem::new(Code::NotFound, format!("there is no {key}")),
        Refusal::AlreadyExists(object) => {
            Problem::new(Code::AlreadyExists, format!("{} exists", object.key()))
                .hint("replace it with PUT and `If-Match`, or change it with PATCH")
                .current(etag::current(&object))
        }
        Refusal::PreconditionFailed(object) => etag::failed(&object),
        Refusal::Conflict(object) => {
            let detail = format!(
                "`metadata.resourceVersion` or `metadata.uid` is not that of {}, which is at revision {}",
                object.key(),
                object.metadata.revision()
            );
            Problem::new(Code::Conflict, detail)
                .hint("read it again and repeat the change on the new state, or omit both fields")
                .current(etag::current(&object))
        }
        Refusal::Invalid(violations) => {
            let may_see =
                |namespace: &Namespace| access.may_object(Verb::Get, Kind::Service, Some(namespace));
            Problem::invalid(violations.into_iter().map(|one| one.redacted(may_see)).collect())
        }
        Refusal::PruneLimit { would_prune, limit } => {
            // The caller may lack the permission to see some members of the set.
            let is_named =
                |key: &&ObjectKey| access.may_object(Verb::Delete, key.kind, key.namespace.as_ref());
            let detail =
                format!("the apply set would lose {} objects; the limit is {limit}", would_prune.len());
            Problem::new(Code::PruneLimit, detail)
                .hint("check `wouldPrune`; to remove these objects, send `pruneLimit`")
                .would_prune(would_prune.iter().filter(is_named).map(ToString::to_string).collect())
        }
        Refusal::GuardHeld(held) => guard_held(held, access),
        Refusal::QuotaExceeded(violations) => {
            let detail = match &violations[..] {
                [one] => one.message.clone(),
                several => format!("{} quotas are exceeded; see `errors`", several.len()),
            };
            Problem::new(Code::QuotaExceeded, detail)
                .hint("GET /v1/namespaces/NAMESPACE/quota returns the use and the limits")
                .errors(violations)
        }
        Refusal::TooManyOperations(count) => {
            let limit = model::admission::admit::OPERATIONS_MAX;
            let message = format!("must be at most {limit} objects in one request, found {count}");
            Problem::invalid(vec![Violation::new("/items", ViolationCode::TooLong, message)])
        }
    }
}

fn guard_held(held: GuardRefusal, access: &Access) -> Problem {
    let detail = held_in_words(&held);
    // Removed members of a set may be objects that the caller may not see.
    let is_named = access.may_object(Verb::List, Kind::Service, None);
    Problem::new(Code::GuardHeld, detail)
        .hint("check `wouldRemove`; to remove these objects, repeat the request with `?confirm=true`")
        .would_remove(if is_named { held.named } else { Vec::new() })
}

/// Describes a removal that a guard has stopped, including the limit and the flag by which the limit is set.
pub(crate) fn held_in_words(held: &GuardRefusal) -> String {
    let GuardRefusal { guard, named: _, removed, total, limit_percent } = held;
    let (what, flag) = match guard {
        RemovalGuard::Vips => ("virtual addresses", "--guard-vips-percent"),
        RemovalGuard::Endpoints => ("endpoint addresses", "--guard-endpoints-percent"),
    };
    format!(
        "it would remove {removed} of {total} {what} at once; the limit is {limit_percent} % ({flag} of \
         the server)"
    )
}
