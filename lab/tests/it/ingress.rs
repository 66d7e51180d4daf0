//! End-to-end chains with common third-party programs: nginx as an ingress behind an address, HAProxy in
//! front of node ports.

mod balancer;
mod chain;
mod stage;
