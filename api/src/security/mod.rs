//! Who may do what: what a connection and a token prove, and what that allows.
//!
//! ```text
//! serve: TLS, client certificate ─▶ ClientCertificate ┐
//!                      Authorization: Bearer … ───────┴─▶ Identity ─▶ permission of the route, of each object
//! ```

#![allow(dead_code, unused_imports, reason = "wired up by what is built on it next")]

pub(crate) mod ca;
pub(crate) mod certificates;
mod csr;
pub(crate) mod enrol;
mod identity;
pub(crate) mod secrets;
pub(crate) mod tls;
pub(crate) mod vault;

pub(crate) use identity::{ClientCertificate, Identity};
