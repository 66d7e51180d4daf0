//! Domain code of Tidegate: the objects of the API, and the pure functions that derive all other data from them.
//!
//! The crate has no runtime, I/O, clock or randomness. Time and random seeds are arguments, so every result can be
//! reproduced from its inputs. Values that a message may omit are `Option`; all other types are valid by
//! construction.

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
