//! Why a node is no candidate, and why an address has none: as machine words, and in words for people.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use super::{Judgement, Standing};
use crate::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Timestamp},
};

/// Nodes listed by name in the status of an address.
const LISTED_MAX: usize = 10;

/// Why a node is no candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// There is no such Node.
    NoNode,
    /// No Service has the address.
    NoService,
    /// It shall have no announcements.
    Drained,
    /// No agent has ever reported for it.
    NeverReported,
    /// Its agent has not reported for longer than the lease.
    Silent(Option<Timestamp>),
    /// No Advertisement that covers the address selects it.
    NotSelected,
    /// None of its networks holds the address.
    NoSubnet(IpAddr),
    /// The address lies in a network of it, but on an interface that no Advertisement names.
    NoInterface,
    /// It has no address of its own in the network, where the other candidates could watch it.
    NoOwnAddress,
    /// No Service of the address is to be programmed.
    NothingExposed,
    /// A Service of the address failed there.
    Failed(ServiceKey, String),
    /// A Service of the address has not been read back there yet.
    NotVerified(ServiceKey),
    /// A Service with the policy Local has no ready endpoint there.
    NoLocalEndpoint(ServiceKey),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("there is no such Node"),
            Self::NoService => f.write_str("no Service has the address"),
            Self::Drained => {
                f.write_str("it takes no announcements (spec.unschedulable or spec.maintenance)")
            }
            Self::NeverReported => f.write_str("no agent has reported for it"),
            Self::Silent(Some(at)) => write!(f, "its agent has not reported since {at}"),
            Self::Silent(None) => f.write_str("its agent does not report"),
            Self::NotSelected => f.write_str("no Advertisement of the address selects it"),
            Self::NoSubnet(address) => write!(f, "none of its networks holds {address}"),
            Self::NoInterface => f.write_str(
                "the network of the address is on an interface that its Advertisements do not name",
            ),
            Self::NoOwnAddress => f.write_str(
                "it has no address of its own in the network of the address, where others could watch it",
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

/// Why an address has no candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The machine word.
    pub reason: &'static str,
    /// The same in words.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
}

impl Why {
    /// Nothing says that the address is to be announced.
    #[must_use]
    pub fn no_advertisement(address: IpAddr) -> Self {
        Self {
            reason: "NoAdvertisement",
            message: format!("no Advertisement covers {address}"),
            hint: "create an Advertisement that covers it, or route it to the nodes by other means",
        }
    }
}

impl Judgement {
    /// Why there is no candidate.
    #[must_use]
    pub fn why(&self, address: IpAddr) -> Why {
        let reasons = || self.nodes.iter().filter_map(|(_, standing)| standing.why());
        if !self.is_advertised {
            return Why::no_advertisement(address);
        }
        if self.nodes.is_empty() {
            return Why {
                reason: "NoNodes",
                message: "there are no Nodes".to_owned(),
                hint: "start tidegate-agent on a machine",
            };
        }
        // A node that cannot be asked says nothing about the networks there are.
        let is_elsewhere = |why: &Unfit| matches!(why, Unfit::NoSubnet(_));
        let is_mute =
            |why: &Unfit| matches!(why, Unfit::NeverReported | Unfit::Silent(_) | Unfit::NotSelected);
        if reasons().any(is_elsewhere) && reasons().all(|why| is_elsewhere(why) || is_mute(why)) {
            return Why {
                reason: "NoNodeInSubnet",
                message: format!("no network of a node that may announce it holds {address}"),
                hint: "choose a pool inside a network of the nodes, or give a node an interface in the pool's network",
            };
        }
        let listed: Vec<_> =
            self.not_candidates().into_iter().map(|(name, why)| format!("{name}: {why}")).collect();
        Why {
            reason: "NoCandidate",
            message: format!("no node can announce {address}; {}", listed.join("; ")),
            hint: "the address is announced as soon as one of the nodes can",
        }
    }

    /// Why nodes are no candidates, at most ten.
    #[must_use]
    pub fn not_candidates(&self) -> BTreeMap<Name, String> {
        let unfit = self
            .nodes
            .iter()
            .filter_map(|(name, standing)| Some((name.clone(), standing.why()?.to_string())));
        unfit.take(LISTED_MAX).collect()
    }
}

impl Standing {
    /// Why the node is no candidate, or cannot become one now.
    #[must_use]
    pub const fn why(&self) -> Option<&Unfit> {
        match self {
            Self::Fit(_) => None,
            Self::NotReady { why, .. } | Self::Unfit(why) => Some(why),
        }
    }
}
