//! State that every handler and task shares.

pub mod server_state;
pub(crate) mod sub_states;
