//! Who may do what: what a connection and a token prove, and what that allows.
//!
//! ```text
//! serve: TLS, client certificate ─▶ ClientCertificate ┐
//!                      Authorization: Bearer … ───────┴─▶ Desk ─▶ Access ─┬▶ permission of the route
//!                                  vault: tokens, roles ──┘               ├▶ each object of a write, in `mutate`
//!                                                                         └▶ each object that is shown
//! ```
//! Nothing here rests on what a browser adds by itself (cookies, passwords), so no foreign page can ask in anybody's name.

pub(crate) mod access;
mod bootstrap;
pub(crate) mod ca;
pub(crate) mod certificates;
mod csr;
mod desk;
mod directory;
pub(crate) mod enrol;
mod identity;
pub(crate) mod permission;
mod rates;
pub(crate) mod roles;
pub(crate) mod secrets;
pub(crate) mod tls;
pub(crate) mod tokens;
pub(crate) mod vault;
mod writes;

pub(crate) use access::Access;
pub use bootstrap::{BootstrapError, bootstrap};
pub(crate) use desk::Desk;
pub use identity::ClientCertificate;
pub(crate) use identity::Identity;
pub(crate) use permission::{Permission, Subject, Verb, each, on};
