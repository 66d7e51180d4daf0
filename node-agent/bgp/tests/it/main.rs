//! Integration tests of the BGP codec, session and RIB; `messages` has the support that the modules
//! share.

mod messages;
mod notification;
mod oracles;
mod rfc7606;
mod rib;
mod session;
mod wire;
mod wire_properties;
mod wire_update;
