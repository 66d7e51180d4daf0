//! `tidegate-dns`: answers questions for the names of Services from the state of the cluster, and forwards other
//! questions to upstream servers.
//!
//! ```text
//! control server ──watch──▶ follow, announced ──▶ Zone (model) ◀── journal (disk, at start)
//!                                        │
//! client ──UDP, TCP──▶ listen ──▶ responder ──▶ answer (model) ──▶ message ──▶ client
//!                                        └──▶ forward (cache) ──▶ upstream server
//! ```
//! Invariants: no answer waits for a control server, and answers go on while none is reachable. Before the state is
//! known, a question in the cluster zone fails with SERVFAIL, never with NXDOMAIN, which clients would cache. Answers
//! of the cluster zone are computed for each question and never cached; those of upstream servers are. Every message,
//! connection and forwarded question is limited in size, number and time.

mod announced;
pub mod args;
mod follow;
mod forward;
#[cfg(test)]
#[path = "../../fuzz/src/dns.rs"]
pub mod fuzz_properties;
mod journal;
mod listen;
mod message;
mod metrics;
mod responder;
pub mod run;
mod serve;
