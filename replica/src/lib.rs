//! Objects of the cluster in a program that serves traffic from them: a watch of any of the control servers, and the
//! last state on disk, with which the program begins while no control server is reachable.
//!
//! ```text
//! control server ──watch──▶ Follower ──▶ StateSink (of the program) ──▶ state ──▶ Journal (disk)
//!                                                                        ▲───────────┘ at start
//! ```
//! Invariants: the state changes only at complete revisions. Without a control server, the last state stays in use. The
//! file is complete or absent.

mod control;
mod follow;
mod journal;
mod private_file;
mod secrets;

pub use self::{
    control::ControlArgs,
    follow::{Follower, StateSink},
    journal::Journal,
    private_file::PrivateFile,
    secrets::{SecretFollower, SecretList, SecretSink},
};
