//! `tidegate-gateway`: accepts HTTP requests and TLS connections at the listeners of Gateways, and forwards them to endpoints
//! of the Services that HttpRoutes and TlsRoutes name.
//!
//! ```text
//! control server ──watch──▶ replica ──▶ HttpState (model) ──▶ listen (ports of the listeners)
//!                                          │
//! client ──▶ listen ──▶ gate ──▶ hyper ──▶ proxy ──route (model)──▶ upstream ──▶ endpoint
//!              └─▶ tls ──route_tls (model)──▶ relay ──────────────────────────────▶ endpoint
//! ```
//! Invariants: no request waits for a control server, and routing goes on while none is reachable. A change of routes or
//! endpoints applies to the next request, without a new process or connection. Every head, connection, attempt and time
//! has a limit. The gate passes only requests of HTTP/1.1 that cannot be read in two ways (RFC 9112 §11.2).

pub mod args;
mod gate;
mod handover;
mod keys;
mod listen;
mod metrics;
mod proxy;
pub mod run;
mod serve;
mod state;
mod tls;
mod upstream;
