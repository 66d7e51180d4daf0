//! Mirrors objects of a source (Kubernetes, Docker, files or DNS) to Tidegate.
//!
//! ```text
//!  source ──▶ watch channel of `DesiredObjects` ───▶ engine: diff with the source's objects on the server,
//!     ▲                                               │      /v1/apply
//!     └─────── watch channel of `ObservedObjects` ◀───┘      addresses, conditions
//! ```
//!
//! Invariants: a source that is empty, unreachable or only partly read removes no objects; objects of other
//! owners are never changed; stopping this process changes nothing.

pub mod args;
pub mod control;
pub mod dns;
pub mod docker;
pub mod engine;
pub mod files;
pub mod kubernetes;
pub mod run;
mod serve;
pub mod settings;
pub mod wanted;
