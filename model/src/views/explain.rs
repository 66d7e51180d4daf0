//! Explanations of the path of a packet, or of the reachability of an address or a Service. An explanation is
//! a list of steps with reasons, and names the first step that fails. The steps of a packet are:
//!
//! ```text
//! destination ─▶ announcement ─▶ node ─▶ programmed ─▶ frontend ─▶ source ranges ─▶ traffic policy
//!                                                                                        │
//!               return path ◀─ address translation ◀─ endpoint candidates ◀─ affinity ◀──┘
//! ```
//! The outcome for a packet is computed by the oracle (the interpreter of packet programs,
//! `program::oracle::decide`), so an explanation cannot contradict the packet programs. The outcome according
//! to the kernel is requested from the node as a trace, and [`Path::compare`] compares the two.

mod candidates;
mod destination;
mod graph;
mod nodes;
mod path;
mod whole;

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    kinds::{condition_reason::ConditionReason, node::ProxyMode, resource::ServiceKey},
    observed::status::{Condition, ConditionStatus},
    primitives::{
        name::{Label, Name},
        quantity::{Port, Weight},
    },
    wire::{
        report::PROBING,
        trace::{End, Packet, PacketTrace, TraceStep, words},
    },
};

pub use self::{
    graph::{GraphForm, graph},
    path::packet,
    whole::{address, service},
};

/// Maximum number of packet paths in one response. The number is limited, because each path may require a
/// request to a node.
pub const PATHS_MAX: usize = 64;
/// Maximum number of endpoints listed for one path; further ones are only counted.
pub const CANDIDATES_MAX: usize = 256;

/// Explanation of a packet, an address or a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Explained object or packet, such as `Service default/web`.
    pub subject: String,
    /// Result in one sentence; never empty.
    pub summary: String,
    /// First broken step; absent if no step is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BrokenStep>,
    /// Steps that are the same for all nodes.
    pub steps: Vec<Step>,
    /// Paths of packets through single nodes; at most 64.
    #[schema(max_items = 64)]
    pub paths: Vec<Path>,
    /// Number of paths beyond the limit of `paths`.
    #[serde(default)]
    pub paths_omitted: u64,
    /// Graph of the treatment of packets to the Service, as Graphviz or Mermaid text, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
}

/// First broken step of an explanation, with its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Broken)]
pub struct BrokenStep {
    /// Node of the step; absent if the step is the same for all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Step that is broken.
    pub step: Step,
}

/// Step of an explanation: one check on the path of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Part of the path that the step examines.
    pub about: About,
    /// State of the step: connections pass the step, fail at it, or the result is unknown.
    pub state: StepState,
    /// Result of the step in a few words.
    pub outcome: String,
    /// Reason for the result; empty if the result needs no reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Remedy; absent if none is needed or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Part of the path that a step examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum About {
    /// Object that has the destination address.
    Destination,
    /// Validity of the Service, and support for all of its settings.
    Accepted,
    /// Allocation of the addresses of the Service.
    AddressAssigned,
    /// Announcement of the address by ARP, NDP or BGP.
    Announced,
    /// Availability of ready endpoints of the Service.
    EndpointsAvailable,
    /// Connection between the control server and the agent of the node.
    Node,
    /// Programming of the Service in the kernel of the node, verified by reading the kernel.
    Programmed,
    /// Frontend (address, protocol and port) that the packet matches.
    Frontend,
    /// Check whether the source ranges of the Service allow the client.
    SourceRanges,
    /// Traffic policy (Cluster or Local) that applies to the source of the packet.
    Policy,
    /// Session affinity, which may determine the endpoint.
    Affinity,
    /// Endpoints that can receive the packet.
    Candidates,
    /// Address translation (NAT) on the way to the endpoint.
    Translation,
    /// Path of the reply back to the client.
    ReturnPath,
    /// Comparison of the outcome with the rules in the node's kernel.
    Kernel,
}

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum StepState {
    /// The step lets connections pass.
    Fine,
    /// Connections fail at this step.
    Broken,
    /// The state of the step is not known.
    Unknown,
    /// Connections fail at this step for a moment, without a fault: the node carries the step out.
    Pending,
}

/// Path of one packet through one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Path {
    /// Name of the node.
    pub node: Name,
    /// Reason why the explanation contains a path through this node.
    pub chosen: String,
    /// Active proxy mode of the node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// Packet whose path is explained.
    pub packet: Packet,
    /// Service whose frontend the packet matches, as `namespace/name`; absent if none matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub service: Option<ServiceKey>,
    /// Steps of the packet on this node, in order.
    pub steps: Vec<Step>,
    /// Endpoints of the frontend that the packet matches, each with the reason why it can or cannot receive
    /// the packet; at most 256.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub candidates: Vec<CandidateEndpoint>,
    /// Number of endpoints beyond the limit of `candidates`.
    #[serde(default)]
    pub candidates_omitted: u64,
    /// Description of the outcome for the packet according to the desired state.
    pub fate: String,
    /// Possible outcomes for the packet according to the desired state.
    pub ends: BTreeSet<End>,
    /// Outcome according to the kernel of the node; absent if the node was not queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSide>,
}

/// Endpoint of the frontend that a packet matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateEndpoint {
    /// IP address of the endpoint.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Port of the endpoint.
    pub port: Port,
    /// Node of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Zone of the endpoint, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Weight of the endpoint for new connections.
    pub weight: Weight,
    /// True if the endpoint can receive the packet.
    pub used: bool,
    /// True if the endpoint can receive the packet although nobody checks if it answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_checked: bool,
    /// Reason why the endpoint can or cannot receive the packet.
    pub why: String,
}

/// Outcome for a packet according to the kernel of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelSide {
    /// Steps that the agent found in the kernel rules; at most 256.
    #[schema(max_items = 256)]
    pub steps: Vec<TraceStep>,
    /// Description of the outcome for the packet according to the kernel.
    pub fate: String,
    /// First difference from the desired state; absent if the outcomes are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Difference between the outcome in the kernel and the outcome of the desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Place in the kernel where the difference occurs, such as a chain or table.
    pub place: String,
    /// Kernel rule, set element or table entry that differs from the desired state.
    pub rule: String,
    /// Outcomes that are possible according to the desired state but not according to the kernel.
    pub desired: String,
    /// Outcomes that are possible according to the kernel but not according to the desired state.
    pub kernel: String,
}

impl Explanation {
    /// Completes the explanation: finds the first broken step and sets `broken` and `summary`. Steps common
    /// to all nodes are examined before the steps of single nodes. A step that is broken on one node counts
    /// even if packets through other nodes reach an endpoint.
    #[must_use]
    pub fn concluded(mut self) -> Self {
        let is_broken = |step: &&Step| step.state == StepState::Broken;
        let whole = self.steps.iter().find(is_broken).map(|step| (None, step));
        let of_paths = self
            .paths
            .iter()
            .find_map(|path| path.steps.iter().find(is_broken).map(|step| (Some(path.node.clone()), step)));
        let first = whole.or(of_paths);
        self.broken = first.map(|(node, step)| BrokenStep { node, step: step.clone() });
        self.summary = match &self.broken {
            Some(BrokenStep { node, step }) => {
                let at = node.as_ref().map(|node| format!("on {node}: ")).unwrap_or_default();
                format!("{at}{}", step.sentence())
            }
            None => self.in_order(),
        };
        self
    }

    fn in_order(&self) -> String {
        let all = self.steps.iter().chain(self.paths.iter().flat_map(|path| &path.steps));
        let pending = all.clone().find(|step| step.state == StepState::Pending);
        if let Some(step) = pending {
            return format!("no step is broken, but one is being carried out: {}", step.outcome);
        }
        let unknown = all.clone().find(|step| step.state == StepState::Unknown);
        if let Some(step) = unknown {
            return format!("no step is known to be broken, but {}", step.sentence());
        }
        let fates: BTreeSet<_> = self.paths.iter().map(|path| path.fate.as_str()).collect();
        match (fates.len(), fates.first()) {
            (1, Some(fate)) => format!("the packet {fate}"),
            (0, _) => "no step is broken, and no node is involved".to_owned(),
            _ => format!("no step is broken: {} paths through nodes end as desired", self.paths.len()),
        }
    }
}

impl Step {
    fn new(about: About, state: StepState, outcome: impl Into<String>) -> Self {
        Self { about, state, outcome: outcome.into(), why: String::new(), hint: None }
    }

    fn fine(about: About, outcome: impl Into<String>) -> Self {
        Self::new(about, StepState::Fine, outcome)
    }

    fn broken(about: About, outcome: impl Into<String>) -> Self {
        Self::new(about, StepState::Broken, outcome)
    }

    fn because(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Creates a step about the part `about` of the path, with the state, message and remedy of a condition.
    fn of(about: About, condition: &Condition) -> Self {
        let Condition { condition_type: _, status, reason, message, hint } = condition;
        // The assigned node probes the address and announces it within moments.
        let is_probing = *reason == ConditionReason::NotYetAnnounced && message.contains(PROBING);
        let hint = hint.clone().filter(|_| !is_probing);
        let state = match status {
            ConditionStatus::True => StepState::Fine,
            ConditionStatus::False if is_probing => StepState::Pending,
            ConditionStatus::False => StepState::Broken,
            ConditionStatus::Unknown => StepState::Unknown,
        };
        let outcome = if message.is_empty() { reason.as_str().to_owned() } else { message.clone() };
        Self { about, state, outcome, why: String::new(), hint }
    }

    fn sentence(&self) -> String {
        if self.why.is_empty() { self.outcome.clone() } else { format!("{}: {}", self.outcome, self.why) }
    }
}

impl Path {
    /// Compares the path with the trace of the packet in the node's kernel, and adds a step with the result.
    /// `said` is the trace, or the reason why the node did not provide one.
    pub fn compare(&mut self, said: Result<PacketTrace, String>) {
        let PacketTrace { steps, fate, ends } = match said {
            Ok(traced) => traced,
            Err(why) => {
                let step =
                    Step::new(About::Kernel, StepState::Unknown, "the kernel was not read").because(why);
                return self.steps.push(step);
            }
        };
        let difference = self.difference(&steps, &ends);
        self.steps.push(match &difference {
            None => Step::fine(About::Kernel, "the kernel does the same, as read back"),
            Some(Difference { place, rule: _, desired: _, kernel }) => {
                let outcome = format!("the kernel differs at {place}: the packet {kernel}");
                let hint = "the agent repairs changes within moments; repeat the command, and otherwise check the agent's status";
                Step::broken(About::Kernel, outcome).hint(hint)
            }
        });
        self.kernel = Some(KernelSide { steps, fate, difference });
    }

    fn difference(&self, steps: &[TraceStep], ends: &BTreeSet<End>) -> Option<Difference> {
        if *ends == self.ends || ends.len() >= crate::wire::trace::ENDS_MAX {
            return None;
        }
        // A step marked as odd explains the difference; without one, it shows at the last step.
        let step = steps.iter().find(|step| step.odd).or_else(|| steps.last());
        let (place, rule) = step.map(|step| (step.place.clone(), step.rule.clone())).unwrap_or_default();
        let only = |some: &BTreeSet<End>, others: &BTreeSet<End>| {
            let left: BTreeSet<End> = some.difference(others).cloned().collect();
            if left.is_empty() { "has no other end".to_owned() } else { words(&left) }
        };
        Some(Difference { place, rule, desired: only(&self.ends, ends), kernel: only(ends, &self.ends) })
    }
}
