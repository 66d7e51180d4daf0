//! Prometheus metrics of this server and of the cluster.

pub(crate) mod bgp;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod store;
pub(crate) mod traffic;
