//! What becomes of one packet, step by step, from what should be and from what the kernel holds.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{kinds::service::Protocol, primitives::quantity::Port, program::oracle::Fate};

/// Steps of one trace.
pub const STEPS_MAX: usize = 256;
/// Ends of one trace; of a packet with more, nothing is compared.
pub const ENDS_MAX: usize = 4096;
/// Ends that are written out in one sentence.
const ENDS_WRITTEN_MAX: usize = 6;

/// The first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Packet {
    /// Where it comes from.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Where it goes.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port.
    pub port: Port,
}

/// What a node's kernel would do with a packet, as read back from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Traced {
    /// The steps, in order.
    #[schema(max_items = 256)]
    pub steps: Vec<TraceStep>,
    /// What becomes of it in the end: the ends in words, as [`words`] makes them.
    #[schema(max_length = 1024)]
    pub fate: String,
    /// The ends that it can have, which is what is compared with those of the desired state.
    #[schema(max_items = 4096)]
    pub ends: BTreeSet<End>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceStep {
    /// Where: a hook and chain, a virtual server, a listener.
    #[schema(max_length = 256)]
    pub place: String,
    /// The rule, element or entry that decides, as the tool of the kernel's part prints it.
    #[schema(max_length = 4096)]
    pub rule: String,
    /// What it leads to.
    #[schema(max_length = 1024)]
    pub result: String,
    /// Whether this is not as it would have been programmed: something is missing, or somebody else's.
    pub odd: bool,
}

/// An end that a packet can have; which of several is left to chance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// It reaches an endpoint.
    Reaches {
        /// The endpoint's address.
        #[schema(value_type = String)]
        address: IpAddr,
        /// The endpoint's port.
        port: Port,
        /// Whom the endpoint sees.
        sees: Seen,
    },
    /// It is handed to a listener of the node.
    Relayed(Port),
    /// It is refused.
    Refused,
    /// It is dropped without an answer.
    Dropped,
    /// No rule of a Service concerns it.
    Untouched,
    /// It cannot be followed to its end, for the reason given.
    Unknown(String),
}

/// Whom an endpoint sees as the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// The client itself.
    Client,
    /// The node.
    Node,
}

impl End {
    /// Why it cannot be followed.
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

/// The ends that a fate means. What the node itself sends comes from the node, translated or not.
#[must_use]
pub fn ends(fate: &Fate, is_from_node: bool) -> BTreeSet<End> {
    match fate {
        Fate::Untouched => BTreeSet::from([End::Untouched]),
        Fate::Reject => BTreeSet::from([End::Refused]),
        Fate::Drop => BTreeSet::from([End::Dropped]),
        Fate::Relay(port) => BTreeSet::from([End::Relayed(*port)]),
        Fate::Forward { targets, is_masqueraded, hairpins } => {
            let reaches = |(address, port): &(IpAddr, Port)| {
                let is_node = *is_masqueraded || is_from_node || hairpins.contains(address);
                let sees = if is_node { Seen::Node } else { Seen::Client };
                End::Reaches { address: *address, port: *port, sees }
            };
            targets.keys().map(reaches).collect()
        }
    }
}

/// The ends in one sentence, which does not tell apart more than so many endpoints.
#[must_use]
pub fn words(ends: &BTreeSet<End>) -> String {
    let mut parts = Vec::new();
    for seen in [Seen::Client, Seen::Node] {
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
            Seen::Client => "the client",
            Seen::Node => "the node",
        };
        let more = reached.len().saturating_sub(ENDS_WRITTEN_MAX);
        let more = if more > 0 { format!(" or {more} more") } else { String::new() };
        let listed: Vec<_> = reached.into_iter().take(ENDS_WRITTEN_MAX).collect();
        parts.push(format!("goes to {}{more}, seen as {who}", listed.join(" or ")));
    }
    for end in ends {
        match end {
            End::Reaches { .. } => {}
            End::Relayed(port) => parts.push(format!("is handed to the listener at port {port}")),
            End::Refused => parts.push("is refused".to_owned()),
            End::Dropped => parts.push("is dropped without an answer".to_owned()),
            End::Untouched => parts.push("is left to the node: no rule of a Service concerns it".to_owned()),
            End::Unknown(why) => parts.push(format!("cannot be followed: {why}")),
        }
    }
    if parts.is_empty() { "has no end".to_owned() } else { parts.join("; or ") }
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
        assert_eq!(words(&ends(&fate, false)), text);
        assert_eq!(words(&ends(&fate, true)), "goes to 10.0.0.1:8080 or 10.0.0.2:8080, seen as the node");
        assert_eq!(words(&ends(&Fate::Drop, false)), "is dropped without an answer");
    }
}
