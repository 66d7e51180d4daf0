//! Compiled rules of network policy, and the workloads to which they apply, in the form that nodes receive.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::node_policy::Direction;
use crate::{
    kinds::{
        attachment::WorkloadKey,
        resource::{Kind, Object, ObjectKey},
        service::Protocol,
    },
    primitives::{
        name::{Name, Namespace, parse_namespaced},
        quantity::Revision,
    },
};

/// Number of hexadecimal digits of a content id.
const CONTENT_ID_DIGITS: usize = 16;

/// Id of compiled content: the first 64 bits of the SHA-256 hash of the content, written as 16 hexadecimal digits.
/// Equal content has equal ids on all control servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentId(u64);

/// Error: a text is not a content id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {CONTENT_ID_DIGITS} hexadecimal digits in lower case")]
pub struct ContentIdError;

impl ContentId {
    /// Smallest id: every other id sorts after it.
    pub const MIN: Self = Self(0);

    /// Creates an id from its 64 bits.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the 64 bits of the id.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the id of content, which is hashed in its JSON form.
    ///
    /// # Panics
    /// Never panics: compiled content has string keys only.
    #[must_use]
    pub fn of(content: &impl Serialize) -> Self {
        let text = serde_json::to_vec(content).expect("compiled content has string keys only");
        let bytes = Sha256::digest(text);
        Self(bytes.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

impl FromStr for ContentId {
    type Err = ContentIdError;

    fn from_str(text: &str) -> Result<Self, ContentIdError> {
        let is_canonical = text.len() == CONTENT_ID_DIGITS
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let bits = u64::from_str_radix(text, 16).ok().filter(|_| is_canonical);
        bits.map(Self).ok_or(ContentIdError)
    }
}

impl TryFrom<String> for ContentId {
    type Error = ContentIdError;

    fn try_from(text: String) -> Result<Self, ContentIdError> {
        text.parse()
    }
}

impl From<ContentId> for String {
    fn from(id: ContentId) -> Self {
        id.to_string()
    }
}

/// Namespace and name of a NetworkPolicy, which identify it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicyKey {
    /// Namespace of the NetworkPolicy.
    pub namespace: Namespace,
    /// Name of the NetworkPolicy.
    pub name: Name,
}

impl PolicyKey {
    /// Returns the key of a NetworkPolicy; `None` for an object of another kind.
    #[must_use]
    pub fn of(object: &Object) -> Option<Self> {
        object.as_network_policy()?;
        Some(Self { namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone() })
    }

    /// Returns the key of the NetworkPolicy among the objects of all kinds.
    #[must_use]
    pub fn object_key(&self) -> ObjectKey {
        ObjectKey {
            kind: Kind::NetworkPolicy,
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl TryFrom<String> for PolicyKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_namespaced(&text).map(|(namespace, name)| Self { namespace, name })
    }
}

impl From<PolicyKey> for String {
    fn from(key: PolicyKey) -> Self {
        key.to_string()
    }
}

/// Compiled rules for one direction of some workloads. Workloads to which the same rules apply share a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySet {
    /// Id of the set: a hash of the other fields, as 16 hexadecimal digits.
    #[schema(value_type = String, example = "0123456789abcdef")]
    pub id: ContentId,
    /// True if a NetworkPolicy selects the workloads for this direction: connections that no rule accepts are
    /// dropped.
    pub isolated: bool,
    /// Rules in the order of evaluation.
    pub rules: Vec<PolicyRule>,
}

impl PolicyWorkload {
    /// Returns the set of a direction; `None` if no policy selects the workload for it.
    #[must_use]
    pub const fn set(&self, direction: Direction) -> Option<ContentId> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

impl PolicySet {
    /// Creates a set with the id of its content.
    #[must_use]
    pub fn new(isolated: bool, rules: Vec<PolicyRule>) -> Self {
        Self { id: ContentId::of(&(isolated, &rules)), isolated, rules }
    }
}

/// Rule of a set: the action for connections with some peers, to some ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// Tier of the rule, which determines its precedence.
    pub tier: Tier,
    /// Action for the connections that match the rule.
    pub action: RuleAction,
    /// Other ends of the connections: the source of ingress, the destination of egress.
    pub peer: Peer,
    /// Destination ports of the connections. Absent if the rule matches every protocol and port, also ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortMatch>,
    /// Policy and rule from which this rule was compiled.
    pub source: RuleSource,
}

/// Tier of a rule: `Admin` (before namespaces), `Namespace` (NetworkPolicies) or `Baseline` (for connections about which
/// no NetworkPolicy decides).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum Tier {
    /// Rules before those of namespaces: the first that matches decides.
    Admin,
    /// Rules of NetworkPolicies: any that matches accepts.
    Namespace,
    /// Rules for connections about which no NetworkPolicy decides: the first that matches decides.
    Baseline,
}

/// Action of a rule: `Accept`, `Deny` (drop) or `Pass` (continue with the next tier).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum RuleAction {
    /// The direction accepts the connection.
    Accept,
    /// The connection is dropped.
    Deny,
    /// The next tier decides.
    Pass,
}

/// Other ends of connections to which a rule applies. The field `type` selects the variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Peer {
    /// Every address, also outside of the cluster.
    Any,
    /// Workloads whose field `peers` contains the id.
    Workloads {
        /// Id of the selector, as 16 hexadecimal digits.
        #[schema(value_type = String)]
        id: ContentId,
    },
    /// Addresses of a network, except those of some networks in it. Workloads with such an address match as well.
    Network {
        /// Network of the matched addresses, such as `10.0.0.0/8`.
        #[schema(value_type = String)]
        cidr: IpNet,
        /// Networks within `cidr` whose addresses do not match.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        #[schema(value_type = Vec<String>)]
        except: BTreeSet<IpNet>,
    },
}

/// Range of destination ports of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortMatch {
    /// Transport protocol of the connections: `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// First port of the range; 0 if the rule matches all ports of the protocol.
    pub first: u16,
    /// Last port of the range, not below `first`.
    pub last: u16,
}

/// Policy and rule from which a compiled rule was derived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleSource {
    /// NetworkPolicy with the rule, as `namespace/name`.
    #[schema(value_type = String)]
    pub policy: PolicyKey,
    /// Index of the rule in `ingress` or `egress` of the policy, from 0.
    pub rule: u32,
}

/// Workload with the policy that applies to it, as sent to nodes. Workloads without sets and peers are not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyWorkload {
    /// Namespace and name of the Workload, as `namespace/name`.
    #[schema(value_type = String)]
    pub workload: WorkloadKey,
    /// Revision of the last change to this data.
    pub revision: Revision,
    /// Addresses of the Workload, without those of Nodes.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// Name of the Node on which the Workload runs. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Ids of the peer selectors that match the Workload.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub peers: BTreeSet<ContentId>,
    /// Id of the set for connections to the Workload. Absent if no policy selects it for ingress: all are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ingress: Option<ContentId>,
    /// Id of the set for connections of the Workload. Absent if no policy selects it for egress: all are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub egress: Option<ContentId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_depends_on_the_content_alone_and_has_one_text_form() {
        let rule = |name: &str| PolicyRule {
            tier: Tier::Namespace,
            action: RuleAction::Accept,
            peer: Peer::Any,
            ports: Some(PortMatch { protocol: Protocol::Tcp, first: 80, last: 80 }),
            source: RuleSource { policy: format!("default/{name}").try_into().unwrap(), rule: 0 },
        };
        let set = PolicySet::new(true, vec![rule("a")]);
        assert_eq!(set.id, PolicySet::new(true, vec![rule("a")]).id);
        assert_ne!(set.id, PolicySet::new(true, vec![rule("b")]).id);
        assert_ne!(set.id, PolicySet::new(false, vec![rule("a")]).id);
        // A server of another version must compute the same id.
        assert_eq!(set.id.to_string(), "c58c755a9e5bdedf");
        assert_eq!(set.id.to_string().parse(), Ok(set.id));
        assert_eq!(ContentId::new(1).to_string(), "0000000000000001");
        for bad in ["", "1", "000000000000000G", "000000000000000A", "+000000000000001", "00000000000000011"]
        {
            assert_eq!(bad.parse::<ContentId>(), Err(ContentIdError), "{bad}");
        }
    }
}
