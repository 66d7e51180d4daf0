//! Reasons why a node is no candidate for an address, or why an address has no candidate, in machine-readable form
//! and as messages.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use super::{AddressEvaluation, Eligibility};
use crate::{
    kinds::{condition_reason::ConditionReason, resource::ServiceKey},
    primitives::{name::Name, quantity::Timestamp},
};

/// Maximum number of nodes listed by name in the status of an address.
const LISTED_MAX: usize = 10;

/// Reason why a node is no candidate for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IneligibleReason {
    /// No Node with this name exists.
    NoNode,
    /// No Service has the address.
    NoService,
    /// The Node is `unschedulable`, or in drain or maintenance.
    Drained,
    /// No agent has ever reported for the Node.
    NeverReported,
    /// The agent of the Node has not reported within the lease. Contains the time of its last report, if any.
    Silent(Option<Timestamp>),
    /// No Advertisement that covers the address selects the Node.
    NotSelected,
    /// None of the networks of the Node contains this address.
    NoSubnet(IpAddr),
    /// The Node has an interface in the network of the address, but the Advertisements do not list it in
    /// `interfaces`.
    NoInterface,
    /// The Node has no address of its own in the network of the load balancer address, so other candidates could
    /// not monitor it.
    NoOwnAddress,
    /// This address is configured on an interface of the Node, whose kernel replies to requests for it.
    OnInterface(IpAddr),
    /// No Service that has the address is programmed on the nodes.
    NothingExposed,
    /// The Node failed to program this Service, which has the address; contains the error message.
    Failed(ServiceKey, String),
    /// The Node has not yet verified, by reading its kernel, that this Service with the address is
    /// programmed.
    NotVerified(ServiceKey),
    /// This Service with the address has external traffic policy Local, and no ready endpoint on the Node.
    NoLocalEndpoint(ServiceKey),
}

impl fmt::Display for IneligibleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("there is no such Node"),
            Self::NoService => f.write_str("no Service has the address"),
            Self::Drained => {
                f.write_str("it is being drained (spec.unschedulable or spec.maintenance)")
            }
            Self::NeverReported => f.write_str("no agent has reported for it"),
            Self::Silent(Some(at)) => write!(f, "its agent has not reported since {at}"),
            Self::Silent(None) => f.write_str("its agent does not report"),
            Self::NotSelected => f.write_str("no Advertisement of the address selects it"),
            Self::NoSubnet(address) => write!(f, "none of its networks contains {address}"),
            Self::NoInterface => f.write_str(
                "the network of the address is on an interface that its Advertisements do not name",
            ),
            Self::NoOwnAddress => f.write_str(
                "it has no address of its own in the network of the address, which other candidates could monitor",
            ),
            Self::OnInterface(address) => write!(
                f,
                "{address} is configured on one of its interfaces; remove it there, or exclude it from the pool"
            ),
            Self::NothingExposed => f.write_str("no Service of the address is programmed anywhere"),
            Self::Failed(service, message) => write!(f, "Service {service} failed there: {message}"),
            Self::NotVerified(service) => write!(f, "it has not verified Service {service} yet"),
            Self::NoLocalEndpoint(service) => {
                write!(f, "Service {service} has externalTrafficPolicy Local and no ready endpoint on it")
            }
        }
    }
}

/// Reason why an address has no candidate, as a condition reason with message and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoCandidateReason {
    /// Machine-readable reason of the condition.
    pub reason: ConditionReason,
    /// Message for users.
    pub message: String,
    /// Remedy, as an instruction for the user.
    pub hint: &'static str,
}

impl NoCandidateReason {
    /// Returns the reason for an address that no Advertisement covers.
    #[must_use]
    pub fn no_advertisement(address: IpAddr) -> Self {
        Self {
            reason: ConditionReason::NoAdvertisement,
            message: format!("no Advertisement covers {address}"),
            hint: "create an Advertisement that covers it; if another system routes it to the nodes, set spec.routedExternally of its AddressPool",
        }
    }
}

impl AddressEvaluation {
    /// Returns the reason why no node is a candidate for the address.
    #[must_use]
    pub fn reason(&self, address: IpAddr) -> NoCandidateReason {
        let reasons = || self.nodes.iter().filter_map(|(_, eligibility)| eligibility.reason());
        if !self.is_advertised {
            return NoCandidateReason::no_advertisement(address);
        }
        if self.nodes.is_empty() {
            return NoCandidateReason {
                reason: ConditionReason::NoNodes,
                message: "there are no Nodes".to_owned(),
                hint: "start tidegate-agent on a machine",
            };
        }
        // Nodes without a current report contribute no networks.
        let is_elsewhere = |reason: &IneligibleReason| matches!(reason, IneligibleReason::NoSubnet(_));
        let is_unknown = |reason: &IneligibleReason| {
            matches!(
                reason,
                IneligibleReason::NeverReported | IneligibleReason::Silent(_) | IneligibleReason::NotSelected
            )
        };
        if reasons().any(is_elsewhere) && reasons().all(|reason| is_elsewhere(reason) || is_unknown(reason)) {
            return NoCandidateReason {
                reason: ConditionReason::NoNodeInSubnet,
                message: format!("no network of a node that may announce it contains {address}"),
                hint: "choose a pool inside a network of the nodes, or give a node an interface in the pool's network",
            };
        }
        let listed: Vec<_> =
            self.not_candidates().into_iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
        NoCandidateReason {
            reason: ConditionReason::NoCandidate,
            message: format!("no node can announce {address}; {}", listed.join("; ")),
            hint: "remove one of these obstacles; the announcement follows without further action",
        }
    }

    /// Returns at most ten nodes that are no candidates for the address, each with the reason as a message.
    #[must_use]
    pub fn not_candidates(&self) -> BTreeMap<Name, String> {
        let unfit = self
            .nodes
            .iter()
            .filter_map(|(name, eligibility)| Some((name.clone(), eligibility.reason()?.to_string())));
        unfit.take(LISTED_MAX).collect()
    }
}

impl Eligibility {
    /// Returns the reason why the node is no candidate, or cannot become one now; `None` if it is eligible.
    #[must_use]
    pub const fn reason(&self) -> Option<&IneligibleReason> {
        match self {
            Self::Eligible(_) => None,
            Self::NotReady { reason, .. } | Self::Ineligible(reason) => Some(reason),
        }
    }
}
