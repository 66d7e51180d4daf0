//! Domain code of Tidegate: the objects of the API, and the pure functions that derive all other data from them.
//!
//! The crate has no runtime, I/O, clock or randomness. Time and random seeds are arguments, so every result
//! can be reproduced from its inputs. Types such as names, ports and addresses can only be created with valid
//! values; a field that a message may omit is an `Option`.

pub mod admission;
pub mod bgp;
pub mod cluster;
pub mod compile;
pub mod discovery;
pub mod http;
pub mod kinds;
pub mod observed;
pub mod policy;
pub mod primitives;
pub mod program;
pub mod views;
pub mod wire;
