//! End-to-end tests of Tidegate: clusters of real programs in network namespaces, a browser, packages, and
//! faults.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod addresses;
mod bgp;
mod clock;
mod coexistence;
mod compose;
mod crash;
mod declared_interfaces;
mod default_check;
mod discovery;
mod disk;
mod dns_docker;
mod dns_external;
mod dns_limits;
mod dns_over_tls;
mod dns_resolvers;
mod dns_secondary;
mod dns_update;
mod dns_vip;
mod dns_zones;
mod doctor;
mod documents;
mod drain;
mod endpoints;
mod explain;
mod forwarding;
mod health;
mod histories;
mod http_gateway;
mod images;
mod ingress;
mod modes;
mod network_policy;
mod notify;
mod packages;
mod page;
mod page_large;
mod page_logic;
mod plan;
mod plumbing;
mod resilience;
mod restore;
mod rollback;
mod scale;
mod services;
mod silence;
mod survival;
mod three_servers;
mod traced;
mod traffic;
mod units;
mod workload_network;
mod writes;
