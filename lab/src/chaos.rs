//! Faults under load, and checks of the recorded histories.

pub mod histories;
pub mod servers;
pub mod soak;
