//! Control server: an HTTP API around the crate `model`.
//!
//! ```text
//! HTTP ─▶ routes ─▶ writer ─▶ store                 one task admits, commits in groups, publishes
//!            │         └────▶ hub ─▶ feed ─▶ agents  one immutable state, shared by all readers
//!            └── reads ──────┘ └──▶ watch ─▶ clients
//! ```
//! Decisions about objects are made in `model`, SQL is in `store`, and there are no locks on objects.
//! Handlers change state through the writer only.

pub mod base;
pub mod context;
mod http;
mod security;
pub mod server;
mod state;
mod stream;
mod tasks;
mod telemetry;
mod write;

pub use base::config::tls::{CertificateFiles, TlsOptions};
pub use http::{kubernetes::routes as kubernetes_routes, openapi::document, routes::service};
pub use security::ClientCertificate;
pub use server::{
    bootstrap::{BootstrapError, bootstrap},
    tls::{Tls, TlsError},
};
