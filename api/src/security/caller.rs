//! Caller of a request: permissions of the authenticated identity, author and reason of changes, and the data
//! for the audit log entry of the request.
//!
//! The middleware reads the caller once, before the handler runs, and adds it to the extensions of the
//! request. Handlers that depend on the caller have a [`Caller`] parameter. Without authentication, the
//! author is the unverified name in the request. With authentication, the author is the authenticated
//! identity; for tokens, the name in the request is recorded in addition.

use std::{net::IpAddr, sync::Arc};

use axum::extract::FromRequestParts;
use http::{Extensions, HeaderMap, HeaderName, Method, request::Parts};
use model::{
    admission::admit::{Outcome, Request},
    cluster::history::{AUTHOR_LENGTH_MAX, MESSAGE_LENGTH_MAX, Maker, Origin},
    primitives::{quantity::Revision, text::is_display_control, trace_parent::TraceParent},
};

use super::{Access, Identity, account::Account, audit_draft::AuditDraft};
use crate::base::error::{Code, Problem};

/// Request header with the author of a change. The name is not verified.
pub(crate) const X_AUTHOR: HeaderName = HeaderName::from_static("x-tidegate-author");
/// Request header with the reason of a change, recorded in the history.
pub(crate) const X_MESSAGE: HeaderName = HeaderName::from_static("x-change-message");
/// Recorded author of a change whose request names none.
const UNKNOWN: &str = "unknown";

/// IP address of the client of a connection, added to the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Caller of a request, or the server itself as author of a write.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    access: Arc<Access>,
    account: Account,
    origin: Arc<Origin>,
    /// Audit data of the request; `None` if the audit log gets no entry.
    draft: Option<Arc<AuditDraft>>,
    /// Trace context of the span of the request; `None` if it is not recorded.
    trace: Option<TraceParent>,
}

impl Caller {
    /// Reads the caller from the request.
    ///
    /// # Errors
    /// Returns a problem if the author or the reason is not text or too long.
    pub(crate) fn read(
        (method, path): (&Method, &str),
        headers: &HeaderMap,
        (peer, request_id): (Option<Peer>, &str),
        access: &Arc<Access>,
    ) -> Result<Self, Problem> {
        let author = text(headers, &X_AUTHOR, "X-Tidegate-Author", AUTHOR_LENGTH_MAX)?;
        let message = text(headers, &X_MESSAGE, "X-Change-Message", MESSAGE_LENGTH_MAX)?;
        let (maker, author) = access.author(author)?;
        let origin = Origin {
            maker,
            author,
            message,
            request_id: Some(request_id.to_owned()),
            source: peer.map(|Peer(address)| address),
        };
        let draft = AuditDraft::new(method.clone(), path.to_owned());
        Ok(Self {
            access: Arc::clone(access),
            account: Account::of(access, peer),
            origin: Arc::new(origin),
            draft: Some(Arc::new(draft)),
            trace: None,
        })
    }

    /// Creates the caller of a read request whose author or reason is invalid. The audit log gets no entry for it.
    pub(crate) fn without_author(access: Arc<Access>, peer: Option<Peer>) -> Self {
        let origin = Origin { maker: Maker::Client, author: UNKNOWN.to_owned(), ..Origin::server() };
        Self {
            account: Account::of(&access, peer),
            access,
            origin: Arc::new(origin),
            draft: None,
            trace: None,
        }
    }

    /// Creates the caller for writes of the server itself, with all permissions. The audit log gets no entry for
    /// them.
    pub(crate) fn server() -> Self {
        let access = Arc::new(Access::of(Identity::Anyone));
        Self {
            account: Account::of(&access, None),
            access,
            origin: Arc::new(Origin::server()),
            draft: None,
            trace: None,
        }
    }

    /// Returns the caller that the middleware has added to a request.
    ///
    /// # Errors
    /// Returns a problem with code `Internal` if the request has not passed the middleware.
    pub(crate) fn of(extensions: &Extensions) -> Result<&Self, Problem> {
        extensions.get().ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))
    }

    /// Returns the permissions of the caller.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Returns the account to which the request is charged.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the author and the reason of a change, as the history records them.
    pub(crate) fn origin(&self) -> Origin {
        let message = || self.draft.as_ref().and_then(|draft| draft.outcome().message);
        let message = self.origin.message.clone().or_else(message);
        Origin { message, ..(*self.origin).clone() }
    }

    /// Sets the trace context of the span of the request.
    pub(crate) fn traced(self, trace: Option<TraceParent>) -> Self {
        Self { trace, ..self }
    }

    /// Returns the trace context of the span of the request, or `None` if it is not recorded.
    pub(crate) const fn trace(&self) -> Option<TraceParent> {
        self.trace
    }

    /// Returns the audit data of the request, or `None` if the audit log gets no entry.
    pub(crate) fn draft(&self) -> Option<&Arc<AuditDraft>> {
        self.draft.as_ref()
    }

    /// Records the objects of a write request for the audit log.
    pub(crate) fn record_request(&self, request: &Request, is_dry_run: bool) {
        if let Some(draft) = &self.draft {
            draft.record_request(request, is_dry_run);
        }
    }

    /// Records `name` for the audit log as the only object of the request. Used if the request writes no
    /// configuration object but, for example, a token, a role or a backup.
    pub(crate) fn record_object(&self, name: String) {
        if let Some(draft) = &self.draft {
            draft.record_object(name);
        }
    }

    /// Records the reason of the change from the request body, for requests without the header
    /// `X-Change-Message`.
    pub(crate) fn record_message(&self, message: String) {
        if let Some(draft) = &self.draft {
            draft.record_message(message);
        }
    }

    /// Records the result of an accepted write for the audit log, including the objects it pruned.
    pub(crate) fn record_accepted(&self, revision: Revision, outcomes: &[Outcome]) {
        if let Some(draft) = &self.draft {
            draft.record_accepted(revision, outcomes);
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.extensions).cloned()
    }
}

/// Returns true if requests with this method may change something.
pub(crate) fn may_change(method: &Method) -> bool {
    !method.is_safe()
}

fn text(
    headers: &HeaderMap,
    header: &HeaderName,
    name: &str,
    length_max: usize,
) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    let is_fit = |text: &&str| text.chars().count() <= length_max && !text.chars().any(is_display_control);
    match text.filter(is_fit) {
        Some("") => Ok(None),
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Problem::bad_request(format!(
            "the header `{name}` must be at most {length_max} characters of UTF-8 on one line, without characters that control the \
             display"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(author: &[u8], message: &[u8]) -> Result<Origin, String> {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
        let headers = [(X_AUTHOR, value(author)), (X_MESSAGE, value(message))].into_iter().collect();
        let access = Arc::new(Access::of(Identity::Anyone));
        let caller = Caller::read((&Method::POST, "/"), &headers, (None, "id"), &access)
            .map_err(|problem| format!("{problem:?}"))?;
        Ok(caller.origin())
    }

    #[test]
    fn authors_and_messages_are_bounded_utf_8_on_one_line() {
        let origin = read("jö@host".as_bytes(), "räume auf".as_bytes()).unwrap();
        assert_eq!((origin.author.as_str(), origin.message.as_deref()), ("jö@host", Some("räume auf")));
        assert_eq!(origin.maker, Maker::Client);
        assert_eq!(read(b"agent/n1", b"").unwrap().maker, Maker::Agent);
        let empty = read(b" ", b" ").unwrap();
        assert_eq!((empty.author.as_str(), empty.message), (UNKNOWN, None));
        assert!(read(b"x", "ü".repeat(MESSAGE_LENGTH_MAX).as_bytes()).is_ok());
        for (author, message) in [
            ("x".repeat(AUTHOR_LENGTH_MAX + 1).into_bytes(), b"m".to_vec()),
            (b"x".to_vec(), "m".repeat(MESSAGE_LENGTH_MAX + 1).into_bytes()),
            (b"\xff".to_vec(), b"m".to_vec()),
            (b"a\tb".to_vec(), b"m".to_vec()),
            (b"x".to_vec(), "m\u{202e}".into()),
        ] {
            assert!(read(&author, &message).is_err(), "{author:?} {message:?}");
        }
    }
}
