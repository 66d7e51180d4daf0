//! Values that are valid by construction: names, addresses, bounded numbers, durations and secrets.

pub mod age;
pub mod app_protocol;
pub mod community;
pub mod domain_name;
pub mod gateway_duration;
pub mod hostname_pattern;
pub mod http_object_key;
pub mod interval_set;
pub mod name;
pub mod net;
pub mod non_empty_set;
pub mod public_key;
pub mod quantity;
pub mod secret;
pub mod text;
pub mod trace_parent;
pub mod violation;
