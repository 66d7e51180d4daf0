//! Test clusters built from network namespaces, used by `make lab`, end-to-end tests and benchmarks.
//!
//! The environment is real: network namespaces, veth pairs and routes, the built binaries as processes, and TCP
//! and UDP sockets opened inside the namespaces. The lab is not part of the product, and the product never depends
//! on it.
//!
//! Every namespace is named `tg-PID-…`, with the ID of the test process. A namespace is removed when its last
//! handle is dropped (also by a panic), when the process is interrupted ([`host::registry`]), and at the latest
//! by the next run after that process has ended. The lab creates no link, address or rule in the namespace of
//! the process itself.

pub mod chaos;
pub mod cluster;
pub mod fixtures;
pub mod host;
pub mod load;
pub mod network;
pub mod processes;
