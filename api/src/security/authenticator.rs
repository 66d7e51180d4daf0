//! Authentication of requests by token, session or agent certificate, and tracking of token use.

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
    ClientCertificate, EndedCertificate, Identity, LocalClient,
    access::{Access, unauthenticated},
    account::Account,
    directory::Directory,
    oidc::{self, Verifier},
    rates::{Attempts, Bucket, UserRates},
    sessions::{SessionOwner, SessionUser, Sessions},
    tokens,
    vault::{Records, Vault},
};
use crate::base::error::{Code, Problem};

/// `Retry-After` of a caller that exceeds its request rate, in seconds.
const RATE_RETRY_SECS: u32 = 1;
/// Error message for every invalid token. The same message for all keeps clients from finding valid token ids.
const WRONG_TOKEN: &str = "the token is not a valid token of this cluster, or no longer";
/// Minimum interval in seconds between two writes of a token's last-used time to the store.
const USED_NOTED_SECS: i64 = 60;
/// Prefix of the store keys of the tokens' last-used times.
const USED_PREFIX: &str = "token-used/";

/// Authenticator of requests, with tokens, roles, sessions, and the last use of each token.
pub(crate) struct Authenticator {
    is_required: bool,
    vault: Arc<Vault>,
    /// Parsed tokens and roles, with the vault records they were parsed from.
    read: ArcSwap<(Arc<Records>, Arc<Directory>)>,
    uses: Mutex<BTreeMap<String, Use>>,
    /// Open sessions of the status page.
    pub(crate) sessions: Sessions,
    /// Recent failed login attempts, counted by client address.
    attempts: Attempts,
    /// Verifier of ID tokens; `None` if no issuer is configured.
    oidc: Option<Verifier>,
    users: UserRates,
}

/// Result of a login to the status page.
#[derive(Debug)]
pub(crate) struct Login {
    /// Permissions of the new session.
    pub(crate) access: Access,
    /// Value of `Set-Cookie` with the session cookie.
    pub(crate) cookie: HeaderValue,
}

/// Authentication policy of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuthPolicy {
    /// True if authentication is required.
    pub(crate) is_required: bool,
    /// True if clients reach the server only over TLS, so that cookies have the attribute `Secure`.
    pub(crate) is_secure: bool,
}

/// Request rate and last-used time of one token.
#[derive(Debug)]
struct Use {
    bucket: Bucket,
    last: Timestamp,
    noted: Option<Timestamp>,
}

impl Authenticator {
    /// Creates the authenticator from the tokens and roles in the vault and the last-used times in the store.
    pub(crate) fn of(
        vault: Arc<Vault>,
        manners: AuthPolicy,
        statuses: &BTreeMap<String, Vec<u8>>,
        oidc: Option<Verifier>,
    ) -> Self {
        let AuthPolicy { is_required, is_secure } = manners;
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
            oidc,
            users: UserRates::default(),
        }
    }

    /// Returns true if every request must be authenticated.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns the current tokens and roles, which are parsed again only after a change of the vault.
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

    /// Returns the verifier of ID tokens; `None` if no issuer is configured.
    pub(crate) fn oidc(&self) -> Option<&Verifier> {
        self.oidc.as_ref()
    }

    /// Authenticates a request by its token, session or agent certificate, and returns the caller's permissions. Waits if the
    /// keys of the issuer of an ID token have to be fetched.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        now: Timestamp,
    ) -> Result<Access, Problem> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            (Some(value), None) => self.holder(value.as_bytes(), now).await,
            (Some(_), Some(_)) => Err(unauthenticated("the header `Authorization` is given more than once")),
            (None, _) => match extensions.get::<ClientCertificate>() {
                Some(certificate) => Ok(Access::of(Identity::Agent(certificate.node.clone()))),
                None if extensions.get::<EndedCertificate>().is_some() => {
                    let detail = "the certificate of the node has expired or was revoked";
                    Err(unauthenticated(detail)
                        .hint("an agent renews an expired certificate by itself; after a revocation it joins again with a \
                               new join token that was created for the name of the node"))
                }
                None if extensions.get::<LocalClient>().is_some() => Ok(Access::of(Identity::Anyone)),
                None => self.visitor(headers, now),
            },
        }
    }

    /// Authenticates a request by its session cookie. A request with an expired session is not rejected, but
    /// treated as one without credentials: browsers send the old cookie even with a new login.
    fn visitor(&self, headers: &HeaderMap, now: Timestamp) -> Result<Access, Problem> {
        let anybody = if self.is_required { Identity::Nobody } else { Identity::Anyone };
        let Some((key, owner)) = self.sessions.find(headers, now) else { return Ok(Access::of(anybody)) };
        let id = match owner {
            SessionOwner::Token(id) => id,
            SessionOwner::User(user) => return self.paced_user(self.of_user(&user).by_session(key), now),
        };
        let Some(access) = self.directory().access(&id, now) else {
            self.sessions.end(&key);
            return Ok(Access::of(anybody));
        };
        self.paced(&id, access.by_session(key), now)
    }

    /// Returns the current permissions of a user who has logged in to the status page.
    fn of_user(&self, user: &SessionUser) -> Access {
        let SessionUser { name, expires, bindings } = user;
        let directory = self.directory();
        let grants = bindings.iter().filter_map(|binding| directory.grant(binding)).collect();
        Access::of_user(Identity::User { name: name.clone(), expires: *expires }, grants)
    }

    /// Returns a problem with status 429 if an address has exhausted its failed logins and enrollments. To be
    /// called before anything of such a request is parsed.
    pub(crate) fn check_attempts(&self, from: Option<IpAddr>, now: Timestamp) -> Result<(), Problem> {
        if self.attempts.may_try(from, now) {
            return Ok(());
        }
        let problem = Problem::new(
            Code::TooManyRequests,
            "too many invalid tokens or certificates were sent from this address",
        );
        Err(problem.retry_after(RATE_RETRY_SECS))
    }

    /// Counts a failed login or enrollment of an address.
    pub(crate) fn record_failure(&self, from: Option<IpAddr>, now: Timestamp) {
        self.attempts.record_failure(from, now);
    }

    /// Verifies a token and opens a session of the status page for it.
    pub(crate) fn log_in(&self, text: &str, secret: &[u8; 32], now: Timestamp) -> Result<Login, Problem> {
        let Some((id, access)) = self.proven(text, now) else {
            return Err(
                unauthenticated(WRONG_TOKEN).hint("paste the whole token, from `tgt_` to the last digit")
            );
        };
        let access = self.paced(&id, access, now)?;
        let ends = self.directory().token(&id).and_then(|(_, token)| token.expires);
        let (key, cookie) = self.sessions.open(SessionOwner::Token(id), ends, secret, now);
        Ok(Login { access: access.by_session(key), cookie })
    }

    /// Opens a session of the status page for a user whose ID token was verified. The session ends with the ID token.
    pub(crate) fn log_in_user(
        &self,
        user: SessionUser,
        secret: &[u8; 32],
        now: Timestamp,
    ) -> Result<Login, Problem> {
        let access = self.paced_user(self.of_user(&user), now)?;
        let ends = Some(user.expires);
        let (key, cookie) = self.sessions.open(SessionOwner::User(Arc::new(user)), ends, secret, now);
        Ok(Login { access: access.by_session(key), cookie })
    }

    async fn holder(&self, header: &[u8], now: Timestamp) -> Result<Access, Problem> {
        let text = std::str::from_utf8(header).unwrap_or_default();
        let (scheme, text) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthenticated("the header `Authorization` must be `Bearer` followed by a token"));
        }
        if let Some(oidc) = self.oidc.as_ref().filter(|_| oidc::is_json_web_token(text.trim())) {
            let access = oidc.access(text.trim(), &self.directory(), now).await?;
            return self.paced_user(access, now);
        }
        let (id, access) = self.proven(text, now).ok_or_else(|| unauthenticated(WRONG_TOKEN))?;
        self.paced(&id, access, now)
    }

    /// Returns the id and the permissions of the token with this text, or `None` if it is invalid.
    fn proven(&self, text: &str, now: Timestamp) -> Option<(String, Access)> {
        let text = text.trim();
        let id = tokens::id_of(text)?;
        let directory = self.directory();
        let (_, _token) = directory.token(id).filter(|(_, token)| token.is(text))?;
        Some((id.to_owned(), directory.access(id, now)?))
    }

    /// Records a use of the token `id` and returns `access` unchanged, or a problem response with status 429 if
    /// the token exceeds its request rate.
    fn paced(&self, id: &str, access: Access, now: Timestamp) -> Result<Access, Problem> {
        if self.record_use(id, now) { Ok(access) } else { Err(too_fast(&access)) }
    }

    /// Returns `access` unchanged, or a problem response with status 429 if the user exceeds the request rate.
    fn paced_user(&self, access: Access, now: Timestamp) -> Result<Access, Problem> {
        let is_accepted = match access.identity() {
            Identity::User { name, expires: _ } => self.users.take(name, now),
            Identity::Anyone | Identity::Nobody | Identity::Agent(_) | Identity::Token { .. } => true,
        };
        if is_accepted { Ok(access) } else { Err(too_fast(&access)) }
    }

    /// Returns the current permissions of the client of an open stream, or `None` if its token or session is
    /// no longer valid and the stream must end. Keeps the session active.
    pub(crate) fn renew(&self, access: &Access, now: Timestamp) -> Option<Access> {
        let session = access.session().cloned();
        if let Some(key) = &session {
            // An open stream keeps the session active.
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
            identity @ Identity::User { name: _, expires } => {
                let directory = self.directory();
                let grants =
                    access.grants().iter().filter_map(|grant| directory.grant(&grant.binding)).collect();
                let access = (now < *expires).then(|| Access::of_user(identity.clone(), grants))?;
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
        // Each change is complete before the lock is released.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_use(&self, id: &str, now: Timestamp) -> bool {
        let mut uses = self.lock();
        let new = || Use { bucket: Bucket::full(now), last: now, noted: None };
        let used = uses.entry(id.to_owned()).or_insert_with(new);
        used.last = now;
        used.bucket.take(now)
    }

    /// Charges the size of a response to the rate limit of a token or a user. Other accounts have no rate limit.
    pub(crate) fn charge(&self, account: &Account, response_bytes: u64, now: Timestamp) {
        match account {
            Account::Token(id) => {
                if let Some(used) = self.lock().get_mut(id) {
                    used.bucket.charge(response_bytes, now);
                }
            }
            Account::User(name) => self.users.charge(name, response_bytes, now),
            Account::Agent(_) | Account::Network(_) => {}
        }
    }

    /// Returns the time at which a token was last used at this server.
    pub(crate) fn last_used(&self, id: &str) -> Option<Timestamp> {
        self.lock().get(id).map(|used| used.last)
    }

    /// Stores the last-used times that are at least [`USED_NOTED_SECS`] newer than the stored ones, and
    /// deletes those of removed tokens.
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
                tracing::warn!(%error, "cannot store the last use of a token");
            }
        }
        for id in gone {
            if let Err(error) = store.remove_status(&format!("{USED_PREFIX}{id}")).await {
                tracing::warn!(%error, "cannot delete the last use of a token");
            }
        }
    }
}

fn too_fast(access: &Access) -> Problem {
    let detail = format!("{access} exceeds the rate limit");
    Problem::new(Code::TooManyRequests, detail).retry_after(RATE_RETRY_SECS)
}
