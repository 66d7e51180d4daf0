//! Tests of paths from users to pages through third-party programs: nginx as an ingress at a load balancer
//! address, and HAProxy in front of node ports.

mod balancer;
mod chain;
mod stage;
