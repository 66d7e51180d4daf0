//! Mirrors objects of a source (Kubernetes, Docker, files or DNS) to Tidegate.
//!
//! ```text
//! source ──▶ DesiredObjects ──▶ engine ──▶ control server: writes of the differences
//!    ▲                            │
//!    └──── ObservedObjects ◀──────┘        addresses and conditions of the objects on the server
//! ```
//! The source and the engine exchange complete states by watch channels, which deliver only the newest state.
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
