//! Who asks: reads what a request proves, and keeps what is known of tokens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use http::{Extensions, HeaderMap, header};
use model::quantity::Timestamp;
use store::Store;

use super::{
    ClientCertificate, Identity,
    access::{Access, unauthenticated},
    directory::Directory,
    rates::Bucket,
    tokens,
    vault::{Records, Vault},
};
use crate::error::{Code, Problem};

/// When to come back for who asks too fast, in seconds.
const RATE_RETRY_SECS: u32 = 1;
/// Time between two notes in the store that a token was used, in seconds.
const USED_NOTED_SECS: i64 = 60;
/// What begins the key of such a note.
const USED_PREFIX: &str = "token-used/";

/// What is known of tokens, roles and their use.
pub(crate) struct Desk {
    is_required: bool,
    vault: Arc<Vault>,
    /// What was read of the vault, with the records that it was read from.
    read: ArcSwap<(Arc<Records>, Arc<Directory>)>,
    uses: Mutex<BTreeMap<String, Use>>,
}

/// The use of one token.
#[derive(Debug)]
struct Use {
    bucket: Bucket,
    last: Timestamp,
    noted: Option<Timestamp>,
}

impl Desk {
    /// Reads the vault and the notes of use.
    pub(crate) fn of(vault: Arc<Vault>, is_required: bool, statuses: &BTreeMap<String, Vec<u8>>) -> Self {
        let records = vault.records();
        let directory = Arc::new(Directory::read(&records));
        let read = |(key, body): (&String, &Vec<u8>)| {
            let id = key.strip_prefix(USED_PREFIX)?;
            let last: Timestamp = serde_json::from_slice(body).ok()?;
            Some((id.to_owned(), Use { bucket: Bucket::full(last), last, noted: Some(last) }))
        };
        let uses = statuses.iter().filter_map(read).collect();
        Self { is_required, vault, read: ArcSwap::from_pointee((records, directory)), uses: Mutex::new(uses) }
    }

    /// Whether everybody has to prove who they are.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// The tokens and roles of the vault as it is now; read again only when something in it has changed.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        let records = self.vault.records();
        let read = self.read.load_full();
        let (from, directory) = &*read;
        if Arc::ptr_eq(from, &records) {
            return Arc::clone(directory);
        }
        let directory = Arc::new(Directory::read(&records));
        self.read.store(Arc::new((records, Arc::clone(&directory))));
        directory
    }

    /// What the maker of a request may do.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        now: Timestamp,
    ) -> Result<Access, Problem> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            (Some(value), None) => self.holder(value.as_bytes(), now),
            (Some(_), Some(_)) => Err(unauthenticated("there are several headers `Authorization`")),
            (None, _) => Ok(Access::of(match extensions.get::<ClientCertificate>() {
                Some(certificate) => Identity::Agent(certificate.node.clone()),
                None if self.is_required => Identity::Nobody,
                None => Identity::Anyone,
            })),
        }
    }

    fn holder(&self, header: &[u8], now: Timestamp) -> Result<Access, Problem> {
        let text = std::str::from_utf8(header).unwrap_or_default();
        let (scheme, text) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated("the header `Authorization` must be `Bearer` with a token"));
        }
        // One answer for all that is wrong with it: which ids there are is nobody's business.
        let refused = || unauthenticated("the token is not, or is no longer, one of this cluster");
        let text = text.trim();
        let id = tokens::id_of(text).ok_or_else(refused)?;
        let directory = self.directory();
        let (_, token) = directory.token(id).filter(|(_, token)| token.is(text)).ok_or_else(refused)?;
        let access = directory.access(id, now).ok_or_else(refused)?;
        if self.note_use(id, now) {
            return Ok(access);
        }
        let detail = format!("token {} asks too fast", token.name);
        Err(Problem::new(Code::TooManyRequests, detail).retry_after(RATE_RETRY_SECS))
    }

    /// What may be done by whoever began something that goes on; `None` when it may not go on.
    pub(crate) fn renew(&self, access: &Access, now: Timestamp) -> Option<Access> {
        match access.identity() {
            Identity::Token { id, name: _ } => self.directory().access(id, now),
            identity @ (Identity::Anyone | Identity::Nobody | Identity::Agent(_)) => {
                Some(Access::of(identity.clone()))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Use>> {
        // Each change is complete before the lock is given back.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_use(&self, id: &str, now: Timestamp) -> bool {
        let mut uses = self.lock();
        let new = || Use { bucket: Bucket::full(now), last: now, noted: None };
        let used = uses.entry(id.to_owned()).or_insert_with(new);
        used.last = now;
        used.bucket.take(now)
    }

    /// When a token was last used, as far as this server knows.
    pub(crate) fn last_used(&self, id: &str) -> Option<Timestamp> {
        self.lock().get(id).map(|used| used.last)
    }

    /// Notes in the store which tokens were used, and forgets those that are gone.
    pub(crate) async fn keep_uses(&self, store: &dyn Store) {
        let directory = self.directory();
        let (due, gone): (Vec<_>, Vec<_>) = {
            let mut uses = self.lock();
            let gone: Vec<String> = uses.keys().filter(|id| directory.token(id).is_none()).cloned().collect();
            uses.retain(|id, _| !gone.contains(id));
            let is_due = |used: &Use| {
                let since = |noted: Timestamp| used.last.unix_seconds().saturating_sub(noted.unix_seconds());
                used.noted.is_none_or(|noted| since(noted) >= USED_NOTED_SECS)
            };
            let due = uses.iter_mut().filter(|(_, used)| is_due(used)).map(|(id, used)| {
                used.noted = Some(used.last);
                (id.clone(), used.last)
            });
            (due.collect(), gone)
        };
        for (id, last) in due {
            let body = serde_json::to_vec(&last).expect("a time serialises");
            if let Err(error) = store.put_status(&format!("{USED_PREFIX}{id}"), &body).await {
                tracing::warn!(%error, "that a token was used cannot be kept");
            }
        }
        for id in gone {
            if let Err(error) = store.remove_status(&format!("{USED_PREFIX}{id}")).await {
                tracing::warn!(%error, "the note of the use of a token cannot be removed");
            }
        }
    }
}
