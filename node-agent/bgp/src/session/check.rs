//! Validation of a neighbor's OPEN (RFC 4271 §6.2, and the RFCs of the capabilities).

use std::collections::BTreeSet;

use crate::{
    capability::{Capability, Role},
    family::Family,
    message::Open,
    notification::{Notification, code, open as subcode},
    session::Config,
};

/// Code of the Multiprotocol Extensions capability.
const MULTI_PROTOCOL: u8 = 1;
/// Code of the BGP Role capability.
const ROLE: u8 = 9;

/// Rejection of an OPEN: the reason and the NOTIFICATION to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// NOTIFICATION to send to the neighbor.
    pub(super) notification: Notification,
    /// Reason as text for the session status.
    pub(super) why: String,
}

/// Validates an OPEN in the order of RFC 4271 §6.2; unknown capabilities are ignored. Returns [`Refusal`] for
/// the first violation.
pub(super) fn check(config: &Config, open: &Open) -> Result<(), Refusal> {
    let Open { asn, hold_time, router_id, capabilities } = open;
    if !config.peer_asn.accepts(*asn, config.local_asn) {
        let why = format!("the neighbour is of AS {asn}, expected is {}", config.peer_asn);
        return refuse(subcode::BAD_PEER_AS, Vec::new(), why);
    }
    if router_id.is_unspecified() {
        return refuse(
            subcode::BAD_IDENTIFIER,
            Vec::new(),
            "the neighbour's router ID is 0.0.0.0".to_owned(),
        );
    }
    // In another AS the BGP Identifier may equal ours (RFC 6286 §2.2).
    if *asn == config.local_asn && *router_id == config.router_id {
        let why = format!("the neighbour is of our AS and has our router ID, {router_id}");
        return refuse(subcode::BAD_IDENTIFIER, Vec::new(), why);
    }
    if matches!(hold_time, 1 | 2) {
        let why = format!("the neighbour proposes a hold time of {hold_time} s, less than 3");
        return refuse(subcode::HOLD_TIME, Vec::new(), why);
    }
    check_role(config, capabilities)?;
    check_families(config, capabilities)
}

/// Validates the BGP Role of the neighbor (RFC 9234 §4.2). If the neighbor sends several roles, they must be
/// equal. A missing role is accepted.
fn check_role(config: &Config, capabilities: &[Capability]) -> Result<(), Refusal> {
    let Some(ours) = config.offered_role() else { return Ok(()) };
    let fitting = ours.counterpart();
    match capabilities.iter().filter_map(role_of).find(|theirs| *theirs != Some(fitting)) {
        None => Ok(()),
        Some(theirs) => {
            let theirs = theirs.map_or_else(|| "an unknown one".to_owned(), |role| role.to_string());
            let why =
                format!("role mismatch: we are {ours}, so the neighbour has to be {fitting}; it is {theirs}");
            refuse(subcode::ROLE_MISMATCH, Vec::new(), why)
        }
    }
}

/// Returns the role in a BGP Role capability: `None` for other capabilities, `Some(None)` for an undefined
/// role.
#[allow(clippy::option_option, reason = "two questions: is it about roles, and is it one of the five")]
fn role_of(capability: &Capability) -> Option<Option<Role>> {
    if let Capability::Role(role) = capability {
        Some(Some(*role))
    } else if matches!(capability, Capability::Unknown { code: ROLE, value } if value.len() == 1) {
        Some(None)
    } else {
        None
    }
}

/// Returns an error if the neighbor supports none of the configured address families. The NOTIFICATION lists
/// these families (RFC 5492 §5).
fn check_families(config: &Config, capabilities: &[Capability]) -> Result<(), Refusal> {
    let theirs = families_of(capabilities);
    if !config.families.is_disjoint(&theirs) {
        return Ok(());
    }
    let data = config.families.iter().flat_map(|family| {
        let [high, low] = family.afi().to_be_bytes();
        [MULTI_PROTOCOL, 4, high, low, 0, family.safi()]
    });
    let why = format!(
        "no address family in common: we want {}, the neighbour {}",
        words(&config.families),
        words(&theirs)
    );
    refuse(subcode::CAPABILITY, data.collect(), why)
}

/// Returns the address families in the capabilities of a neighbor; IPv4 unicast if the neighbor advertises
/// none (RFC 4760 §8).
pub(super) fn families_of(capabilities: &[Capability]) -> BTreeSet<Family> {
    let mut told = capabilities.iter().filter_map(|capability| match capability {
        Capability::MultiProtocol(family) => Some(Some(*family)),
        Capability::Unknown { code: MULTI_PROTOCOL, .. } => Some(None),
        Capability::RouteRefresh
        | Capability::ExtendedNextHop(_)
        | Capability::ExtendedMessage
        | Capability::Role(_)
        | Capability::GracefulRestart(_)
        | Capability::FourOctetAs(_)
        | Capability::EnhancedRouteRefresh
        | Capability::HostName { .. }
        | Capability::Unknown { .. } => None,
    });
    let Some(first) = told.next() else { return BTreeSet::from([Family::Ipv4Unicast]) };
    std::iter::once(first).chain(told).flatten().collect()
}

fn words(families: &BTreeSet<Family>) -> String {
    if families.is_empty() {
        return "others".to_owned();
    }
    let names: Vec<_> = families.iter().map(ToString::to_string).collect();
    names.join(" and ")
}

const fn refuse(subcode: u8, data: Vec<u8>, why: String) -> Result<(), Refusal> {
    Err(Refusal { notification: Notification { code: code::OPEN, subcode, data }, why })
}
