//! Listings in pages that all show one state.
//!
//! A page token names the state by its revision; the state itself, which shares almost everything with its neighbours,
//! is held for a while. A token is not secret and not trusted: it can only choose among states that everybody may read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use model::{
    bgp::listing::Part,
    primitives::quantity::{Position, Timestamp},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    base::error::{Code, Problem},
    state::published::Published,
};

/// Objects of a page when the client does not say.
pub(crate) const LIMIT_DEFAULT: u32 = 500;
/// Objects of a page at most: some mebibytes.
pub(crate) const LIMIT_MAX: u32 = 5000;
/// States held for listings that go on; the oldest goes first.
const STATES_MAX: usize = 64;
/// Time a state is held after it was last asked for, in seconds.
const STATE_HELD_SECS: i64 = 300;

/// The states held.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    states: Mutex<BTreeMap<Position, Held>>,
}

#[derive(Debug)]
struct Held {
    published: Arc<Published>,
    used_at: Timestamp,
}

/// What a page token says.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// The state.
    p: Position,
    /// The last key shown.
    k: String,
    /// What was listed, as a hash: a token does not continue another listing.
    q: u64,
}

/// Where a listing goes on.
#[derive(Debug)]
pub(crate) struct Resume {
    /// The state.
    pub(crate) published: Arc<Published>,
    /// The last key shown.
    pub(crate) after: Option<String>,
}

/// One page.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects.
    pub(crate) items: Vec<Value>,
    /// The last key shown, if there is more.
    pub(crate) more_after: Option<String>,
    /// How many there are beyond, if that is known.
    pub(crate) remaining: Option<usize>,
}

impl Pages {
    /// Finds the state that a listing shows: that of the token, or the newest.
    pub(crate) fn resume(
        &self,
        newest: Arc<Published>,
        token: Option<&str>,
        query: &impl Hash,
        now: Timestamp,
    ) -> Result<Resume, Problem> {
        let Some(token) = token else { return Ok(Resume { published: newest, after: None }) };
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let decoded = decoded.and_then(|bytes| serde_json::from_slice::<Token>(&bytes).ok());
        let Token { p, k, q } = decoded
            .ok_or_else(|| Problem::bad_request("`continue` must be a token that this API has given out"))?;
        if q != fingerprint(query) {
            return Err(Problem::bad_request(
                "`continue` belongs to a listing with another path or selector",
            ));
        }
        if p == newest.position() {
            return Ok(Resume { published: newest, after: Some(k) });
        }
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let held = states.get_mut(&p).ok_or_else(|| {
            let detail = format!(
                "the state at {p}, which this listing shows, is not held by this control server: it is too old, or another \
                 control server gave the token"
            );
            Problem::new(Code::PageExpired, detail).hint("list again from the start")
        })?;
        held.used_at = now;
        Ok(Resume { published: Arc::clone(&held.published), after: Some(k) })
    }

    /// Writes the envelope of a list, and holds its state if there is more to come.
    pub(crate) fn envelope(
        &self,
        kind: &str,
        published: &Arc<Published>,
        page: Page,
        query: &impl Hash,
        now: Timestamp,
    ) -> Value {
        let Page { items, more_after, remaining } = page;
        let position = published.position();
        let mut metadata = json!({ "resourceVersion": position.revision.to_string(), "position": position });
        if let Some(key) = more_after {
            metadata["continue"] = json!(self.token(published, key, query, now));
            if let Some(remaining) = remaining {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": kind, "metadata": metadata, "items": items })
    }

    /// The token with which a listing goes on behind a key, and holds its state until then.
    pub(crate) fn token(
        &self,
        published: &Arc<Published>,
        key: String,
        query: &impl Hash,
        now: Timestamp,
    ) -> String {
        let token = Token { p: published.position(), k: key, q: fingerprint(query) };
        let token = serde_json::to_vec(&token).expect("a token serialises");
        self.hold(Arc::clone(published), now);
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    fn hold(&self, published: Arc<Published>, now: Timestamp) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(published.position(), Held { published, used_at: now });
        while states.len() > STATES_MAX {
            states.pop_first();
        }
    }

    /// Lets go of states that nobody has asked for in a while.
    pub(crate) fn forget_old(&self, now: Timestamp) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, held| now.unix_seconds() - held.used_at.unix_seconds() < STATE_HELD_SECS);
    }
}

/// A listing of the moment: no state is held, each page shows what is known when it is asked for.
pub(crate) struct Moment {
    kind: &'static str,
    query: u64,
}

/// What a page token of such a listing says.
#[derive(Debug, Serialize, Deserialize)]
struct MomentToken<K> {
    /// The last key shown.
    k: K,
    /// What was listed, as a hash.
    q: u64,
}

impl Moment {
    /// A listing of a kind; `query` tells it from others.
    pub(crate) fn new(kind: &'static str, query: &str) -> Self {
        Self { kind, query: fingerprint(&(kind, query)) }
    }

    /// The last key shown before this page.
    pub(crate) fn resume<K: DeserializeOwned>(&self, token: Option<&str>) -> Result<Option<K>, Problem> {
        let Some(token) = token else { return Ok(None) };
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let decoded = decoded.and_then(|bytes| serde_json::from_slice::<MomentToken<K>>(&bytes).ok());
        match decoded {
            Some(MomentToken { k, q }) if q == self.query => Ok(Some(k)),
            Some(_) => Err(Problem::bad_request(
                "`continue` belongs to a listing with another path or other filters",
            )),
            None => Err(Problem::bad_request("`continue` must be a token that this API has given out")),
        }
    }

    /// Writes the envelope of a list.
    pub(crate) fn envelope<T: Serialize, K: Serialize>(&self, part: &Part<T, K>) -> Value {
        let Part { items, more_after } = part;
        let mut metadata = json!({});
        if let Some(k) = more_after {
            let token = serde_json::to_vec(&MomentToken { k, q: self.query }).expect("a token serialises");
            metadata["continue"] = json!(BASE64_URL_SAFE_NO_PAD.encode(token));
        }
        let kind = self.kind;
        json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": kind, "metadata": metadata, "items": items })
    }
}

/// A hash that is the same in every process, because tokens outlive a restart.
fn fingerprint(query: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.hash(&mut hasher);
    hasher.finish()
}
