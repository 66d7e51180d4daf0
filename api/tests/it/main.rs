//! Integration tests of the control API. The module `support` starts the servers. Tests with malicious clients are
//! a separate program (`abuse`).

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod addresses;
mod audit;
mod authorisation;
mod authz;
mod backup;
mod bgp;
mod bgp_shown;
mod canary;
mod certificate_keys;
mod containment;
mod dns_keys;
mod dns_servers;
mod environment;
mod explain;
mod explain_http;
mod explain_name;
mod feed;
mod health;
mod history;
mod http;
mod http_gateways;
mod kubectl;
mod kubernetes_view;
mod limits;
mod lying_node;
mod network_policy;
mod noisy_neighbor;
mod notify;
mod oidc;
mod openapi;
mod openapi_examples;
mod overview;
mod overview_large;
mod pages;
mod plans;
mod process;
mod race;
mod replicas;
mod series;
mod session;
mod socket;
mod store_failure;
mod support;
mod tls;
mod waiting;
mod webhooks;
mod workload_network;
