//! Basic modules that other modules use: configuration, errors as problem details (RFC 9457), clock and
//! random numbers, entity tags, content negotiation, streaming bodies, requests to other servers, files of the status page.

pub(crate) mod assets;
pub(crate) mod body_stream;
pub mod clock_and_random;
pub mod config;
pub(crate) mod error;
pub(crate) mod etag;
pub(crate) mod hex;
pub(crate) mod negotiate;
pub(crate) mod outgoing;
