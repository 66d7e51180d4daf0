//! Discovery: the names and variables by which clients find Services.

pub mod environment;
