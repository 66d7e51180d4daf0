//! Long answers: the feed of each agent, and the batches that watches share.

pub(crate) mod node_feed;
pub(crate) mod watching;
