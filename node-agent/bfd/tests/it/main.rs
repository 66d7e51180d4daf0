//! Integration tests of the BFD codec and session.

mod authentication;
mod machine;
mod properties;
mod support;
mod wire;
