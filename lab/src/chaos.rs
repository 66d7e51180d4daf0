//! Tests that inject faults under load: a consistency test of control servers and their store, and a soak
//! test of a whole cluster.

pub mod histories;
pub mod servers;
pub mod soak;
