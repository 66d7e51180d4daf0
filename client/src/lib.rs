//! Client of the control API, shared by the CLI, the adapters, the agents and the lab.
//!
//! ```text
//! Connection ─▶ Client ─▶ send, list        one response, to JSON
//! (servers,      │        download          response of any size, in chunks
//!  TLS, token)   │        stream ─▶ Stream  JSON lines until the server closes
//!                └─ failover ─ Error: rejection, no response, or a response that is not of the API
//! ```
//! Programs that choose the server of each request themselves use [`http`], [`Lines`] and [`Backoff`] directly.
//!
//! Invariants: every response is limited in size and time, and becomes data or an [`Error`]. A write is sent
//! twice only if the first server cannot have received it, or if the program declares its writes repeatable.
//! Control servers are contacted directly: proxy variables of the environment are ignored, and redirects are
//! not followed. A token is never sent unencrypted to another machine.

mod client;
mod connection;
mod error;
pub mod http;
mod lines;
mod problem;
mod request;
mod stream;
mod token;

pub use base::{backoff::Backoff, chain};
pub use reqwest::{Method, Url};
pub use tls_trust::{Pin, Trust};

pub use self::{
    client::{Client, Failover, Limits, Listing, OnSend, Options},
    connection::{Connection, Identity, SERVERS_MAX, SetupError},
    error::{Error, root_cause},
    lines::{LineBuffer, LineTooLong, Lines, StreamError},
    problem::{Problem, Violation},
    request::{Body, MIN_POSITION, Request},
    stream::Stream,
    token::{TOKEN_REMEDY, Token, TokenError, TokenSource},
};
