//! Interfaces of the Linux kernel that the node agent uses: netlink, packet sockets and socket options.
//!
//! ```text
//!  netlink (socket, message format) ◀── nftables   messages, expressions and transactions of nf_tables
//!                                   ◀── conntrack  flows, deletions, challenges to clients
//!                                   ◀── links      interfaces and addresses, with the crate rtnetlink
//!                                   ◀── service_routes  routes to the Service ranges
//!                                   ◀── owner_routes    routes to the nodes that translate connections
//!  socket_option, packet: system calls without a safe wrapper in the libraries used
//! ```
//! Invariants: this crate contains no policy. Codecs are pure and total: a malformed message is an error,
//! never a panic. All unsafe code of the agent is in `socket_option` and `packet`, behind functions that are
//! sound for every argument.

pub mod connection_error;
pub mod conntrack;
pub mod links;
pub mod netlink;
pub mod nftables;
pub mod owner_routes;
pub mod packet;
pub mod service_routes;
pub mod socket_option;
