//! Author and reason of a request: claimed headers, authenticated identity and peer address.
//!
//! Without authentication the author is a claim and displayed as one. With authentication the author is the
//! proven identity, and the claim is recorded in addition. The caller is read once in the middleware and is
//! available as a task-local to all code that runs for the request.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{HeaderMap, HeaderName, Method};
use model::{
    admission::admit::{Operation, Outcome, Request},
    cluster::history::{AUTHOR_LENGTH_MAX, MESSAGE_LENGTH_MAX, Maker, Origin},
    primitives::{quantity::Revision, violation::Violation},
};

use crate::{base::error::Problem, security::Access};

/// Header with the author that the client claims.
pub(crate) const X_AUTHOR: HeaderName = HeaderName::from_static("x-tidegate-author");
/// Header with the reason of the change.
pub(crate) const X_MESSAGE: HeaderName = HeaderName::from_static("x-change-message");
/// Author of a request without author.
const UNKNOWN: &str = "unknown";
/// Maximum number of objects listed in an audit entry. Further ones are only counted.
pub(crate) const OBJECTS_NAMED_MAX: usize = 100;

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Remote address of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Caller of a request, and the audit data collected so far.
#[derive(Debug)]
pub(crate) struct Caller {
    origin: Origin,
    access: Arc<Access>,
    method: Method,
    path: String,
    is_audited: AtomicBool,
    deed: Mutex<Deed>,
}

/// Audit data of a request: its objects and result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deed {
    /// First objects of the request as kind and name.
    pub(crate) objects: Vec<String>,
    /// Total number of objects of the request.
    pub(crate) objects_total: usize,
    /// Revision that holds the change, if accepted.
    pub(crate) revision: Option<Revision>,
    /// True for a dry run.
    pub(crate) is_dry_run: bool,
    /// True if the request creates one object.
    pub(crate) is_creation: bool,
    /// True if the request changed something without a write to the store.
    pub(crate) is_done: bool,
    /// Reason from the body; used if the header is absent.
    pub(crate) message: Option<String>,
}

impl Caller {
    /// Reads the caller from the request.
    pub(crate) fn read(
        (method, path): (&Method, &str),
        headers: &HeaderMap,
        (peer, request_id): (Option<Peer>, &str),
        access: &Arc<Access>,
    ) -> Result<Arc<Self>, Problem> {
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
        let (method, path) = (method.clone(), path.to_owned());
        let access = Arc::clone(access);
        let is_audited = AtomicBool::default();
        Ok(Arc::new(Self { origin, access, method, path, is_audited, deed: Mutex::default() }))
    }

    /// Returns the method and path of the request.
    pub(crate) fn request(&self) -> (Method, String) {
        (self.method.clone(), self.path.clone())
    }

    /// Records that the audit entry was committed with the write.
    pub(crate) fn note_audited(&self) {
        self.is_audited.store(true, Ordering::Release);
    }

    /// True if the audit entry was committed with the write.
    pub(crate) fn is_audited(&self) -> bool {
        self.is_audited.load(Ordering::Acquire)
    }

    /// Returns the permission violations of side effects of a write on objects that the request does not
    /// name.
    pub(crate) fn refused(&self, outcomes: &[Outcome]) -> Vec<Violation> {
        self.access.prunes_refused(outcomes)
    }

    /// Runs the future with this caller as the task-local.
    pub(crate) async fn scope<T>(self: Arc<Self>, serve: impl Future<Output = T>) -> T {
        CALLER.scope(self, serve).await
    }

    /// Returns the author and reason.
    pub(crate) fn origin(&self) -> Origin {
        let message = self.origin.message.clone().or_else(|| self.lock().message.clone());
        Origin { message, ..self.origin.clone() }
    }

    /// Records an accepted write before it is published.
    pub(crate) fn accept(&self, revision: Revision, outcomes: &[Outcome]) {
        self.lock().accepted(revision, outcomes);
    }

    /// Returns the audit data.
    pub(crate) fn deed(&self) -> Deed {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Deed> {
        // Changes are single assignments; a panicking holder leaves at worst incomplete audit text.
        self.deed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the origin of the running request.
pub(crate) fn origin() -> Origin {
    let unknown = || Origin { maker: Maker::Client, author: UNKNOWN.to_owned(), ..Origin::server() };
    CALLER.try_with(|caller| caller.origin()).unwrap_or_else(|_| unknown())
}

/// Returns the caller of the running request, or `None` outside a request.
pub(crate) fn current() -> Option<Arc<Caller>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Records the objects of a write request.
pub(crate) fn note_request(request: &Request, is_dry_run: bool) {
    let named = |operation: &Operation| match operation {
        Operation::Create(object)
        | Operation::Apply(object)
        | Operation::Replace { object, .. }
        | Operation::Restore { object, .. } => Some(object.key().to_string()),
        Operation::Delete { key, .. } => Some(key.to_string()),
        Operation::SetAnnouncer { address, .. } => Some(format!("Address {address}")),
        Operation::SetNodeLost { node, .. } => Some(format!("Node {node}")),
        Operation::SetEndpointHealth { service, .. } => Some(format!("Service {service}")),
        Operation::RetryPending { .. } => None,
    };
    note(|deed| {
        deed.objects_total = request.operations.len();
        deed.objects = request.operations.iter().filter_map(named).take(OBJECTS_NAMED_MAX).collect();
        deed.is_dry_run = is_dry_run;
        deed.is_creation = matches!(request.operations.as_slice(), [Operation::Create(_)]);
    });
}

/// Records the object of a request that changes something without a write to the store.
pub(crate) fn note_object(name: String) {
    note(|deed| {
        deed.is_done = true;
        deed.objects_total = 1;
        deed.objects = vec![name];
    });
}

/// Records the reason from the body, for requests without the header.
pub(crate) fn note_message(message: String) {
    note(|deed| deed.message = Some(message));
}

/// Records an accepted write including pruned objects.
pub(crate) fn note_accepted(revision: Revision, outcomes: &[Outcome]) {
    note(|deed| deed.accepted(revision, outcomes));
}

impl Deed {
    /// Records an accepted write including pruned objects.
    fn accepted(&mut self, revision: Revision, outcomes: &[Outcome]) {
        self.revision = Some(revision);
        if outcomes.len() > self.objects_total {
            self.objects_total = outcomes.len();
            let names = outcomes.iter().map(|outcome| outcome.object.key().to_string());
            self.objects = names.take(OBJECTS_NAMED_MAX).collect();
        }
    }
}

fn note(change: impl FnOnce(&mut Deed)) {
    // Outside a request there is no audit entry.
    let _ = CALLER.try_with(|caller| change(&mut caller.lock()));
}

/// True if a request with this method may change something.
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
    let is_fit = |text: &&str| text.chars().count() <= length_max && !text.chars().any(char::is_control);
    match text.filter(is_fit) {
        Some("") => Ok(None),
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Problem::bad_request(format!(
            "the header `{name}` must be at most {length_max} characters of UTF-8 on one line"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::security::Identity;

    fn read(author: &[u8], message: &[u8]) -> Result<Origin, String> {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
        let headers = [(X_AUTHOR, value(author)), (X_MESSAGE, value(message))].into_iter().collect();
        let access = Arc::new(Access::of(Identity::Anyone));
        let caller = Caller::read((&Method::POST, "/"), &headers, (None, "id"), &access)
            .map_err(|problem| format!("{problem:?}"))?;
        Ok(caller.origin.clone())
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
        ] {
            assert!(read(&author, &message).is_err(), "{author:?} {message:?}");
        }
    }
}
