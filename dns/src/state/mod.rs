//! State of the cluster: received from a control server, kept on disk, and numbered for secondary name servers.

mod announced;
mod follow;
mod journal;
mod serial;

pub(crate) use self::{
    announced::AnnouncedFollower,
    follow::{KINDS, ZoneSink},
    journal::{StoredState, journal, load, parts},
};
