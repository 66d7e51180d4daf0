//! Clusters made of network namespaces: what `make lab` shows, what end-to-end tests run against, what benchmarks load.
//!
//! Everything here is real: kernels' namespaces, veth pairs and routes, the built binaries as processes, TCP and UDP sockets
//! opened inside the namespaces. Nothing here is part of the product, and the product never needs anything from here.
//!
//! Every namespace is named `tg-PID-…`. It goes when its owner is dropped (also by a panic), when the process is
//! interrupted ([`registry`]), and at the latest when the next run finds that PID dead. No link, address or rule is ever
//! made in the namespace the process started in.

pub mod addresses;
pub mod binaries;
pub mod browser;
pub mod client;
pub mod cluster;
pub mod control;
pub mod crowd;
pub mod demo;
pub mod echo;
pub mod engine;
pub mod etcd;
pub mod fleet;
pub mod forward;
pub mod guest;
pub mod haproxy;
pub mod herd;
pub mod histories;
pub mod keep_alive;
pub mod kernel;
pub mod listings;
pub mod machine;
pub mod netns;
pub mod nginx;
pub mod outage;
pub mod process;
pub mod registry;
pub mod routers;
pub mod scene;
pub mod scratch;
pub mod shell;
pub mod soak;
pub mod storm;
pub mod topology;
pub mod wait;
pub mod web;
