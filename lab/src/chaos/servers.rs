//! Consistency test of control servers under load: control servers and members of their etcd store are
//! killed, suspended and disconnected, while all observations of the clients are recorded.
//!
//! ```text
//! client namespace                    fabric                 one namespace each
//! writers, watchers, an agent's feed ───┬─── control server 1..n ──▶ store (a file, or etcd members in namespaces too)
//!                                       └─── faults: SIGKILL, SIGSTOP, unplugged, cut off from the store
//! ```
//! A [`round::Round`] is one seed: objects in a separate namespace, faults derived from the seed, a final phase
//! without faults, and the resulting [`History`](crate::chaos::histories::History). Servers keep running between
//! rounds.
//!
//! The seed determines the requests and the faults. Response times depend on the machine, so a seed does not
//! reproduce the exact interleaving.

pub mod faults;
pub mod feeders;
pub mod round;
pub mod site;
pub mod watchers;
pub mod writers;
