//! Integration tests of the node agent. The modules `support`, `testbed` and `answering` contain helpers for
//! the tests in the other modules.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod agent_loop;
mod announce_arp;
mod announce_ndp;
mod announce_order;
mod announce_ping;
mod answering;
mod bfd_bird;
mod bfd_driver;
mod bfd_frr;
mod bgp_agent;
mod bgp_bird;
mod bgp_driver;
mod bgp_exabgp;
mod bgp_frr;
mod bgp_gobgp;
mod bgp_hostile;
mod bgp_order;
mod bgp_plan;
mod bgp_reflection;
mod bgp_show;
mod change_lines;
mod command;
mod conformance;
mod conntrack;
mod convergence;
mod counters;
mod default_checks;
mod differential;
mod docker;
mod doctor;
mod drain;
mod feed;
mod forks;
mod health_check_node_port;
mod health_checks;
mod iptables_golden;
mod iptables_scale;
mod iptables_state;
mod iptables_traffic;
mod ipvs_state;
mod ipvs_traffic;
mod journal;
mod links;
mod log_reader;
mod mode_cost;
mod mode_switch;
mod mode_switch_traffic;
mod nftables_affinity;
mod nftables_forks;
mod nftables_golden;
mod nftables_oracle;
mod nftables_policy;
mod nftables_preview;
mod nftables_ranges;
mod nftables_scale;
mod nftables_state;
mod nftables_traffic;
mod ownership;
mod ownership_simulation;
mod peer_keys;
mod preflight;
mod previews;
mod report;
mod routers;
#[path = "../../../model/tests/it/second_oracle/mod.rs"]
mod second_oracle;
mod service_routes;
mod several_controls;
mod state_guard;
mod support;
mod survival;
mod testbed;
mod userspace_agent;
mod userspace_connections;
mod userspace_process;
mod userspace_scale;
mod userspace_traffic;
