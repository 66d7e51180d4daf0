//! Paths from users to pages through common third-party programs: nginx as an ingress behind an address, and
//! HAProxy in front of node ports.

mod balancer;
mod chain;
mod stage;
