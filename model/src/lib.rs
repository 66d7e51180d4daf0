//! The nouns and the pure verbs of Tidegate.
//!
//! Kinds, admission, allocation, compilation, the packet program and the roll-up of status. There is no runtime here, no
//! I/O, no clock and no randomness: time and entropy are arguments, so that every answer can be had again from its
//! inputs. What may be absent on the other side of a wire is an `Option` here; what must be valid is a type that cannot
//! be otherwise.

pub mod address;
pub mod address_pool;
pub mod admit;
pub mod advertisement;
pub mod age;
mod allocate;
pub mod announcements;
pub mod ask;
pub mod assign;
pub mod bfd_profile;
pub mod bgp;
pub mod bgp_book;
pub mod bgp_listing;
pub mod bgp_peer;
pub mod bgp_report;
pub mod bgp_state;
pub mod bgp_trouble;
pub mod change;
pub mod community;
pub mod compile;
pub mod compiled;
pub mod config;
mod coverage;
pub mod decode;
pub mod doctor;
pub mod drains;
pub mod endpoint_health;
pub mod endpoint_set;
pub mod explain;
pub mod feed;
pub mod health;
pub mod health_check;
pub mod history;
pub mod hold;
pub mod interval_set;
pub mod lag;
pub mod lease;
pub mod maintenance;
pub mod metadata;
pub mod name;
pub mod net;
pub mod networks;
pub mod node;
pub mod overview;
pub mod plan;
mod pool_space;
pub mod program;
pub mod quantity;
pub mod report;
pub mod resource;
pub mod rollback;
pub mod rollup;
mod schema;
pub mod secret;
pub mod selector;
pub mod service;
pub mod service_health;
pub mod snapshot;
pub mod status;
pub mod trace;
pub mod traffic;
pub mod unsupported;
mod validate;
pub mod violation;
mod wanted;
pub mod workload;
