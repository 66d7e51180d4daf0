//! Explanation of the decision on one connection: the policies and the rule of each direction.

use std::{collections::BTreeSet, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    index::PolicyIndex,
    node_policy::{Attempt, AttemptProtocol, Direction, DirectionVerdict, DropCause},
    set::{PolicyKey, RuleSource},
};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        attachment::WorkloadKey,
        resource::{Kind, ObjectKey},
        service::Protocol,
    },
    primitives::{net::IpFamily, quantity::Port},
};

/// End of a connection in a question: a Workload or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Workload, whose first suitable address counts.
    Workload(WorkloadKey),
    /// Address of a Workload, or outside of the cluster.
    Address(IpAddr),
}

impl FromStr for ConnectionEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let workload = WorkloadKey::try_from(text.to_owned());
        workload
            .map(Self::Workload)
            .map_err(|_| format!("must be NAMESPACE/WORKLOAD or an address, not `{text}`"))
    }
}

/// Connection to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyQuestion {
    /// Client of the connection.
    pub source: ConnectionEnd,
    /// Endpoint of the connection.
    pub destination: ConnectionEnd,
    /// Protocol and port; `None` for an ICMP echo request.
    pub port: Option<(Protocol, Port)>,
}

/// Decision on a connection with the policies and rules on which it is based.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplanation {
    /// True if both directions accept the connection.
    pub accepted: bool,
    /// Client of the connection.
    pub source: ExplainedEnd,
    /// Endpoint of the connection.
    pub destination: ExplainedEnd,
    /// Protocol of the connection. Absent for ICMP echo requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Destination port of the connection. Absent for ICMP echo requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// Decision of the policies of the client.
    pub egress: ExplainedDirection,
    /// Decision of the policies of the endpoint.
    pub ingress: ExplainedDirection,
}

/// End of an explained connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedEnd {
    /// Address of this end of the connection.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Workload with the address, as `namespace/name`; the first of several. Absent if no policy concerns such a Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub workload: Option<WorkloadKey>,
}

/// Decision of one direction on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedDirection {
    /// True if the direction accepts the connection.
    pub accepted: bool,
    /// Reason of the decision.
    pub reason: PolicyReason,
    /// NetworkPolicies that select a Workload with the address for the direction, as `namespace/name`.
    #[schema(value_type = Vec<String>)]
    pub policies: Vec<PolicyKey>,
    /// Rule that decides. Absent if no rule applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleSource>,
}

/// Reason of the decision of a direction: `NotSelected`, `NotEnforced`, `RuleAccepts`, `RuleDenies`, `Isolated`,
/// `UnknownRules` or `SameAddress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum PolicyReason {
    /// No policy selects the Workload for the direction.
    NotSelected,
    /// A policy selects the Workload, but no node enforces it: the Workload has no Node, or has the address of a Node.
    NotEnforced,
    /// A rule accepts the connection.
    RuleAccepts,
    /// A rule denies the connection.
    RuleDenies,
    /// A policy selects the Workload, and no rule accepts the connection.
    Isolated,
    /// The rules of the Workload are unknown.
    UnknownRules,
    /// Connections of a Workload to itself are accepted.
    SameAddress,
}

/// Error of a question that has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyQuestionError {
    /// The Workload does not exist.
    #[error("there is no Workload {0}")]
    NoWorkload(WorkloadKey),
    /// The ends have no addresses of the same IP family.
    #[error("source and destination have no addresses of the same IP family")]
    NoCommonFamily,
}

/// Explains the decision on a connection.
///
/// # Errors
/// Returns an error if a Workload of the question does not exist, or if the ends have no addresses of the same IP family.
pub fn explain_policy(
    index: &PolicyIndex,
    snapshot: &Snapshot,
    question: &PolicyQuestion,
) -> Result<PolicyExplanation, PolicyQuestionError> {
    let PolicyQuestion { source, destination, port } = question;
    let (from, to) = (addresses(snapshot, source)?, addresses(snapshot, destination)?);
    let pairs = from.iter().flat_map(|one| to.iter().map(move |other| (*one, *other)));
    let (source, destination) = pairs
        .into_iter()
        .find(|(one, other)| IpFamily::of(*one) == IpFamily::of(*other))
        .ok_or(PolicyQuestionError::NoCommonFamily)?;
    let policy = index.node_policy(index.holders(source).chain(index.holders(destination)));
    let protocol = port.map_or(AttemptProtocol::Icmp, |(protocol, _)| protocol.into());
    let number = port.map_or(0, |(_, port)| port.get());
    let attempt = Attempt { source, destination, protocol, port: number };
    let explain = |direction: Direction| {
        let own = match direction {
            Direction::Egress => source,
            Direction::Ingress => destination,
        };
        let verdict = policy.judge_direction(direction, &attempt);
        let policies: BTreeSet<_> =
            index.holders(own).flat_map(|key| index.policies_for(key, direction)).collect();
        let policies: Vec<_> = policies.into_iter().collect();
        let (accepted, reason, rule) = match verdict {
            DirectionVerdict::Accept(_) if source == destination => (true, PolicyReason::SameAddress, None),
            DirectionVerdict::Accept(None) if policies.is_empty() => (true, PolicyReason::NotSelected, None),
            DirectionVerdict::Accept(None) => (true, PolicyReason::NotEnforced, None),
            DirectionVerdict::Accept(Some(rule)) => (true, PolicyReason::RuleAccepts, Some(rule)),
            DirectionVerdict::Drop { by: DropCause::Isolation, .. } => (false, PolicyReason::Isolated, None),
            DirectionVerdict::Drop { by: DropCause::UnknownSet, .. } => {
                (false, PolicyReason::UnknownRules, None)
            }
            DirectionVerdict::Drop { by: DropCause::Rule(rule), .. } => {
                (false, PolicyReason::RuleDenies, Some(rule))
            }
        };
        ExplainedDirection { accepted, reason, policies, rule }
    };
    let end = |address: IpAddr| ExplainedEnd { address, workload: index.holders(address).next().cloned() };
    let (egress, ingress) = (explain(Direction::Egress), explain(Direction::Ingress));
    Ok(PolicyExplanation {
        accepted: egress.accepted && ingress.accepted,
        source: end(source),
        destination: end(destination),
        protocol: port.map(|(protocol, _)| protocol),
        port: port.map(|(_, port)| port),
        egress,
        ingress,
    })
}

fn addresses(snapshot: &Snapshot, end: &ConnectionEnd) -> Result<Vec<IpAddr>, PolicyQuestionError> {
    match end {
        ConnectionEnd::Address(address) => Ok(vec![*address]),
        ConnectionEnd::Workload(workload) => {
            let WorkloadKey { namespace, name } = workload.clone();
            let key = ObjectKey { kind: Kind::Workload, namespace: Some(namespace), name };
            let spec = snapshot.get(&key).and_then(|object| object.as_workload());
            let spec = spec.ok_or_else(|| PolicyQuestionError::NoWorkload(workload.clone()))?;
            Ok(spec.addresses.clone())
        }
    }
}
