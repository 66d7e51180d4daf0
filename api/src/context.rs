//! State that all handlers and background tasks share.

pub mod server_state;
pub(crate) mod sub_states;
