//! Gate in front of the HTTP server: passes only requests that cannot be read in two ways, and ends connections that
//! are too slow.

mod machine;
mod stream;

pub(crate) use self::{
    machine::HEAD_BYTES_MAX,
    stream::{ConnectionState, GateStream, GateTimes, HttpVersion, OpenRequest},
};
