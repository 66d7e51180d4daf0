//! Import of MetalLB configurations: resources of `metallb.io`, and the ConfigMap of MetalLB versions up to
//! 0.12.

pub(crate) mod bgp;
pub(crate) mod bgp_advertisements;
pub(crate) mod config_map;
pub(crate) mod resources;
