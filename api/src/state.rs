//! State of the server: the published objects, the reports of agents, and the caches computed from them.

pub(crate) mod announced_cache;
pub(crate) mod change_ring;
pub(crate) mod commit_traces;
pub(crate) mod compiled_set;
pub(crate) mod convergence;
pub(crate) mod eviction_order;
pub(crate) mod frame_batch;
pub(crate) mod health_state;
pub(crate) mod idempotency;
pub(crate) mod leadership;
pub(crate) mod node_reports;
pub(crate) mod object_view;
pub(crate) mod observations;
pub(crate) mod overview_announced;
pub(crate) mod overview_cache;
pub(crate) mod overview_services;
pub(crate) mod overview_trigger;
pub(crate) mod paging;
pub(crate) mod pending_triggers;
pub(crate) mod plan_cache;
pub(crate) mod published;
pub(crate) mod queries;
pub(crate) mod render_pool;
pub(crate) mod response_budget;
pub(crate) mod series;
