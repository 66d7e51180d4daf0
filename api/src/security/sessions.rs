//! Sessions of the status page: a token is sent once and exchanged for a cookie that scripts cannot read.
//!
//! ```text
//! POST /v1/session {token} ─▶ open ─▶ cookie ─▶ token id, on every request, until: logout, idle, maximum age,
//!                                                                         token revoked or expired
//! ```
//! Sessions exist only in the memory of one server: a restart ends them, and other control servers do not accept
//! them. A session always has the current permissions of its token.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderValue, header};
use model::primitives::quantity::Timestamp;

use super::secrets::digest;
use crate::base::hex::hex;

/// Maximum lifetime of a session in seconds: twelve hours.
pub(crate) const LIFE_SECS_MAX: i64 = 12 * 3600;
/// Maximum idle time of a session in seconds. An open stream counts as activity.
pub(crate) const IDLE_SECS_MAX: i64 = 3600;
/// Maximum number of sessions of all tokens together; each takes some hundred bytes.
pub(crate) const SESSIONS_MAX: usize = 4096;
/// Maximum number of sessions of one token, so that one token cannot evict the sessions of others. 64 allow for a
/// team that shares a token.
pub(crate) const SESSIONS_PER_TOKEN_MAX: usize = 64;
/// Maximum number of cookies parsed per request; browsers send some dozens.
const COOKIES_MAX: usize = 256;
/// Name of the session cookie over plain HTTP.
const NAME: &str = "tidegate-session";
/// Name of the session cookie over TLS. Browsers accept a name with this prefix only from this host over TLS (RFC
/// 6265bis, 4.1.3.2).
const NAME_SECURE: &str = "__Host-tidegate-session";

/// Open sessions of the status page, by the SHA-256 of their cookie, so that a memory dump contains no usable
/// cookie.
#[derive(Debug)]
pub(crate) struct Sessions {
    is_secure: bool,
    open: Mutex<BTreeMap<SessionId, Session>>,
}

/// SHA-256 of a session's cookie, which identifies the session. Not a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(String);

#[derive(Debug, Clone)]
struct Session {
    token: String,
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
        Self { is_secure, open: Mutex::default() }
    }

    /// Opens a session for the token with the id `token`, which expires at `token_ends` (`None`: never). If a
    /// limit is reached, ends the least recently used session. Returns the session id and the `Set-Cookie`
    /// value.
    pub(crate) fn open(
        &self,
        token: &str,
        token_ends: Option<Timestamp>,
        secret: &[u8; 32],
        now: Timestamp,
    ) -> (SessionId, HeaderValue) {
        let id = hex(secret);
        let key = SessionId(digest(id.as_bytes()));
        let longest = Timestamp::from_unix_seconds(now.unix_seconds().saturating_add(LIFE_SECS_MAX));
        let ends = token_ends.map_or(longest, |ends| ends.min(longest));
        let mut open = self.lock();
        open.retain(|_, session| session.is_live(now));
        // The least recently used session is evicted.
        let of_token = open.values().filter(|session| session.token == token).count();
        if of_token >= SESSIONS_PER_TOKEN_MAX {
            end_idlest(&mut open, |session| session.token == token);
        }
        if open.len() >= SESSIONS_MAX {
            end_idlest(&mut open, |_| true);
        }
        open.insert(key.clone(), Session { token: token.to_owned(), ends, used: now });
        let life = ends.unix_seconds().saturating_sub(now.unix_seconds()).max(0);
        (key, self.cookie(&id, life))
    }

    /// Returns the session of a request's cookie and the id of the session's token, and marks the session as
    /// used. Returns `None` if the request has no cookie of an open session.
    pub(crate) fn find(&self, headers: &HeaderMap, now: Timestamp) -> Option<(SessionId, String)> {
        let key = SessionId(digest(self.cookie_value(headers)?.as_bytes()));
        let token = self.touch(&key, now)?;
        Some((key, token))
    }

    /// Marks a session as used. Returns the id of the token it belongs to, or `None` if the session has ended.
    pub(crate) fn touch(&self, key: &SessionId, now: Timestamp) -> Option<String> {
        let mut open = self.lock();
        let session = open.get_mut(key)?;
        if !session.is_live(now) {
            open.remove(key);
            return None;
        }
        session.used = session.used.max(now);
        Some(session.token.clone())
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
        self.cookie("", 0)
    }

    fn cookie(&self, value: &str, life_secs: i64) -> HeaderValue {
        let (name, more) = if self.is_secure { (NAME_SECURE, "; Secure") } else { (NAME, "") };
        let text = format!("{name}={value}; Path=/; Max-Age={life_secs}; HttpOnly; SameSite=Strict{more}");
        let mut cookie = HeaderValue::from_str(&text).expect("digits and our own words are header text");
        cookie.set_sensitive(true);
        cookie
    }

    /// Returns the value of the session cookie. If a request has several cookies of that name, which indicates
    /// cookie injection, none is accepted.
    fn cookie_value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = if self.is_secure { NAME_SECURE } else { NAME };
        let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = texts.flat_map(|text| text.split(';')).take(COOKIES_MAX);
        let mut own =
            pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(found, _)| *found == name);
        let (_, value) = own.next()?;
        own.next().is_none().then_some(value)
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
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_unix_seconds(secs)
    }

    fn open(sessions: &Sessions, token: &str, ends: Option<Timestamp>, secret: u8) -> (SessionId, String) {
        let (key, cookie) = sessions.open(token, ends, &[secret; 32], at(0));
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
        assert_eq!(sessions.find(&headers, at(IDLE_SECS_MAX - 1)), Some((key.clone(), "t".to_owned())));
        let mut now = 0;
        while now + IDLE_SECS_MAX / 2 < LIFE_SECS_MAX {
            now += IDLE_SECS_MAX / 2;
            assert!(sessions.touch(&key, at(now)).is_some(), "{now}");
        }
        assert_eq!(sessions.find(&headers, at(LIFE_SECS_MAX)), None);
        let (key, _) = sessions.open("t", None, &[2; 32], at(0));
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
    fn sessions_are_bounded_and_a_token_ends_its_own_first() {
        let sessions = Sessions::new(false);
        let mut number = 0_u32;
        let mut open = |token: &str, now: i64| {
            number += 1;
            let mut secret = [0; 32];
            secret[..4].copy_from_slice(&number.to_be_bytes());
            sessions.open(token, None, &secret, at(now)).0
        };
        let (others, first) = (open("other", 0), open("t", 1));
        for _ in 0..SESSIONS_PER_TOKEN_MAX {
            open("t", 2);
        }
        assert_eq!((sessions.ends(&first), sessions.lock().len()), (None, SESSIONS_PER_TOKEN_MAX + 1));
        assert!(sessions.ends(&others).is_some());
        for token in 0..SESSIONS_MAX {
            open(&token.to_string(), 3);
        }
        assert_eq!((sessions.ends(&others), sessions.lock().len()), (None, SESSIONS_MAX));
        open("late", 3 + IDLE_SECS_MAX);
        assert_eq!(sessions.lock().len(), 1, "those that have ended make room");
    }
}
