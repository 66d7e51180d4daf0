//! Background tasks: announcers, endpoint health, address retries, the overview, samples.

pub(crate) mod address_retry;
pub(crate) mod assigner;
pub(crate) mod health_judge;
pub(crate) mod leader_task;
pub(crate) mod overview;
pub(crate) mod sampler;
