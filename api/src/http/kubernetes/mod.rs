//! What there is, below `/k8s/` in the words of Kubernetes, so that `kubectl` can read it. Nothing is written here.
//!
//! ```text
//! state ─ show ─▶ objects of Kubernetes ─▶ as they are, or as rows of a table (`table`)
//!   │              (`objects/`, pure: ours ─▶ theirs)
//!   └─ changes: which of them a commit concerns ─▶ shown before and after ─▶ events of a watch
//! ```
//! Its routes are no part of the OpenAPI document, as the page of the documentation is not: what they answer is described
//! by Kubernetes, and they are off unless `--kubernetes-view` is said. Each has a permission all the same ([`route`]), the
//! one that the Tidegate objects it shows ask for.
//!
//! Absent on purpose: a decision of its own (what is shown follows from the state and the roll-up), and any way to write:
//! a write is refused with the command that does it.

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

/// Where the view is.
pub(crate) const PREFIX: &str = "/k8s";
