//! Who asks: reads what a request proves, and keeps what is known of tokens.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use http::{Extensions, HeaderMap, HeaderValue, header};
use model::primitives::quantity::Timestamp;
use store::Store;

use super::{
    ClientCertificate, Identity,
    access::{Access, unauthenticated},
    directory::Directory,
    rates::{Attempts, Bucket},
    sessions::Sessions,
    tokens,
    vault::{Records, Vault},
};
use crate::base::error::{Code, Problem};

/// When to come back for who asks too fast, in seconds.
const RATE_RETRY_SECS: u32 = 1;
/// One answer for all that is wrong with a token: which ids there are is nobody's business.
const WRONG_TOKEN: &str = "the token is not, or is no longer, one of this cluster";
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
    /// Those of the status page.
    pub(crate) sessions: Sessions,
    /// The wrong tokens that were shown to log in there.
    attempts: Attempts,
}

/// A session of the status page that was opened.
#[derive(Debug)]
pub(crate) struct Login {
    /// What its requests may do.
    pub(crate) access: Access,
    /// The cookie to be set.
    pub(crate) cookie: HeaderValue,
}

/// What a server asks of whoever calls it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// Whether everybody has to prove who they are.
    pub(crate) is_required: bool,
    /// Whether every connection is encrypted.
    pub(crate) is_secure: bool,
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
    pub(crate) fn of(vault: Arc<Vault>, manners: Manners, statuses: &BTreeMap<String, Vec<u8>>) -> Self {
        let Manners { is_required, is_secure } = manners;
        let records = vault.records();
        let directory = Arc::new(Directory::read(&records));
        let read = |(key, body): (&String, &Vec<u8>)| {
            let id = key.strip_prefix(USED_PREFIX)?;
            let last: Timestamp = serde_json::from_slice(body).ok()?;
            Some((id.to_owned(), Use { bucket: Bucket::full(last), last, noted: Some(last) }))
        };
        let uses = statuses.iter().filter_map(read).collect();
        Self {
            is_required,
            vault,
            read: ArcSwap::from_pointee((records, directory)),
            uses: Mutex::new(uses),
            sessions: Sessions::new(is_secure),
            attempts: Attempts::default(),
        }
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
            (None, _) => match extensions.get::<ClientCertificate>() {
                Some(certificate) => Ok(Access::of(Identity::Agent(certificate.node.clone()))),
                None => self.visitor(headers, now),
            },
        }
    }

    /// Who has a session of the status page. One that has ended is as none: a browser sends its cookie all the same, also to
    /// log in again.
    fn visitor(&self, headers: &HeaderMap, now: Timestamp) -> Result<Access, Problem> {
        let anybody = if self.is_required { Identity::Nobody } else { Identity::Anyone };
        let Some((key, id)) = self.sessions.find(headers, now) else { return Ok(Access::of(anybody)) };
        let Some(access) = self.directory().access(&id, now) else {
            self.sessions.end(&key);
            return Ok(Access::of(anybody));
        };
        self.paced(&id, access.by_session(key), now)
    }

    /// Opens a session of the status page for who shows a token, from an address.
    pub(crate) fn log_in(
        &self,
        text: &str,
        from: Option<IpAddr>,
        (secret, now): (&[u8; 32], Timestamp),
    ) -> Result<Login, Problem> {
        if !self.attempts.may_try(from, now) {
            let problem =
                Problem::new(Code::TooManyRequests, "too many wrong tokens were shown from this address");
            return Err(problem.retry_after(RATE_RETRY_SECS));
        }
        let Some((id, access)) = self.proven(text, now) else {
            self.attempts.note_wrong(from, now);
            return Err(
                unauthenticated(WRONG_TOKEN).hint("paste the whole token, from `tgt_` to its last digit")
            );
        };
        let access = self.paced(&id, access, now)?;
        let ends = self.directory().token(&id).and_then(|(_, token)| token.expires);
        let (key, cookie) = self.sessions.open(&id, ends, secret, now);
        Ok(Login { access: access.by_session(key), cookie })
    }

    fn holder(&self, header: &[u8], now: Timestamp) -> Result<Access, Problem> {
        let text = std::str::from_utf8(header).unwrap_or_default();
        let (scheme, text) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated("the header `Authorization` must be `Bearer` with a token"));
        }
        let (id, access) = self.proven(text, now).ok_or_else(|| unauthenticated(WRONG_TOKEN))?;
        self.paced(&id, access, now)
    }

    /// What the holder of a token may do, with its id; `None` for any text that is none of this cluster.
    fn proven(&self, text: &str, now: Timestamp) -> Option<(String, Access)> {
        let text = text.trim();
        let id = tokens::id_of(text)?;
        let directory = self.directory();
        let (_, _token) = directory.token(id).filter(|(_, token)| token.is(text))?;
        Some((id.to_owned(), directory.access(id, now)?))
    }

    /// Refuses who asks too fast.
    fn paced(&self, id: &str, access: Access, now: Timestamp) -> Result<Access, Problem> {
        if self.note_use(id, now) {
            return Ok(access);
        }
        let detail = format!("{access} asks too fast");
        Err(Problem::new(Code::TooManyRequests, detail).retry_after(RATE_RETRY_SECS))
    }

    /// What may be done by whoever began something that goes on; `None` when it may not go on.
    pub(crate) fn renew(&self, access: &Access, now: Timestamp) -> Option<Access> {
        let session = access.session().cloned();
        if let Some(key) = &session {
            // Who keeps a stream open looks at it.
            self.sessions.touch(key, now)?;
        }
        match access.identity() {
            Identity::Token { id, name: _ } => {
                let access = self.directory().access(id, now)?;
                Some(match session {
                    Some(key) => access.by_session(key),
                    None => access,
                })
            }
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
