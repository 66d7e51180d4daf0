//! Who may do what: what a connection and a token prove, and what that allows.
//!
//! ```text
//! serve: TLS, client certificate ─▶ ClientCertificate ┐
//!                      Authorization: Bearer … ───────┴─▶ Desk ─▶ Access ─┬▶ permission of the route
//!           cookie of the page ─▶ Sessions ─▶ token ─┘                    ├▶ each object of a write, in `mutate`
//!                                  vault: tokens, roles                   └▶ each object that is shown
//! ```
//! A browser adds the cookie by itself, so what may change something needs more besides (`page`): no foreign page can ask in
//! anybody's name.

pub(crate) mod access;
pub(crate) mod ca;
pub(crate) mod certificates;
mod csr;
mod desk;
mod directory;
pub(crate) mod enrol;
mod identity;
pub(crate) mod page;
pub(crate) mod peer_key;
pub(crate) mod permission;
mod rates;
pub(crate) mod roles;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod vault;
mod writes;

pub(crate) use access::Access;
pub(crate) use desk::{Desk, Manners};
pub use identity::ClientCertificate;
pub(crate) use identity::Identity;
pub(crate) use permission::{Permission, Subject, Verb, each, on};
