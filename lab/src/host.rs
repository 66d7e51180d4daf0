//! Access to facilities of this machine: network namespaces, kernel listings, processes, temporary files, and
//! waiting.

pub mod guest;
pub mod kernel;
pub mod listings;
pub mod machine;
pub mod modes;
pub mod netns;
pub mod random;
pub mod registry;
pub mod scratch;
pub mod shell;
pub mod wait;
