//! API documents for users: explanations, the overview, and drains.

pub mod drains;
pub mod explain;
pub mod overview;
