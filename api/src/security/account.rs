//! Accounts: the identities to which the resources used by requests are charged.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use super::{Access, Identity, caller::Peer};

/// Identity to which the resources used by a request are charged: a token, a user of OpenID Connect, the
/// agent of a node, or the network of a client without credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Account {
    /// Token with this id; its sessions of the status page are included.
    Token(String),
    /// User of OpenID Connect with this name.
    User(String),
    /// Agent of the named node.
    Agent(String),
    /// Network of a client without credentials ([`network_of`]); `None` for requests without a connection.
    Network(Option<IpAddr>),
}

impl Account {
    /// Returns the account of a caller that is connected from an address.
    pub(crate) fn of(access: &Access, peer: Option<Peer>) -> Self {
        match access.identity() {
            Identity::Token { id, name: _ } => Self::Token(id.clone()),
            Identity::User { name, expires: _ } => Self::User(name.clone()),
            Identity::Agent(node) => Self::Agent(node.to_string()),
            Identity::Anyone | Identity::Nobody => {
                Self::Network(peer.map(|Peer(address)| network_of(address)))
            }
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(_) => f.write_str("this token"),
            Self::User(_) => f.write_str("this user"),
            Self::Agent(_) => f.write_str("this agent"),
            Self::Network(_) => f.write_str("this address"),
        }
    }
}

/// Returns the network whose clients are counted together: the address itself for IPv4, and its /64 network for
/// IPv6, which is usually allocated to one host.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}
