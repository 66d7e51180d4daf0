//! Pure functions that return a machine-readable reason and a remedy for a BGP session that is not
//! established.
//!
//! An agent reports error messages, not their remedy. The setting that must be changed follows from the codes
//! of the NOTIFICATION that ended the last connection attempt, and from the side that sent this message.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::report::{BgpError, BgpSession, BgpSessionState},
    kinds::{bgp_peer::BgpPeerSpec, condition_reason::ConditionReason},
};

/// Maximum time in seconds between a NOTIFICATION and the last change of the session state for which the
/// NOTIFICATION counts as the cause of the state. Longer than the pauses between connection attempts, which
/// grow to one minute.
const EXPLAINS_WITHIN_SECS: i64 = 180;

/// Reason why a session is not established, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpTrouble {
    /// Machine-readable reason, one of the condition reasons of BgpPeers.
    #[schema(value_type = String)]
    pub reason: ConditionReason,
    /// Suggested remedy. Absent if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Side that sent a NOTIFICATION message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    We,
    ThePeer,
}

/// Returns the reason and remedy of a session that is not established, or `None` if it is established. `peer`
/// is the spec of its BgpPeer, if the BgpPeer exists.
#[must_use]
pub fn trouble(session: &BgpSession, peer: Option<&BgpPeerSpec>) -> Option<BgpTrouble> {
    if session.is_established() {
        return None;
    }
    let error = newest_error(session);
    let current = error.filter(|(sender, error)| !is_mended(session, peer, *sender, error));
    let (reason, hint) =
        current.and_then(|(sender, error)| of_error(session, sender, error)).unwrap_or_else(|| {
            let has_password = peer.is_some_and(|peer| peer.password.is_some());
            of_state(session, error.is_some(), has_password)
        });
    Some(BgpTrouble { reason, hint })
}

/// Returns true if the error was a wrong AS number of the router, but the BgpPeer has since been changed to
/// accept that number, so that the error no longer explains the state.
fn is_mended(session: &BgpSession, peer: Option<&BgpPeerSpec>, sender: Sender, error: &BgpError) -> bool {
    let (Some(peer), Some(theirs)) = (peer, session.remote_asn) else { return false };
    (error.code, error.subcode, sender) == (2, 2, Sender::We)
        && peer.peer_asn.accepts(theirs, session.local_asn)
}

/// Returns the newest NOTIFICATION, sent or received, if it explains the present state.
fn newest_error(session: &BgpSession) -> Option<(Sender, &BgpError)> {
    let sent = session.last_sent.as_ref().map(|error| (Sender::We, error));
    let received = session.last_received.as_ref().map(|error| (Sender::ThePeer, error));
    let newest = sent.into_iter().chain(received).max_by_key(|(_, error)| error.at)?;
    let age = session.since.unix_seconds().saturating_sub(newest.1.at.unix_seconds());
    (age <= EXPLAINS_WITHIN_SECS).then_some(newest)
}

/// Returns the condition reason and the remedy for a NOTIFICATION, by its error code (RFC 4271 §4.5) and subcode
/// (RFC 4271 §6, RFC 4486, RFC 5492, RFC 9234, RFC 9384); `None` if the codes are not classified.
fn of_error(
    session: &BgpSession,
    sender: Sender,
    error: &BgpError,
) -> Option<(ConditionReason, Option<String>)> {
    let ours = session.local_asn;
    let hint = match (error.code, error.subcode, sender) {
        (1 | 3 | 5, _, _) => (
            ConditionReason::ProtocolError,
            "one side could not decode a message of the other; the message names the field"
                .to_owned(),
        ),
        (2, 2, Sender::We) => match session.remote_asn {
            Some(theirs) => (
                ConditionReason::WrongPeerAS,
                format!("the AS of the peer is {theirs}: set spec.peerASN to it, or correct the router"),
            ),
            None => (ConditionReason::WrongPeerAS, "set spec.peerASN to the router's AS, or correct the router".to_owned()),
        },
        (2, 2, Sender::ThePeer) => (
            ConditionReason::WrongLocalAS,
            format!("the router expects another AS than {ours}: correct it there, or set spec.localASN"),
        ),
        (2, 3, _) => (
            ConditionReason::RouterIDRefused,
            "both sides have the same BGP Identifier: give the Node its own spec.bgp.routerId".to_owned(),
        ),
        (2, 6, _) => (
            ConditionReason::HoldTimeRefused,
            "one side rejects the hold time of the other: set spec.holdTime to 0 or to at least 3 s".to_owned(),
        ),
        (2, 7, _) => (
            ConditionReason::CapabilityMissing,
            "one side requires a capability that the other does not have: compare it with spec.families".to_owned(),
        ),
        (2, 11, _) => (
            ConditionReason::RoleMismatch,
            "spec.role must be the counterpart of the router's: Provider and Customer, RouteServer and \
             RouteServerClient, Peer and Peer"
                .to_owned(),
        ),
        (4, _, _) => (
            ConditionReason::HoldTimerExpired,
            "no message arrived within the hold time: check the path for packet loss and the router for overload"
                .to_owned(),
        ),
        (6, 1, Sender::We) => (
            ConditionReason::TooManyPrefixes,
            "the router announces more prefixes than spec.maxPrefixes: let it announce none, because they are not used"
                .to_owned(),
        ),
        (6, 1, Sender::ThePeer) => (
            ConditionReason::TooManyPrefixes,
            "the router accepts fewer prefixes than are announced: raise its limit, or reduce their number with \
             spec.aggregationLength of the Advertisement"
                .to_owned(),
        ),
        (6, 2, Sender::ThePeer) => {
            (ConditionReason::ShutDownByPeer, "the router has shut the session down: enable the neighbor there, or start its BGP process again".to_owned())
        }
        (6, 3, Sender::ThePeer) => {
            (ConditionReason::RemovedByPeer, "the neighbor was removed from the router: configure it there".to_owned())
        }
        (6, 5, Sender::ThePeer) => (
            ConditionReason::RejectedByPeer,
            format!(
                "the router does not expect this node: configure it there with its address and AS {ours}, or set \
                 spec.sourceAddress to the address that it expects"
            ),
        ),
        (6, 8, Sender::ThePeer) => {
            (ConditionReason::PeerOutOfResources, "the router lacks resources for the session: examine its log".to_owned())
        }
        (6, 10, _) => (
            ConditionReason::BFDDown,
            "BFD detected a failure of the path: check the link and the BFD intervals of the router".to_owned(),
        ),
        _ => return None,
    };
    Some((hint.0, Some(hint.1)))
}

/// Returns the condition reason and the remedy for a session that is not established, by its BGP state.
/// `after_error` is true if a recent NOTIFICATION ended the session, `has_password` if its BgpPeer has a password.
fn of_state(
    session: &BgpSession,
    after_error: bool,
    has_password: bool,
) -> (ConditionReason, Option<String>) {
    let (ours, counters) = (session.local_asn, &session.counters);
    if counters.md5_failures > 0 {
        let hint = "password mismatch? Segments with a wrong or missing MD5 signature arrive on this node: compare \
                    spec.password with the router's";
        return (ConditionReason::PasswordMismatch, Some(hint.to_owned()));
    }
    match session.state {
        BgpSessionState::Idle | BgpSessionState::Connect | BgpSessionState::Active => {
            let at = session.address.map(|address| format!(" at {address}")).unwrap_or_default();
            let patience = if after_error {
                "; after an error, routers accept no connection for about a minute"
            } else {
                ""
            };
            let password = if has_password {
                "; a router with another password than spec.password, or none, does not answer"
            } else {
                ""
            };
            let hint = format!(
                "check that the node reaches the router{at}, and that the router has this node as a neighbor \
                 with AS {ours}{patience}{password}"
            );
            let reason = if counters.connection_failures > 0 {
                ConditionReason::ConnectionFailed
            } else {
                ConditionReason::Connecting
            };
            (reason, Some(hint))
        }
        BgpSessionState::OpenSent | BgpSessionState::OpenConfirm | BgpSessionState::Established => {
            (ConditionReason::Negotiating, None)
        }
    }
}
