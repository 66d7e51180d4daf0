//! Control servers under load while they and their store are killed, paused and cut off, and what everybody saw of it.
//!
//! ```text
//! client namespace                    fabric                 a namespace each
//! writers, watchers, an agent's feed ───┬─── control server 1..n ──▶ store (a file, or etcd members in namespaces too)
//!                                       └─── faults: SIGKILL, SIGSTOP, unplugged, cut off from the store
//! ```
//! A [`round::Round`] is one seed: objects of a namespace of its own, faults that follow from the seed, a time without
//! faults at the end, and a [`crate::histories::History`] of it. Servers go on from round to round.
//!
//! What the seed decides is what is asked and which faults come; when each is answered is up to the machine, so that a seed
//! repeats a storm and not its every drop.

pub mod faults;
pub mod feeders;
pub mod round;
pub mod site;
pub mod watchers;
pub mod writers;
