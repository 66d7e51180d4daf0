//! Client of the control API, shared by the CLI, the adapters, the agents and the lab.
//!
//! ```text
//! Connection ─▶ Client ─▶ send, list        one response, parsed as JSON
//! (servers,      │        download          response of any size, in chunks
//!  TLS, token)   │        stream ─▶ Stream  JSON lines until the server closes the stream
//!                └─ after a failure: next server, or an Error
//! ```
//! An [`Error`] is a rejection by the server, a missing response, or a response that does not come from the
//! control API. Programs that choose the server of each request themselves use [`http`], [`Lines`] and
//! [`Backoff`] directly.
//!
//! Invariants: the size and time of every response are limited. A write is sent twice only if the first
//! server cannot have received it, or if the program declares its writes repeatable. Control servers are
//! contacted directly: proxy variables of the environment are ignored, and redirects are not followed. A
//! token is never sent unencrypted to another machine.

mod client;
mod connection;
mod error;
mod fetch;
pub mod http;
mod lines;
mod problem;
mod request;
pub mod socket;
mod stream;
mod token;

pub use base::{backoff::Backoff, chain};
pub use reqwest::{Method, Url};
pub use tls_trust::{Pin, Trust};

pub use self::{
    client::{Client, Failover, Limits, Listing, OnSend, Options},
    connection::{Connection, Identity, SERVERS_MAX, SetupError},
    error::{Error, root_cause},
    fetch::fetch,
    lines::{LineBuffer, LineTooLong, Lines, StreamError},
    problem::{Problem, Violation},
    request::{Body, LATEST, MIN_POSITION, Request},
    stream::Stream,
    token::{TOKEN_REMEDY, Token, TokenError, TokenSource},
};
