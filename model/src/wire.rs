//! Messages between control servers and node agents.

pub mod announced;
pub mod ask;
pub mod attachments;
pub mod certificate_keys;
pub mod dns_keys;
pub mod dns_names;
pub mod dns_server;
pub mod doctor;
pub mod feed;
pub mod hold;
pub mod http_gateway;
pub mod network_policy;
pub mod networks;
pub mod plan;
pub mod report;
pub mod trace;
pub mod traffic_counts;
pub mod workload_network;
