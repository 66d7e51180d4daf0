//! Processes in namespaces: third-party programs, and the binaries under test.

pub mod binaries;
pub mod browser;
pub mod engine;
pub mod haproxy;
pub mod nginx;
pub mod process;
pub mod routers;
