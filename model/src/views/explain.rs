//! Why a packet goes where it goes, and why an address or a Service does not answer: from the desired state, step by step,
//! with the reason of each and the first that is broken. Pure.
//!
//! ```text
//! destination ─▶ announced by whom ─▶ node ─▶ programmed ─▶ frontend ─▶ source ranges ─▶ policy ─▶ affinity
//!                                                                              │
//!                         return path ◀─ translation ◀─ candidates ◀───────────┘
//! ```
//! What becomes of a packet is the oracle's to say (`program::oracle::decide`), so this cannot disagree with it. What a
//! node's kernel holds is asked of the node (`trace`) and compared here.

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
    kinds::{node::ProxyMode, resource::ServiceKey},
    observed::status::{Condition, ConditionStatus},
    primitives::{
        name::{Label, Name},
        quantity::{Port, Weight},
    },
    wire::trace::{End, Packet, TraceStep, Traced, words},
};

pub use self::{
    graph::{GraphForm, graph},
    path::packet,
    whole::{address, service},
};

/// Ways of packets in one answer: each may be asked of a node.
pub const PATHS_MAX: usize = 64;
/// Endpoints that are listed for one way; the counts are of all.
pub const CANDIDATES_MAX: usize = 256;

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked about.
    pub subject: String,
    /// The answer in one sentence; never empty.
    pub summary: String,
    /// The first thing that is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// What holds on every node.
    pub steps: Vec<Step>,
    /// What happens to packets, node by node.
    #[schema(max_items = 64)]
    pub paths: Vec<Path>,
    /// Nodes and frontends that are left out, for want of room.
    #[serde(default)]
    pub paths_omitted: u64,
    /// The chain graph of the Service, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
}

/// Something that is broken, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Broken {
    /// The node; nothing where it holds for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The step.
    pub step: Step,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What it is about.
    pub about: About,
    /// Whether it is as it must be for connections to be served.
    pub state: StepState,
    /// What comes of it.
    pub outcome: String,
    /// Why; empty where the outcome says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum About {
    /// Whose the address is.
    Destination,
    /// Whether the Service is carried out with all its settings.
    Accepted,
    /// Whether the Service has its addresses.
    AddressAssigned,
    /// Who answers for the address on the wire, and which routers are told.
    Announced,
    /// Whether the Service has endpoints.
    EndpointsAvailable,
    /// Whether the node's agent speaks.
    Node,
    /// Whether the node has the Service in its kernel, read back.
    Programmed,
    /// Which frontend the packet meets.
    Frontend,
    /// Whether its source may connect.
    SourceRanges,
    /// What the traffic policies make of where it comes from.
    Policy,
    /// Whether a client stays on an endpoint.
    Affinity,
    /// The endpoints that it can be given.
    Candidates,
    /// Whose address the endpoint sees.
    Translation,
    /// How the answer comes back.
    ReturnPath,
    /// What the node's kernel holds.
    Kernel,
}

/// How a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum StepState {
    /// As it must be.
    Fine,
    /// Connections end here.
    Broken,
    /// Nobody knows.
    Unknown,
}

/// What happens to one packet on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Path {
    /// The node.
    pub node: Name,
    /// Why this node.
    pub chosen: String,
    /// How its agent programs the kernel, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyMode>,
    /// The packet.
    pub packet: Packet,
    /// The Service whose frontend the packet meets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub service: Option<ServiceKey>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The endpoints of the frontend, each with whether and why it can be met.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub candidates: Vec<CandidateEndpoint>,
    /// Endpoints that are not listed.
    #[serde(default)]
    pub candidates_omitted: u64,
    /// What becomes of it by the desired state, in words.
    pub fate: String,
    /// The ends that it can have.
    pub ends: BTreeSet<End>,
    /// What the node's kernel would do, where the node was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSide>,
}

/// An endpoint of the frontend that a packet meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateEndpoint {
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Its port.
    pub port: Port,
    /// Its Node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// Its zone, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Label>,
    /// Its weight.
    pub weight: Weight,
    /// Whether the packet can be given to it.
    pub used: bool,
    /// Why, or why not.
    pub why: String,
}

/// What a node's kernel would do with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelSide {
    /// The steps, as read back from the kernel.
    #[schema(max_items = 256)]
    pub steps: Vec<TraceStep>,
    /// What becomes of it, in words.
    pub fate: String,
    /// The first difference from the desired state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Where the kernel differs from the desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Where in the kernel.
    pub place: String,
    /// The rule, element or entry there.
    pub rule: String,
    /// What should become of the packet and does not.
    pub desired: String,
    /// What becomes of it and should not.
    pub kernel: String,
}

impl Explanation {
    /// Finds the first thing that is broken, and says it in one sentence. What holds on all nodes comes first; one node
    /// on which it works does not make up for another on which it does not.
    #[must_use]
    pub fn concluded(mut self) -> Self {
        let is_broken = |step: &&Step| step.state == StepState::Broken;
        let whole = self.steps.iter().find(is_broken).map(|step| (None, step));
        let of_paths = self
            .paths
            .iter()
            .find_map(|path| path.steps.iter().find(is_broken).map(|step| (Some(path.node.clone()), step)));
        let first = whole.or(of_paths);
        self.broken = first.map(|(node, step)| Broken { node, step: step.clone() });
        self.summary = match &self.broken {
            Some(Broken { node, step }) => {
                let at = node.as_ref().map(|node| format!("on {node}: ")).unwrap_or_default();
                format!("{at}{}", step.sentence())
            }
            None => self.in_order(),
        };
        self
    }

    fn in_order(&self) -> String {
        let all = self.steps.iter().chain(self.paths.iter().flat_map(|path| &path.steps));
        let unknown = all.clone().find(|step| step.state == StepState::Unknown);
        if let Some(step) = unknown {
            return format!("nothing is known to be broken, but {}", step.sentence());
        }
        let fates: BTreeSet<_> = self.paths.iter().map(|path| path.fate.as_str()).collect();
        match (fates.len(), fates.first()) {
            (1, Some(fate)) => format!("the packet {fate}"),
            (0, _) => "nothing is broken, and no node has anything to do with it".to_owned(),
            _ => format!("nothing is broken: {} ways through nodes end as they should", self.paths.len()),
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

    /// A condition as a step.
    fn of(about: About, condition: &Condition) -> Self {
        let Condition { condition_type: _, status, reason, message, hint } = condition;
        let state = match status {
            ConditionStatus::True => StepState::Fine,
            ConditionStatus::False => StepState::Broken,
            ConditionStatus::Unknown => StepState::Unknown,
        };
        let outcome = if message.is_empty() { reason.as_str().to_owned() } else { message.clone() };
        Self { about, state, outcome, why: String::new(), hint: hint.clone() }
    }

    fn sentence(&self) -> String {
        if self.why.is_empty() { self.outcome.clone() } else { format!("{}: {}", self.outcome, self.why) }
    }
}

impl Path {
    /// Takes in what the node says of its kernel, or why it says nothing, and finds the first difference.
    pub fn compare(&mut self, said: Result<Traced, String>) {
        let Traced { steps, fate, ends } = match said {
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
                let hint = "the agent repairs what it finds changed within moments; ask again, and else see its status";
                Step::broken(About::Kernel, outcome).hint(hint)
            }
        });
        self.kernel = Some(KernelSide { steps, fate, difference });
    }

    fn difference(&self, steps: &[TraceStep], ends: &BTreeSet<End>) -> Option<Difference> {
        if *ends == self.ends || ends.len() >= crate::wire::trace::ENDS_MAX {
            return None;
        }
        // What is odd explains what follows; without anything odd, the last step is where the ways part.
        let step = steps.iter().find(|step| step.odd).or_else(|| steps.last());
        let (place, rule) = step.map(|step| (step.place.clone(), step.rule.clone())).unwrap_or_default();
        let only = |some: &BTreeSet<End>, others: &BTreeSet<End>| {
            let left: BTreeSet<End> = some.difference(others).cloned().collect();
            if left.is_empty() { "has no other end".to_owned() } else { words(&left) }
        };
        Some(Difference { place, rule, desired: only(&self.ends, ends), kernel: only(ends, &self.ends) })
    }
}
