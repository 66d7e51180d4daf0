//! Paginated listings over a consistent state.
//!
//! A continue token contains the position of the listed state. The server keeps this state for a while; kept
//! states share most of their memory. A token is neither secret nor trusted: it can only select among states
//! that every caller may read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    iter::Peekable,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use model::{
    bgp::listing::ListPage,
    primitives::quantity::{Position, Timestamp},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    base::error::{Code, Problem},
    state::published::Published,
};

/// Default number of objects on a page.
pub(crate) const LIMIT_DEFAULT: u32 = 500;
/// Maximum number of objects on a page.
pub(crate) const LIMIT_MAX: u32 = 5000;
/// Maximum size of the objects on a page in bytes, as JSON without spaces. A page ends before the object that does
/// not fit, but has at least one object.
pub(crate) const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum number of states kept for further pages; the oldest is evicted first.
const STATES_MAX: usize = 64;
/// Time in seconds for which a state is kept after the last page that used it.
const STATE_HELD_SECS: i64 = 300;

/// Published states that are kept for further pages of listings.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    states: Mutex<BTreeMap<Position, PagedState>>,
}

#[derive(Debug)]
struct PagedState {
    published: Arc<Published>,
    used_at: Timestamp,
}

/// Contents of a continue token.
#[derive(Debug, Serialize, Deserialize)]
struct PageToken {
    /// Position of the listed state.
    p: Position,
    /// Key of the last object on the page.
    k: String,
    /// Hash of the query, so that a token is accepted only for the same query.
    q: u64,
}

/// State and key at which a page starts.
#[derive(Debug)]
pub(crate) struct Resume {
    /// State whose objects are listed.
    pub(crate) published: Arc<Published>,
    /// Key after which the page starts; `None` for the first page.
    pub(crate) after: Option<String>,
}

/// Page of a listing.
#[derive(Debug)]
pub(crate) struct Page {
    /// Rendered objects of the page.
    pub(crate) items: Vec<Value>,
    /// Key of the last object on the page if further objects follow, else `None`.
    pub(crate) more_after: Option<String>,
    /// Number of objects after this page, if known.
    pub(crate) remaining: Option<usize>,
}

/// Remaining room on a page of a listing.
#[derive(Debug)]
pub(crate) struct PageRoom {
    items: usize,
    bytes: usize,
    is_empty: bool,
}

impl PageRoom {
    /// Creates an empty page with room for a number of items, and for [`PAGE_BYTES_MAX`] bytes.
    pub(crate) const fn of(items: usize) -> Self {
        Self { items, bytes: PAGE_BYTES_MAX, is_empty: true }
    }

    /// Returns true if the page has its maximum number of items.
    pub(crate) const fn is_full(&self) -> bool {
        self.items == 0
    }

    /// Adds an item to the page. Returns false if the item does not fit.
    pub(crate) fn add(&mut self, item: &impl Serialize) -> bool {
        let bytes = json_length(item);
        if self.items == 0 || (bytes > self.bytes && !self.is_empty) {
            return false;
        }
        *self = Self { items: self.items - 1, bytes: self.bytes.saturating_sub(bytes), is_empty: false };
        true
    }
}

/// Takes the items of a page from an iterator and renders them. Returns the rendered items, and the last one
/// taken.
pub(crate) fn take_page<T>(
    rest: &mut Peekable<impl Iterator<Item = T>>,
    limit: usize,
    render: impl Fn(&T) -> Value,
) -> (Vec<Value>, Option<T>) {
    let (mut room, mut items, mut last) = (PageRoom::of(limit), Vec::new(), None);
    while !room.is_full() {
        let Some(item) = rest.peek().map(&render) else { break };
        if !room.add(&item) {
            break;
        }
        items.push(item);
        last = rest.next();
    }
    (items, last)
}

/// Shortens a page of live data to [`PAGE_BYTES_MAX`]. `key_of` returns the key of a row for the continue token.
pub(crate) fn shortened<T: Serialize, K>(part: ListPage<T, K>, key_of: impl Fn(&T) -> K) -> ListPage<T, K> {
    let ListPage { mut items, more_after } = part;
    let mut room = PageRoom::of(items.len());
    match items.iter().position(|item| !room.add(item)) {
        None => ListPage { items, more_after },
        Some(end) => {
            items.truncate(end);
            ListPage { more_after: items.last().map(key_of), items }
        }
    }
}

/// Returns the length of a value as JSON without spaces.
fn json_length(value: &impl Serialize) -> usize {
    /// Writer that counts bytes.
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that cannot be serialized fails later, when the response is rendered.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

impl Pages {
    /// Returns the state that a page lists, and the key after which the page starts: both from the continue
    /// token, or the newest state from the first key. Returns a problem if the token is invalid or its state
    /// is no longer kept.
    pub(crate) fn resume(
        &self,
        newest: Arc<Published>,
        token: Option<&str>,
        query: &impl Hash,
        now: Timestamp,
    ) -> Result<Resume, Problem> {
        let Some(token) = token else { return Ok(Resume { published: newest, after: None }) };
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let decoded = decoded.and_then(|bytes| serde_json::from_slice::<PageToken>(&bytes).ok());
        let PageToken { p, k, q } =
            decoded.ok_or_else(|| Problem::bad_request("`continue` must be a token returned by this API"))?;
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
                "the state at {p} of this listing is not available at this control server: it is too \
                 old, or another control server issued the token"
            );
            Problem::new(Code::PageExpired, detail).hint("list again from the start")
        })?;
        held.used_at = now;
        Ok(Resume { published: Arc::clone(&held.published), after: Some(k) })
    }

    /// Creates the response with a page of a list, and keeps the state if another page follows.
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

    /// Returns the continue token for the next page, and keeps the state for it.
    pub(crate) fn token(
        &self,
        published: &Arc<Published>,
        key: String,
        query: &impl Hash,
        now: Timestamp,
    ) -> String {
        let token = PageToken { p: published.position(), k: key, q: fingerprint(query) };
        let token = serde_json::to_vec(&token).expect("a token serialises");
        self.hold(Arc::clone(published), now);
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    fn hold(&self, published: Arc<Published>, now: Timestamp) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(published.position(), PagedState { published, used_at: now });
        while states.len() > STATES_MAX {
            states.pop_first();
        }
    }

    /// Drops the states that no page has used for a while.
    pub(crate) fn forget_old(&self, now: Timestamp) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, held| now.unix_seconds() - held.used_at.unix_seconds() < STATE_HELD_SECS);
    }
}

/// Listing of live data. No state is kept; each page shows the data at the time of its request.
pub(crate) struct Moment {
    kind: &'static str,
    query: u64,
}

/// Contents of the continue token of a listing of live data.
#[derive(Debug, Serialize, Deserialize)]
struct MomentToken<K> {
    /// Key of the last row on the page.
    k: K,
    /// Hash of the query, so that a token is accepted only for the same query.
    q: u64,
}

impl Moment {
    /// Creates a listing of live data. `query` identifies the listing in continue tokens.
    pub(crate) fn new(kind: &'static str, query: &str) -> Self {
        Self { kind, query: fingerprint(&(kind, query)) }
    }

    /// Returns the key of the last row of the previous page, from the continue token; `None` for the first
    /// page. Returns a problem if the token is invalid or belongs to another query.
    pub(crate) fn resume<K: DeserializeOwned>(&self, token: Option<&str>) -> Result<Option<K>, Problem> {
        let Some(token) = token else { return Ok(None) };
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let decoded = decoded.and_then(|bytes| serde_json::from_slice::<MomentToken<K>>(&bytes).ok());
        match decoded {
            Some(MomentToken { k, q }) if q == self.query => Ok(Some(k)),
            Some(_) => Err(Problem::bad_request(
                "`continue` belongs to a listing with another path or other filters",
            )),
            None => Err(Problem::bad_request("`continue` must be a token returned by this API")),
        }
    }

    /// Creates the response body with one page of rows, and with a continue token if further rows follow.
    pub(crate) fn envelope<T: Serialize, K: Serialize>(&self, part: &ListPage<T, K>) -> Value {
        let ListPage { items, more_after } = part;
        let mut metadata = json!({});
        if let Some(k) = more_after {
            let token = serde_json::to_vec(&MomentToken { k, q: self.query }).expect("a token serialises");
            metadata["continue"] = json!(BASE64_URL_SAFE_NO_PAD.encode(token));
        }
        let kind = self.kind;
        json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": kind, "metadata": metadata, "items": items })
    }
}

/// Returns a hash of the query that is the same in all processes, because a token may be used after a restart
/// or at another server.
fn fingerprint(query: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_the_first_limit_but_has_one_item() {
        let pages = |sizes: &[usize], limit: usize| {
            let mut rest = sizes.iter().copied().peekable();
            let mut pages = Vec::new();
            while rest.peek().is_some() {
                let (items, last) = take_page(&mut rest, limit, |size| json!("x".repeat(size - 2)));
                assert_eq!(json_length(items.last().unwrap()), last.unwrap());
                pages.push(items.len());
            }
            pages
        };
        let half = PAGE_BYTES_MAX / 2;
        assert_eq!(pages(&[half, half, 10, 10], 10), [2, 2]);
        assert_eq!(pages(&[half, half + 1, 10, 10], 10), [1, 3]);
        assert_eq!(pages(&[3 * half, 3 * half, 10], 10), [1, 1, 1]);
        assert_eq!(pages(&[10; 5], 2), [2, 2, 1]);
        let part = |items: &[usize]| ListPage {
            items: items.iter().map(|size| "x".repeat(size - 2)).collect(),
            more_after: Some(7),
        };
        assert_eq!(shortened(part(&[half, half]), String::len).more_after, Some(7));
        assert_eq!(
            shortened(part(&[half, half, 9]), String::len),
            ListPage { more_after: Some(half - 2), ..part(&[half, half]) }
        );
    }
}
