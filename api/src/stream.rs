//! Streaming responses: the feed of each agent, and the cache of changes that watches share.

pub(crate) mod node_feed;
pub(crate) mod watching;
