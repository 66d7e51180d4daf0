//! MetalLB: resources of `metallb.io` and the ConfigMap of its versions up to 0.12.

pub(crate) mod bgp;
pub(crate) mod bgp_advertisements;
pub(crate) mod config_map;
pub(crate) mod resources;
