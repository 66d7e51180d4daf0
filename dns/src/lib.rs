//! `tidegate-dns`: answers questions for the names of Services from the state of the cluster, and forwards other
//! questions to upstream servers.
//!
//! ```text
//! control server ──watch──▶ state ──▶ Zone (model) ──▶ notify ──▶ secondary name servers
//!                                        │
//! client ──UDP, TCP──▶ listen ──▶ responder ──▶ answer (model) ──▶ message ──▶ client
//!                                        └──▶ forward (cache) ──▶ upstream server
//! ```
//! Invariants: no answer waits for a control server, and answers go on while none is reachable. Before the state is
//! known, a question fails with SERVFAIL: NXDOMAIN would be cached by clients, and a forwarded name might be that of a
//! DnsZone. Answers
//! of the cluster zone are computed for each question and never cached; those of upstream servers are. Every message,
//! connection and forwarded question is limited in size, number and time.

pub mod args;
mod forward;
#[cfg(test)]
#[path = "../../fuzz/src/dns.rs"]
pub mod fuzz_properties;
mod keys;
mod listen;
mod message;
mod metrics;
mod notify;
mod responder;
pub mod run;
mod serve;
mod state;
mod update;
