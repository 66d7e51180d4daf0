//! Services with backends for tests and demonstrations.

pub mod scene;
pub mod teams;
