//! Cache of responses by `Idempotency-Key`, so that a client that lost a response can safely repeat the
//! request.
//!
//! The cache is local to a control server; another server processes a repeated request again. There, a repeated
//! creation by name is rejected because the object exists.
//!
//! Only successful responses are cached: a rejected request changed nothing and is processed again when repeated.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use model::primitives::{
    quantity::Timestamp,
    violation::{Violation, ViolationCode},
};

use super::eviction_order::EvictionOrder;
use crate::{
    base::error::{Answer, Code, Problem},
    security::Access,
};

/// Request header with the idempotency key that the client chooses.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Response header that marks a response from the cache.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Maximum number of keys in the cache. The caller with most keys loses its oldest one first.
const KEYS_MAX: usize = 10_000;
/// Maximum total size of the cached responses in bytes. The caller with the largest responses loses its oldest one
/// first.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum age of a cached response in seconds: one day.
const AGE_MAX_SECS: i64 = 24 * 60 * 60;
/// Maximum length of an idempotency key in characters; enough for any UUID or hash.
const KEY_LENGTH_MAX: usize = 255;
/// `Retry-After` while the first request with the same key is in progress, in seconds.
const IN_FLIGHT_RETRY_SECS: u32 = 1;

/// Cache of responses by caller and idempotency key.
#[derive(Debug, Default)]
pub(crate) struct Idempotency {
    hasher: RandomState,
    held: Mutex<ResponseCache>,
}

#[derive(Debug, Default)]
struct ResponseCache {
    entries: BTreeMap<String, CacheEntry>,
    order: EvictionOrder,
}

#[derive(Debug)]
struct CacheEntry {
    fingerprint: u64,
    at: Timestamp,
    answer: Option<CachedResponse>,
}

#[derive(Debug, Clone)]
struct CachedResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Exclusive right to process a request with an idempotency key. If dropped without a response, the key can be
/// used again.
#[derive(Debug)]
struct Claim {
    store: Arc<Idempotency>,
    /// Unique key of the caller, with which `key` begins.
    caller: String,
    key: String,
    kept: bool,
}

/// Properties of a write request that may have an idempotency key.
#[derive(Debug)]
pub(crate) struct KeyedRequest<'a> {
    /// Identity and permissions of the caller; each caller has separate keys.
    pub(crate) access: &'a Access,
    /// Headers of the request, which may contain the key.
    pub(crate) headers: &'a HeaderMap,
    /// Path and query of the request.
    pub(crate) target: &'a str,
    /// Body of the request, which must be equal when a key is repeated.
    pub(crate) body: &'a [u8],
}

/// Returns the cached response for the idempotency key of a request. If there is none, or the request has no
/// key, runs `serve`; a successful response to a request with a key is cached.
pub(crate) async fn once<F: Future<Output = Answer>>(
    store: &Arc<Idempotency>,
    now: Timestamp,
    request: KeyedRequest<'_>,
    serve: F,
) -> Answer {
    let KeyedRequest { access, headers, target, body } = request;
    let Some(key) = read_key(headers)? else { return serve.await };
    // Keys are separate for each caller: the response of one caller is never sent to another.
    let caller = access.key();
    let key = format!("{caller}{key}");
    let fingerprint = store.hasher.hash_one((target, body));
    let mut claim = match store.claim(&key, fingerprint, now)? {
        ClaimResult::Replay(kept) => return Ok(replay(kept)),
        ClaimResult::First => Claim { store: Arc::clone(store), caller, key, kept: false },
    };
    let (parts, body) = serve.await?.into_parts();
    let body =
        body.collect().await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?.to_bytes();
    let kept = CachedResponse { status: parts.status, headers: parts.headers.clone(), body: body.clone() };
    claim.keep(kept);
    Ok(Response::from_parts(parts, Body::from(body)))
}

enum ClaimResult {
    First,
    Replay(CachedResponse),
}

fn read_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=KEY_LENGTH_MAX).contains(&text.len()));
    let problem = || {
        let detail =
            format!("the header `Idempotency-Key` must be 1 to {KEY_LENGTH_MAX} visible ASCII characters");
        Problem::bad_request(detail)
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(problem)
}

fn replay(kept: CachedResponse) -> Response {
    let mut response = (kept.status, kept.headers, kept.body).into_response();
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

impl Idempotency {
    fn lock(&self) -> MutexGuard<'_, ResponseCache> {
        // Every change is complete before the guard is released, so a panicking holder leaves a consistent
        // cache.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, key: &str, fingerprint: u64, now: Timestamp) -> Result<ClaimResult, Problem> {
        let mut held = self.lock();
        held.forget_old(now);
        if let Some(entry) = held.entries.get(key) {
            if entry.fingerprint != fingerprint {
                let message = "has been used for another request; use a fresh key for each request";
                let violation =
                    Violation::new("", ViolationCode::Conflict, format!("`Idempotency-Key` {message}"));
                return Err(Problem::invalid(vec![violation]));
            }
            return entry.answer.clone().map(ClaimResult::Replay).ok_or_else(|| {
                Problem::new(
                    Code::Conflict,
                    "the first request with this `Idempotency-Key` is still in progress",
                )
                .retry_after(IN_FLIGHT_RETRY_SECS)
            });
        }
        if held.entries.len() >= KEYS_MAX && !held.evict(EvictionOrder::evict_most_entries) {
            return Err(Problem::new(
                Code::TooManyRequests,
                "too many requests with an `Idempotency-Key` at once",
            )
            .retry_after(IN_FLIGHT_RETRY_SECS));
        }
        held.entries.insert(key.to_owned(), CacheEntry { fingerprint, at: now, answer: None });
        Ok(ClaimResult::First)
    }
}

impl Claim {
    fn keep(&mut self, kept: CachedResponse) {
        let mut held = self.store.lock();
        if let Some(entry) = held.entries.get_mut(&self.key) {
            let bytes = kept.body.len();
            entry.answer = Some(kept);
            held.order.push(&self.caller, &self.key, bytes);
        }
        while held.order.bytes() > BYTES_MAX && held.evict(EvictionOrder::evict_most_bytes) {}
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.store.lock().entries.remove(&self.key);
        }
    }
}

impl ResponseCache {
    fn forget_old(&mut self, now: Timestamp) {
        let Self { entries, order } = self;
        let is_old = |key: &str| {
            entries.get(key).is_none_or(|entry| now.unix_seconds() - entry.at.unix_seconds() >= AGE_MAX_SECS)
        };
        for key in order.evict_old(is_old) {
            entries.remove(&key);
        }
    }

    /// Removes the entry that `choose` takes out of the order. Returns false if no entry can be removed.
    fn evict(&mut self, choose: impl FnOnce(&mut EvictionOrder) -> Option<String>) -> bool {
        let evicted = choose(&mut self.order);
        evicted.is_some_and(|key| self.entries.remove(&key).is_some())
    }
}
