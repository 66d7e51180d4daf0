//! Test clusters of control servers, agents and stores.

pub mod addresses;
pub mod control;
pub mod deployment;
pub mod etcd;
pub mod machines;
