//! The nouns and the pure verbs of Tidegate.
//!
//! Kinds, admission, allocation, compilation, the packet program and the roll-up of status. There is no runtime here, no
//! I/O, no clock and no randomness: time and entropy are arguments, so that every answer can be had again from its
//! inputs. What may be absent on the other side of a wire is an `Option` here; what must be valid is a type that cannot
//! be otherwise.

pub mod admission;
pub mod bgp;
pub mod cluster;
pub mod compile;
pub mod kinds;
pub mod observed;
pub mod primitives;
pub mod program;
pub mod views;
pub mod wire;
