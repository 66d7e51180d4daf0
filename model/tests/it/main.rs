//! Integration tests of the `model` crate, with one module for each topic.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod acme;
mod admit;
mod announcement_events;
mod assign;
mod attachments;
mod bgp;
mod bgp_blocks;
mod bgp_book;
mod bgp_fields;
mod bgp_status;
mod blocks;
mod certificates;
mod compile;
mod default_checks;
mod dns;
mod dns_explain;
mod dns_keys;
mod dns_update;
mod dns_zone_rules;
mod dns_zones;
mod environment;
mod explain;
mod guards;
mod health;
mod health_guard;
mod http;
mod http_explain;
mod interfaces;
mod lag;
mod lowering;
mod maglev;
mod maintenance;
mod network_policy;
mod not_checked;
mod oracle;
mod overview;
mod policy_numbers;
mod pool_properties;
mod pools;
mod program;
mod properties;
mod quotas;
mod registration;
mod rollback;
mod second_oracle;
mod second_oracle_agreement;
mod sources;
mod status;
mod support;
mod survival;
mod suspicion;
mod tls_routes;
mod total;
mod traffic;
mod validate;
mod what_if;
mod workload_networks;
