//! Resource kinds: metadata, specification and stored records of every object of the API.

pub mod address;
pub mod address_pool;
pub mod advertisement;
pub mod bfd_profile;
pub mod bgp_peer;
pub mod certificate;
pub mod condition_reason;
pub mod connections;
pub mod dns_key;
pub mod dns_zone;
pub mod endpoint_health;
pub mod endpoint_set;
pub mod event;
pub mod gateway;
pub mod health_check;
pub mod http_route;
pub(crate) mod load_balancer;
pub mod maintenance;
pub mod metadata;
pub mod node;
pub mod resource;
pub(crate) mod schema;
pub mod selector;
pub mod service;
pub mod workload;
