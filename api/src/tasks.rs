//! Background tasks: selection of announcing nodes, endpoint health decisions, retries of address allocation,
//! orders of certificates, the overview, and sampling of time series.

pub(crate) mod acme;
pub(crate) mod address_retry;
pub(crate) mod assigner;
pub(crate) mod health_judge;
pub(crate) mod leader_task;
pub(crate) mod overview;
pub(crate) mod sampler;
pub(crate) mod webhooks;
