//! Ids of the sessions of the status page.

use super::secrets::digest;

/// SHA-256 of a session's cookie, which identifies the session. Not a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(String);

impl SessionId {
    /// Returns the id of the session with this cookie.
    pub(crate) fn of(cookie: &str) -> Self {
        Self(digest(cookie.as_bytes()))
    }
}
