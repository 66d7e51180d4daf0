//! Keeps Tidegate's objects equal to what a source says: Kubernetes, Docker, files, names in the DNS.
//!
//! ```text
//!  source ──▶ watch channel of `Wanted` ──▶ engine: what is ours in Tidegate, the difference, /v1/apply
//!     ▲                                        │
//!     └────────── watch channel of `Observed` ◀┘  addresses, conditions
//! ```
//!
//! What must not happen: a source that is empty, lost or only partly read takes objects away; an object that another made
//! is changed; anything changes because this process ends.

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
