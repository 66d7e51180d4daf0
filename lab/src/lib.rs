//! Clusters made of network namespaces: what `make lab` shows, what end-to-end tests run against, what benchmarks load.
//!
//! Everything here is real: kernels' namespaces, veth pairs and routes, the built binaries as processes, TCP and UDP sockets
//! opened inside the namespaces. Nothing here is part of the product, and the product never needs anything from here.
//!
//! Every namespace is named `tg-PID-…`. It goes when its owner is dropped (also by a panic), when the process is
//! interrupted ([`registry`]), and at the latest when the next run finds that PID dead. No link, address or rule is ever
//! made in the namespace the process started in.

pub mod chaos;
pub mod cluster;
pub mod fixtures;
pub mod host;
pub mod load;
pub mod network;
pub mod processes;
