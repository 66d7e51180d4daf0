//! Read-only Kubernetes API below `/k8s/` for `kubectl`. The module `show` renders Tidegate objects as
//! Kubernetes objects, with the pure functions of `objects`; `table` formats them as table rows; `changes`
//! finds the objects that a commit affects.
//!
//! ```text
//! stored state ─ show ─▶ Kubernetes objects ─▶ response: the objects, or the rows of a table
//!       │
//!       └─ changes: objects affected by a commit ─▶ rendered before and after ─▶ watch events
//! ```
//! The routes are not part of the OpenAPI document, because Kubernetes defines their responses. The routes
//! are disabled without `--kubernetes-view`. A route that returns objects requires the permission to read the
//! Tidegate objects from which they are derived ([`route`]).
//!
//! All responses are derived from the stored state and the reports of the node agents. Writes are rejected
//! with a message that names the Tidegate command to use instead.

mod accept;
mod catalogue;
mod changes;
mod discovery;
mod fields;
mod list;
mod objects;
mod options;
mod path;
mod refusal;
mod route;

pub use route::routes;
mod show;
mod status;
mod table;
mod watch;

pub(crate) use route::serve;
pub(crate) use status::{answer, is_below};

/// Path prefix of the Kubernetes API.
pub(crate) const PREFIX: &str = "/k8s";
