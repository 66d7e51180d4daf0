//! The agent of a node: observe → plan → apply → verify → report.

pub mod dataplane;
