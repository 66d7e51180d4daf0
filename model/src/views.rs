//! Responses of the API that summarize the cluster for users: explanations of packet paths, the overview, and
//! the list of drains.

pub mod drains;
pub mod explain;
pub mod overview;
