//! Consistency test of control servers under load: control servers and members of their etcd store are
//! killed, suspended and disconnected, also in one direction, and the system clocks of the servers differ and jump,
//! while all observations of the clients are recorded.
//!
//! ```text
//! client namespace                    fabric                 one namespace each
//! writers, watchers, an agent's feed ───┬─── control server 1..n ──▶ store (a file, or etcd members in namespaces too)
//!                                       └─── faults: SIGKILL, SIGSTOP, unplugged, packets dropped, clock moved
//! ```
//! The test consists of rounds, each with its own seed ([`round::Round`]). In a round, clients use objects in a
//! separate API namespace, first during faults that the seed determines, then without faults. The result is a
//! [`History`](crate::chaos::histories::History) of their observations. Servers keep running between rounds.
//!
//! The seed determines the requests and the faults. Response times depend on the machine, so a seed does not
//! reproduce the exact interleaving.

pub mod faults;
pub mod feeders;
pub mod round;
pub mod site;
pub mod watchers;
pub mod writers;
