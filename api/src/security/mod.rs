//! Authentication and authorization of requests.
//!
//! ```text
//! serve: TLS, client certificate ─▶ ClientCertificate ┐
//!                      Authorization: Bearer … ───────┴▶ Authenticator ─▶ Access ─▶ Caller ─┬▶ permission of the route
//!           cookie of the page ─▶ Sessions ─▶ token ─┘         ▲                           ├▶ each object of a write
//!                                              vault: tokens, roles                         └▶ each returned object
//! ```
//! The [`Authenticator`] derives the permissions of a request ([`Access`]) from its client certificate, token,
//! ID token of OpenID Connect (`oidc`) or session. The permissions are checked for the route, for each object of a write, and for each returned
//! object. Browsers add the session cookie to every request, also to requests triggered by other sites.
//! Mutating requests with a cookie must therefore prove that they come from the status page (`page`), which
//! prevents cross-site request forgery.

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod audit_draft;
pub(crate) mod authenticator;
pub(crate) mod authority;
pub(crate) mod ca;
pub(crate) mod caller;
pub(crate) mod certificates;
mod cookies;
mod csr;
mod directory;
pub(crate) mod enrol;
pub(crate) mod expired;
mod identity;
pub(crate) mod oidc;
pub(crate) mod page;
pub(crate) mod peer_key;
pub(crate) mod permission;
pub(crate) mod rates;
pub(crate) mod roles;
pub(crate) mod secrets;
mod session_id;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod vault;
mod writes;

pub(crate) use access::Access;
pub(crate) use authenticator::{AuthPolicy, Authenticator};
pub(crate) use caller::Caller;
pub use identity::ClientCertificate;
pub(crate) use identity::{EndedCertificate, Identity, LocalClient};
pub(crate) use permission::{Permission, Subject, Verb, each, on};
