//! Tests of the BGP session: a table of all states and events, scenarios, and two sessions that connect to
//! each other.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails by panicking, also in its helpers")]

mod collisions;
mod contract;
mod limits;
mod properties;
mod restarts;
mod scenarios;
mod support;
mod table;
mod timers;
mod words;
mod world;
