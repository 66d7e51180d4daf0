//! Sessions of the status page: a token is sent once and exchanged for a cookie that scripts cannot read.
//!
//! ```text
//! POST /v1/session {token} ─▶ open ─▶ cookie ─▶ token id, on every request, until: logout, idle, maximum age,
//! login by OpenID Connect  ─▶ open ─▶ cookie ─▶ user      token revoked or expired, ID token expired
//! ```
//! Sessions exist only in the memory of one server: a restart ends them, and other control servers do not accept
//! them. A session of a token always has the current permissions of the token. A session of a user always has the current
//! permissions of the roles that the user's groups had at the login.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderValue};
use model::primitives::quantity::Timestamp;

use super::{
    cookies::{CookieKind, SameSite},
    session_id::SessionId,
    tokens::Binding,
};
use crate::base::hex::hex;

/// Maximum lifetime of a session in seconds: twelve hours.
pub(crate) const LIFE_SECS_MAX: i64 = 12 * 3600;
/// Maximum idle time of a session in seconds. An open stream counts as activity.
pub(crate) const IDLE_SECS_MAX: i64 = 3600;
/// Maximum number of sessions of all tokens together; each takes some hundred bytes.
pub(crate) const SESSIONS_MAX: usize = 4096;
/// Maximum number of sessions of one token or user, so that one cannot evict the sessions of others. 64 allow for a
/// team that shares a token.
pub(crate) const SESSIONS_PER_OWNER_MAX: usize = 64;
/// Name of the session cookie over plain HTTP.
const NAME: &str = "tidegate-session";
/// Name of the session cookie over TLS. Browsers accept a name with this prefix only from this host over TLS (RFC
/// 6265bis, 4.1.3.2).
const NAME_SECURE: &str = "__Host-tidegate-session";

/// Open sessions of the status page, by the SHA-256 of their cookie, so that a memory dump contains no usable
/// cookie.
#[derive(Debug)]
pub(crate) struct Sessions {
    cookie: CookieKind,
    open: Mutex<BTreeMap<SessionId, Session>>,
}

/// Account that a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// Token with this id.
    Token(String),
    /// User of OpenID Connect.
    User(Arc<SessionUser>),
}

/// User of a session, as of the login.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionUser {
    /// Name of the user, unique at the issuer.
    pub(crate) name: String,
    /// Time at which the ID token ends.
    pub(crate) expires: Timestamp,
    /// Roles of the user's groups.
    pub(crate) bindings: Vec<Binding>,
}

impl SessionOwner {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(one), Self::Token(other)) => one == other,
            (Self::User(one), Self::User(other)) => one.name == other.name,
            (Self::Token(_), Self::User(_)) | (Self::User(_), Self::Token(_)) => false,
        }
    }
}

#[derive(Debug, Clone)]
struct Session {
    owner: SessionOwner,
    ends: Timestamp,
    used: Timestamp,
}

impl Session {
    fn is_live(&self, now: Timestamp) -> bool {
        let idle = now.unix_seconds().saturating_sub(self.used.unix_seconds());
        now < self.ends && idle < IDLE_SECS_MAX
    }
}

impl Sessions {
    /// Creates an empty set of sessions. If `is_secure`, browsers send the cookies only over TLS.
    pub(crate) fn new(is_secure: bool) -> Self {
        let cookie =
            CookieKind { name: NAME, secure_name: NAME_SECURE, same_site: SameSite::Strict, is_secure };
        Self { cookie, open: Mutex::default() }
    }

    /// Opens a session for a token or a user. The token, or the ID token of the user, expires at `token_ends` (`None`:
    /// never). If a limit is reached, ends the least recently used session. Returns the session id and the
    /// `Set-Cookie` value.
    pub(crate) fn open(
        &self,
        owner: SessionOwner,
        token_ends: Option<Timestamp>,
        secret: &[u8; 32],
        now: Timestamp,
    ) -> (SessionId, HeaderValue) {
        let id = hex(secret);
        let key = SessionId::of(&id);
        let longest = Timestamp::from_unix_seconds(now.unix_seconds().saturating_add(LIFE_SECS_MAX));
        let ends = token_ends.map_or(longest, |ends| ends.min(longest));
        let mut open = self.lock();
        open.retain(|_, session| session.is_live(now));
        // The least recently used session is evicted.
        let is_own = |session: &Session| session.owner.is_same(&owner);
        if open.values().filter(|session| is_own(session)).count() >= SESSIONS_PER_OWNER_MAX {
            end_idlest(&mut open, is_own);
        }
        if open.len() >= SESSIONS_MAX {
            end_idlest(&mut open, |_| true);
        }
        open.insert(key.clone(), Session { owner, ends, used: now });
        let life = ends.unix_seconds().saturating_sub(now.unix_seconds()).max(0);
        (key, self.cookie.set(&id, life))
    }

    /// Returns the session of a request's cookie and the session's owner, and marks the session as used. Returns `None`
    /// if the request has no cookie of an open session.
    pub(crate) fn find(&self, headers: &HeaderMap, now: Timestamp) -> Option<(SessionId, SessionOwner)> {
        let key = SessionId::of(self.cookie.value_of(headers)?);
        let owner = self.touch(&key, now)?;
        Some((key, owner))
    }

    /// Marks a session as used. Returns its owner, or `None` if the session has ended.
    pub(crate) fn touch(&self, key: &SessionId, now: Timestamp) -> Option<SessionOwner> {
        let mut open = self.lock();
        let session = open.get_mut(key)?;
        if !session.is_live(now) {
            open.remove(key);
            return None;
        }
        session.used = session.used.max(now);
        Some(session.owner.clone())
    }

    /// Returns the time at which a session ends even if it is in use; `None` if there is no such session.
    pub(crate) fn ends(&self, key: &SessionId) -> Option<Timestamp> {
        self.lock().get(key).map(|session| session.ends)
    }

    /// Ends a session; its cookie is invalid afterwards.
    pub(crate) fn end(&self, key: &SessionId) {
        self.lock().remove(key);
    }

    /// Returns the `Set-Cookie` value that deletes the session cookie.
    pub(crate) fn no_cookie(&self) -> HeaderValue {
        self.cookie.set("", 0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Session>> {
        // Sessions are inserted and removed atomically; a panicking holder leaves a consistent map.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_idlest(open: &mut BTreeMap<SessionId, Session>, is_meant: impl Fn(&Session) -> bool) {
    let meant = open.iter().filter(|(_, session)| is_meant(session));
    let idlest = meant.min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone());
    if let Some(key) = idlest {
        open.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(secs)
    }

    fn token(id: &str) -> SessionOwner {
        SessionOwner::Token(id.to_owned())
    }

    fn open(sessions: &Sessions, id: &str, ends: Option<Timestamp>, secret: u8) -> (SessionId, String) {
        let (key, cookie) = sessions.open(token(id), ends, &[secret; 32], at(0));
        (key, cookie.to_str().unwrap().to_owned())
    }

    /// Returns the headers of a browser request with these cookies.
    fn sent(cookies: &[&str]) -> HeaderMap {
        let pair = |cookie: &&str| cookie.split(';').next().unwrap().to_owned();
        let value = cookies.iter().map(pair).collect::<Vec<_>>().join("; ");
        [(header::COOKIE, HeaderValue::from_str(&value).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_ends_when_it_is_idle_too_old_or_its_token_ends() {
        let sessions = Sessions::new(false);
        let (key, cookie) = open(&sessions, "t", None, 1);
        let headers = sent(&["other=1", &cookie]);
        assert_eq!(sessions.find(&headers, at(IDLE_SECS_MAX - 1)), Some((key.clone(), token("t"))));
        let mut now = 0;
        while now + IDLE_SECS_MAX / 2 < LIFE_SECS_MAX {
            now += IDLE_SECS_MAX / 2;
            assert!(sessions.touch(&key, at(now)).is_some(), "{now}");
        }
        assert_eq!(sessions.find(&headers, at(LIFE_SECS_MAX)), None);
        let (key, _) = sessions.open(token("t"), None, &[2; 32], at(0));
        assert_eq!(sessions.touch(&key, at(IDLE_SECS_MAX)), None);
        let (key, cookie) = open(&sessions, "t", Some(at(60)), 3);
        assert!(cookie.contains("Max-Age=60;"), "{cookie}");
        assert_eq!((sessions.ends(&key), sessions.touch(&key, at(60))), (Some(at(60)), None));
    }

    #[test]
    fn cookies_that_were_planted_or_guessed_count_for_nothing() {
        let sessions = Sessions::new(true);
        let (_, cookie) = open(&sessions, "t", None, 1);
        assert!(
            cookie.starts_with("__Host-tidegate-session=") && cookie.ends_with("SameSite=Strict; Secure")
        );
        assert!(sessions.find(&sent(&[&cookie]), at(1)).is_some());
        for wrong in [
            sent(&["__Host-tidegate-session=planted", &cookie]),
            sent(&[&cookie.replace("__Host-", "")]),
            sent(&["__Host-tidegate-session="]),
            sent(&[sessions.no_cookie().to_str().unwrap()]),
            HeaderMap::new(),
        ] {
            assert_eq!(sessions.find(&wrong, at(1)), None, "{wrong:?}");
        }
    }

    #[test]
    fn sessions_of_a_user_are_counted_by_name() {
        let sessions = Sessions::new(false);
        let user = |name: &str, secs: i64| {
            SessionOwner::User(Arc::new(SessionUser {
                name: name.to_owned(),
                expires: at(secs),
                bindings: Vec::new(),
            }))
        };
        // A token may have the id of the user's name.
        let (of_token, _) = sessions.open(token("kim"), None, &[0; 32], at(0));
        let (first, _) = sessions.open(user("kim", 100), None, &[1; 32], at(0));
        for secret in 2..=SESSIONS_PER_OWNER_MAX + 1 {
            sessions.open(user("kim", 200), None, &[u8::try_from(secret).unwrap(); 32], at(1));
        }
        assert_eq!((sessions.ends(&first), sessions.lock().len()), (None, SESSIONS_PER_OWNER_MAX + 1));
        assert!(sessions.ends(&of_token).is_some());
    }

    #[test]
    fn sessions_are_bounded_and_a_token_ends_its_own_first() {
        let sessions = Sessions::new(false);
        let mut number = 0_u32;
        let mut open = |owner: SessionOwner, now: i64| {
            number += 1;
            let mut secret = [0; 32];
            secret[..4].copy_from_slice(&number.to_be_bytes());
            sessions.open(owner, None, &secret, at(now)).0
        };
        let (others, first) = (open(token("other"), 0), open(token("t"), 1));
        for _ in 0..SESSIONS_PER_OWNER_MAX {
            open(token("t"), 2);
        }
        assert_eq!((sessions.ends(&first), sessions.lock().len()), (None, SESSIONS_PER_OWNER_MAX + 1));
        assert!(sessions.ends(&others).is_some());
        for number in 0..SESSIONS_MAX {
            open(token(&number.to_string()), 3);
        }
        assert_eq!((sessions.ends(&others), sessions.lock().len()), (None, SESSIONS_MAX));
        open(token("late"), 3 + IDLE_SECS_MAX);
        assert_eq!(sessions.lock().len(), 1, "those that have ended make room");
    }
}
