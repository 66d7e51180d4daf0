//! Who asks for a write: what the request says of its author and its reason, and the address it came from.
//!
//! Where nobody is asked to prove who they are, the author is a claim, and shown as one; else it is what was proven, with
//! the claim besides. It is read once, around the request, and known to everything that runs for it: each mutation needs
//! it, and none has a say in it.

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

/// Who the client says it is.
pub(crate) const X_AUTHOR: HeaderName = HeaderName::from_static("x-tidegate-author");
/// Why the client asks.
pub(crate) const X_MESSAGE: HeaderName = HeaderName::from_static("x-change-message");
/// The author of who says nothing.
const UNKNOWN: &str = "unknown";
/// Objects of one request that its audit entry names; further ones are counted.
pub(crate) const OBJECTS_NAMED_MAX: usize = 100;

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// The address at the other end of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Who asks, and what became of it so far.
#[derive(Debug)]
pub(crate) struct Caller {
    origin: Origin,
    access: Arc<Access>,
    method: Method,
    path: String,
    is_audited: AtomicBool,
    deed: Mutex<Deed>,
}

/// What a request was about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deed {
    /// The first objects that it named, as kind and name.
    pub(crate) objects: Vec<String>,
    /// How many it named.
    pub(crate) objects_total: usize,
    /// The revision that holds it, when it was accepted.
    pub(crate) revision: Option<Revision>,
    /// Whether it was only tried.
    pub(crate) is_dry_run: bool,
    /// Whether it asks for one object that is not there yet.
    pub(crate) is_creation: bool,
    /// Whether it did something that is no write.
    pub(crate) is_done: bool,
    /// Why, as the body says; in place of nothing.
    pub(crate) message: Option<String>,
}

impl Caller {
    /// Reads who asks.
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

    /// What was requested: method and path.
    pub(crate) fn request(&self) -> (Method, String) {
        (self.method.clone(), self.path.clone())
    }

    /// Notes that the audit log has it, with what it wrote.
    pub(crate) fn note_audited(&self) {
        self.is_audited.store(true, Ordering::Release);
    }

    /// Whether the audit log has it, with what it wrote.
    pub(crate) fn is_audited(&self) -> bool {
        self.is_audited.load(Ordering::Acquire)
    }

    /// What stands in the way of what a write does besides what it names.
    pub(crate) fn refused(&self, outcomes: &[Outcome]) -> Vec<Violation> {
        self.access.prunes_refused(outcomes)
    }

    /// Runs what is done for a request.
    pub(crate) async fn scope<T>(self: Arc<Self>, serve: impl Future<Output = T>) -> T {
        CALLER.scope(self, serve).await
    }

    /// Who, and why.
    pub(crate) fn origin(&self) -> Origin {
        let message = self.origin.message.clone().or_else(|| self.lock().message.clone());
        Origin { message, ..self.origin.clone() }
    }

    /// Notes what is accepted, before anybody else knows it.
    pub(crate) fn accept(&self, revision: Revision, outcomes: &[Outcome]) {
        self.lock().accepted(revision, outcomes);
    }

    /// What the request was about.
    pub(crate) fn deed(&self) -> Deed {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Deed> {
        // Each change is one assignment after another; a panicking holder leaves words for the audit log, no more.
        self.deed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who asks for what is running.
pub(crate) fn origin() -> Origin {
    let unknown = || Origin { maker: Maker::Client, author: UNKNOWN.to_owned(), ..Origin::server() };
    CALLER.try_with(|caller| caller.origin()).unwrap_or_else(|_| unknown())
}

/// Who asks for what is running, if somebody does.
pub(crate) fn current() -> Option<Arc<Caller>> {
    CALLER.try_with(Arc::clone).ok()
}

/// Notes what is asked for.
pub(crate) fn note_request(request: &Request, is_dry_run: bool) {
    let named = |operation: &Operation| match operation {
        Operation::Create(object)
        | Operation::Apply(object)
        | Operation::Replace { object, .. }
        | Operation::Restore { object, .. } => Some(object.key().to_string()),
        Operation::Delete { key, .. } => Some(key.to_string()),
        Operation::Announce { address, .. } => Some(format!("Address {address}")),
        Operation::Lose { node, .. } => Some(format!("Node {node}")),
        Operation::Judge { service, .. } => Some(format!("Service {service}")),
        Operation::Retry { .. } => None,
    };
    note(|deed| {
        deed.objects_total = request.operations.len();
        deed.objects = request.operations.iter().filter_map(named).take(OBJECTS_NAMED_MAX).collect();
        deed.is_dry_run = is_dry_run;
        deed.is_creation = matches!(request.operations.as_slice(), [Operation::Create(_)]);
    });
}

/// Notes the one thing that a request is about that is no write, and still changes something.
pub(crate) fn note_object(name: String) {
    note(|deed| {
        deed.is_done = true;
        deed.objects_total = 1;
        deed.objects = vec![name];
    });
}

/// Says why, for a request whose headers do not.
pub(crate) fn note_message(message: String) {
    note(|deed| deed.message = Some(message));
}

/// Notes what was accepted, with what was pruned besides.
pub(crate) fn note_accepted(revision: Revision, outcomes: &[Outcome]) {
    note(|deed| deed.accepted(revision, outcomes));
}

impl Deed {
    /// Notes what was accepted, with what was pruned besides.
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
    // Outside of a request there is no audit entry to come.
    let _ = CALLER.try_with(|caller| change(&mut caller.lock()));
}

/// Whether a request may change something.
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
