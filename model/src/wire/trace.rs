//! Possible outcomes of one packet, according to the desired state and according to the kernel of a node
//! (trace).

use std::{collections::BTreeSet, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{kinds::service::Protocol, primitives::quantity::Port, program::oracle::Fate};

/// Maximum number of steps in a trace.
pub const STEPS_MAX: usize = 256;
/// Maximum number of possible outcomes in a trace. If there may be more, they are not compared with those of
/// the desired state.
pub const ENDS_MAX: usize = 4096;
/// Maximum number of endpoints that the text form of a packet trace lists.
const ENDS_WRITTEN_MAX: usize = 6;

/// First packet of a connection: source, destination, protocol and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Packet {
    /// Source address of the packet.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Destination address of the packet.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// Destination port, from 1 to 65,535.
    pub port: Port,
}

/// Outcome for a packet according to the kernel objects of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Traced)]
pub struct PacketTrace {
    /// Steps by which the kernel handles the packet, in order, at most 256.
    #[schema(max_items = 256)]
    pub steps: Vec<TraceStep>,
    /// Description of the possible outcomes for users, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub fate: String,
    /// Possible outcomes, at most 4096, for comparison with those of the desired state.
    #[schema(max_items = 4096)]
    pub ends: BTreeSet<End>,
}

/// Step of a trace: one kernel rule or object that handles the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceStep {
    /// Location of the step: a hook and chain, a virtual server or a listener, at most 256 bytes.
    #[schema(max_length = 256)]
    pub place: String,
    /// Kernel rule, set element or table entry that handles the packet, in the format of the tool of the
    /// kernel subsystem, such as `nft`, at most 4096 bytes.
    #[schema(max_length = 4096)]
    pub rule: String,
    /// Effect of the step on the packet, at most 1024 bytes.
    #[schema(max_length = 1024)]
    pub result: String,
    /// True if the kernel object of this step is not as programmed: it is missing, or another program created or
    /// changed it.
    pub odd: bool,
}

/// Possible outcome of a packet. A packet has several if the kernel selects one of several endpoints for the
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The packet reaches the contained endpoint.
    Reaches {
        /// Address of the endpoint.
        #[schema(value_type = String)]
        address: IpAddr,
        /// Port of the endpoint.
        port: Port,
        /// Source address of the packet when it arrives at the endpoint: `client` or `node`.
        sees: VisibleSource,
    },
    /// A listener at the contained port of the node receives the packet.
    Relayed(Port),
    /// The packet is rejected with a response.
    Refused,
    /// The packet is dropped without a response.
    Dropped,
    /// The packet passes unchanged, because no rule of a Service applies to it.
    Untouched,
    /// The outcome cannot be determined; contains the reason.
    Unknown(String),
}

/// Source address of a packet when it arrives at an endpoint: `client` (the address of the client) or `node`
/// (the address of the node, after masquerading).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Seen)]
pub enum VisibleSource {
    /// The address of the client.
    Client,
    /// The address of the node, after masquerading.
    Node,
}

impl End {
    /// Returns the reason why the outcome cannot be determined; `None` if it can.
    #[must_use]
    pub const fn unknown(&self) -> Option<&String> {
        match self {
            Self::Unknown(why) => Some(why),
            Self::Reaches { .. } | Self::Relayed(_) | Self::Refused | Self::Dropped | Self::Untouched => None,
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, port } = self;
        let to = std::net::SocketAddr::new(*destination, port.get());
        write!(f, "{source} -> {to}/{}", protocol.as_str().to_lowercase())
    }
}

/// Converts `fate`, the result of the oracle (the interpreter of packet programs) for a packet, to its possible
/// outcomes. If `is_from_node` is true, the endpoint sees the node as the source even without masquerading.
/// `is_own` returns true for addresses of the node. An endpoint at such an address sees the client even if the
/// verdict is to masquerade, because a packet that is delivered locally does not pass the postrouting hook.
#[must_use]
pub fn ends(fate: &Fate, is_from_node: bool, is_own: impl Fn(IpAddr) -> bool) -> BTreeSet<End> {
    match fate {
        Fate::Untouched => BTreeSet::from([End::Untouched]),
        Fate::Reject => BTreeSet::from([End::Refused]),
        Fate::Drop => BTreeSet::from([End::Dropped]),
        Fate::Relay(port) => BTreeSet::from([End::Relayed(*port)]),
        Fate::Forward { targets, is_masqueraded, hairpins } => {
            let reaches = |(address, port): &(IpAddr, Port)| {
                let is_node =
                    is_from_node || ((*is_masqueraded || hairpins.contains(address)) && !is_own(*address));
                let sees = if is_node { VisibleSource::Node } else { VisibleSource::Client };
                End::Reaches { address: *address, port: *port, sees }
            };
            targets.keys().map(reaches).collect()
        }
    }
}

/// Describes the possible outcomes of a packet in one sentence. If there are many endpoints, only the first
/// are listed, followed by the number of the others.
#[must_use]
pub fn words(ends: &BTreeSet<End>) -> String {
    let mut parts = Vec::new();
    for seen in [VisibleSource::Client, VisibleSource::Node] {
        let reached = ends.iter().filter_map(|end| match end {
            End::Reaches { address, port, sees } if *sees == seen => {
                Some(std::net::SocketAddr::new(*address, port.get()).to_string())
            }
            End::Reaches { .. }
            | End::Relayed(_)
            | End::Refused
            | End::Dropped
            | End::Untouched
            | End::Unknown(_) => None,
        });
        let reached: Vec<_> = reached.collect();
        if reached.is_empty() {
            continue;
        }
        let who = match seen {
            VisibleSource::Client => "the client",
            VisibleSource::Node => "the node",
        };
        let more = reached.len().saturating_sub(ENDS_WRITTEN_MAX);
        let more = if more > 0 { format!(" or {more} more") } else { String::new() };
        let listed: Vec<_> = reached.into_iter().take(ENDS_WRITTEN_MAX).collect();
        parts.push(format!("goes to {}{more}, seen as {who}", listed.join(" or ")));
    }
    for end in ends {
        match end {
            End::Reaches { .. } => {}
            End::Relayed(port) => parts.push(format!("is received by the listener at port {port}")),
            End::Refused => parts.push("is refused".to_owned()),
            End::Dropped => parts.push("is dropped without an answer".to_owned()),
            End::Untouched => {
                parts.push("is left to the node: no rule of a Service applies to it".to_owned())
            }
            End::Unknown(why) => parts.push(format!("cannot be followed: {why}")),
        }
    }
    if parts.is_empty() { "has no outcome".to_owned() } else { parts.join("; or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_in_words_say_where_to_and_as_whom() {
        let port = |number| Port::new(number).unwrap();
        let at = |last| (IpAddr::from([10, 0, 0, last]), port(8080));
        let targets =
            [1, 2].map(|last| (at(last), crate::primitives::quantity::Weight(1))).into_iter().collect();
        let hairpins = BTreeSet::from([at(2).0]);
        let fate = Fate::Forward { targets, is_masqueraded: false, hairpins };
        let text = "goes to 10.0.0.1:8080, seen as the client; or goes to 10.0.0.2:8080, seen as the node";
        let none_own = |_| false;
        assert_eq!(words(&ends(&fate, false, none_own)), text);
        assert_eq!(
            words(&ends(&fate, true, none_own)),
            "goes to 10.0.0.1:8080 or 10.0.0.2:8080, seen as the node"
        );
        assert_eq!(words(&ends(&Fate::Drop, false, none_own)), "is dropped without an answer");
    }
}
