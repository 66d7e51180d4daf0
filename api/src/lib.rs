//! Control server of a Tidegate cluster: validates, stores and distributes configuration objects. The writer is
//! one task that admits all writes, commits them in groups and publishes each new state. The hub holds the newest
//! published state, an immutable value that all readers share. Each agent receives its part of the state in a
//! stream (feed); other clients can watch objects.
//!
//! ```text
//! HTTP ─▶ routes ─▶ writer ─▶ store
//!            │         └────▶ hub ─▶ feed ─▶ agents
//!            └── reads ──────┘ └──▶ watch ─▶ clients
//! ```
//! Handlers change state through the writer only, so that objects need no locks. Decisions about objects are
//! made in `model`; SQL is in `store`.

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
pub use http::{
    kubernetes::routes as kubernetes_routes,
    openapi::{agent_document, document},
    routes::{metrics_text, service},
};
pub use security::ClientCertificate;
pub use server::{
    bootstrap::{BootstrapError, bootstrap},
    tls::{Tls, TlsError},
};
