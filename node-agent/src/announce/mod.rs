//! Announcing load balancer addresses to the networks around the node.

pub mod l2;
