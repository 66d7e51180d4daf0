//! Tests that inject faults under load: a consistency test of control servers and their store, a soak test of a whole
//! cluster, and an upgrade from another version.

pub mod histories;
pub mod servers;
pub mod soak;
pub mod upgrade;
