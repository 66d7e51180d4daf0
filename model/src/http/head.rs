//! Parts of a request.

use std::borrow::Cow;

use crate::primitives::quantity::Port;

/// Parts of a request on which the decision depends.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// Port of the listener that received the request.
    pub port: Port,
    /// Server name of the TLS connection in lower case, which is empty if the client sent none; `None` without TLS.
    pub server_name: Option<&'a str>,
    /// Method of the request.
    pub method: &'a str,
    /// Host name as returned by [`normalize_host`](super::normalize_host); empty if the request has none.
    pub host: &'a str,
    /// Path, which begins with `/`, without the query.
    pub path: &'a str,
    /// Query without the question mark, if any.
    pub query: Option<&'a str>,
    /// Returns the value of the header with a name in lower case. Values of repeated headers are joined by commas.
    pub header: &'a dyn Fn(&str) -> Option<Cow<'a, str>>,
}
