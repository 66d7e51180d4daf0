//! Integration tests of `tidegate-sync`; `support` and `cluster` contain shared test support.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod cluster;
mod dns;
mod docker;
mod engine;
mod files;
mod gateway_conformance;
mod helm_chart;
mod kubernetes_end_to_end;
mod kubernetes_http;
mod kubernetes_manifests;
mod kubernetes_policy;
mod kubernetes_policy_oracle;
mod kubernetes_translate;
mod kubernetes_watch;
mod support;
