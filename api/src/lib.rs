//! The control server: an HTTP shell around the model.
//!
//! ```text
//! HTTP ─▶ routes ─▶ writer ─▶ store                 one task admits, commits in groups, publishes
//!            │         └────▶ hub ─▶ feed ─▶ agents  one immutable state, shared by all readers
//!            └── reads ──────┘ └──▶ watch ─▶ anyone
//! ```
//! Absent on purpose: decisions about objects (they are in `model`), SQL (it is in `store`), and any lock on an object.
//! No handler changes state except through the writer.

pub mod app;
mod asks;
mod assigner;
mod audit;
mod bgp_metrics;
mod body;
mod caller;
pub mod commands;
mod compiled_set;
pub mod config;
mod convergence;
pub mod entropy;
mod error;
mod etag;
mod feed;
mod health_judge;
mod health_metrics;
mod hub;
mod idempotency;
mod kubernetes;
mod leadership;
mod metrics;
mod middleware;
mod mutate;
mod negotiate;
mod nodes;
pub mod notify;
mod openapi;
mod overview;
mod paging;
mod params;
mod patch;
mod peer_key;
mod plans;
pub mod publish;
mod ring;
mod routes;
mod schema;
mod security;
mod series;
pub mod serve;
mod store_metrics;
mod stream;
mod traffic;
mod view;
mod waiting;
mod watch;
pub mod watchdog;
mod web;
mod writer;

pub use kubernetes::routes as kubernetes_routes;
pub use openapi::document;
pub use routes::service;
pub use security::tls::{CertificateFiles, Tls, TlsError, TlsOptions};
pub use security::{BootstrapError, ClientCertificate, bootstrap};
