//! Processes that run in namespaces: the binaries under test, and third-party programs such as routers and a
//! browser.

pub mod binaries;
pub mod browser;
pub mod engine;
pub mod haproxy;
pub mod nginx;
pub mod process;
pub mod requirements;
pub mod routers;
pub mod wall_clock;
