//! Why a session is not established, as a machine word with what to do about it. Pure.
//!
//! An agent says in words what it sees. Which setting is to be changed follows from the NOTIFICATION that ended the last
//! attempt, and from who sent it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::report::{BgpError, BgpSession, BgpSessionState},
    kinds::bgp_peer::BgpPeerSpec,
};

/// A NOTIFICATION explains a state that began at most so long after it, in seconds: attempts to connect lie between, the
/// waits between which grow to a minute.
const EXPLAINS_WITHIN_SECS: i64 = 180;

/// What is wrong with a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpTrouble {
    /// The machine word.
    pub reason: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Who sent a NOTIFICATION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    We,
    ThePeer,
}

/// What is wrong with a session; nothing while it is established. `peer` is what its `BgpPeer` is to be, if there is one.
#[must_use]
pub fn trouble(session: &BgpSession, peer: Option<&BgpPeerSpec>) -> Option<BgpTrouble> {
    if session.is_established() {
        return None;
    }
    let error = newest_error(session);
    let current = error.filter(|(sender, error)| !is_mended(session, peer, *sender, error));
    let (reason, hint) = current
        .and_then(|(sender, error)| of_error(session, sender, error))
        .unwrap_or_else(|| of_state(session, error.is_some()));
    Some(BgpTrouble { reason: reason.to_owned(), hint })
}

/// Whether the peer was changed since, so that the error will not come again.
fn is_mended(session: &BgpSession, peer: Option<&BgpPeerSpec>, sender: Sender, error: &BgpError) -> bool {
    let (Some(peer), Some(theirs)) = (peer, session.remote_asn) else { return false };
    (error.code, error.subcode, sender) == (2, 2, Sender::We)
        && peer.peer_asn.accepts(theirs, session.local_asn)
}

/// The last NOTIFICATION in either direction, while it explains the state.
fn newest_error(session: &BgpSession) -> Option<(Sender, &BgpError)> {
    let sent = session.last_sent.as_ref().map(|error| (Sender::We, error));
    let received = session.last_received.as_ref().map(|error| (Sender::ThePeer, error));
    let newest = sent.into_iter().chain(received).max_by_key(|(_, error)| error.at)?;
    let age = session.since.unix_seconds().saturating_sub(newest.1.at.unix_seconds());
    (age <= EXPLAINS_WITHIN_SECS).then_some(newest)
}

/// Error codes of RFC 4271 §4.5 with the subcodes of RFC 4271 §6, RFC 4486, RFC 5492, RFC 9234 and RFC 9384.
fn of_error(
    session: &BgpSession,
    sender: Sender,
    error: &BgpError,
) -> Option<(&'static str, Option<String>)> {
    let ours = session.local_asn;
    let hint = match (error.code, error.subcode, sender) {
        (1 | 3 | 5, _, _) => (
            "ProtocolError",
            "the two speakers do not understand each other; the message says which part of what was not understood"
                .to_owned(),
        ),
        (2, 2, Sender::We) => match session.remote_asn {
            Some(theirs) => (
                "WrongPeerAS",
                format!("the AS of the peer is {theirs}: set spec.peerASN to it, or correct the router"),
            ),
            None => ("WrongPeerAS", "set spec.peerASN to the router's AS, or correct the router".to_owned()),
        },
        (2, 2, Sender::ThePeer) => (
            "WrongLocalAS",
            format!("the router expects another AS than {ours}: correct it there, or set spec.localASN"),
        ),
        (2, 3, _) => (
            "RouterIDRefused",
            "two speakers have one BGP Identifier: give the Node a spec.bgp.routerId of its own".to_owned(),
        ),
        (2, 6, _) => (
            "HoldTimeRefused",
            "one side does not accept the other's hold time: 0 or at least 3 s; set spec.holdTime".to_owned(),
        ),
        (2, 7, _) => (
            "CapabilityMissing",
            "one side insists on a capability that the other has not; see which, and spec.families".to_owned(),
        ),
        (2, 11, _) => (
            "RoleMismatch",
            "spec.role must be the counterpart of the router's: Provider and Customer, RouteServer and \
             RouteServerClient, Peer and Peer"
                .to_owned(),
        ),
        (4, _, _) => (
            "HoldTimerExpired",
            "nothing was heard for the hold time: see whether the path loses packets and whether the router is busy"
                .to_owned(),
        ),
        (6, 1, Sender::We) => (
            "TooManyPrefixes",
            "the router announces more prefixes than spec.maxPrefixes; have it announce none: they are not used"
                .to_owned(),
        ),
        (6, 1, Sender::ThePeer) => (
            "TooManyPrefixes",
            "the router takes fewer prefixes than are announced: raise its limit, or spec.aggregationLength of \
             the Advertisement makes fewer of them"
                .to_owned(),
        ),
        (6, 2, Sender::ThePeer) => {
            ("ShutDownByPeer", "the router has shut the session down: enable the neighbour there, or start its BGP again".to_owned())
        }
        (6, 3, Sender::ThePeer) => {
            ("RemovedByPeer", "the neighbour was removed from the router; configure it there".to_owned())
        }
        (6, 5, Sender::ThePeer) => (
            "RejectedByPeer",
            format!(
                "the router does not expect this node: configure it there with its address and AS {ours}, or set \
                 spec.sourceAddress to the address that it expects"
            ),
        ),
        (6, 8, Sender::ThePeer) => {
            ("PeerOutOfResources", "the router has no room for the session; see its log".to_owned())
        }
        (6, 10, _) => (
            "BFDDown",
            "BFD says that the path has failed: see the link, and whether the router's BFD intervals fit".to_owned(),
        ),
        _ => return None,
    };
    Some((hint.0, Some(hint.1)))
}

/// What the state alone tells; `after_error` says that a NOTIFICATION ended a session not long ago.
fn of_state(session: &BgpSession, after_error: bool) -> (&'static str, Option<String>) {
    let (ours, counters) = (session.local_asn, &session.counters);
    if counters.md5_failures > 0 {
        let hint = "password mismatch? segments with a wrong or missing MD5 signature arrive on this node: compare \
                    spec.password with the router's";
        return ("PasswordMismatch", Some(hint.to_owned()));
    }
    match session.state {
        BgpSessionState::Idle | BgpSessionState::Connect | BgpSessionState::Active => {
            let at = session.address.map(|address| format!(" at {address}")).unwrap_or_default();
            let patience = if after_error {
                "; after an error routers take no connection for a minute or so"
            } else {
                ""
            };
            let hint = format!(
                "see whether the node reaches the router{at}, and whether the router has this node as a neighbour \
                 with AS {ours}{patience}"
            );
            let reason = if counters.connection_failures > 0 { "ConnectionFailed" } else { "Connecting" };
            (reason, Some(hint))
        }
        BgpSessionState::OpenSent | BgpSessionState::OpenConfirm | BgpSessionState::Established => {
            ("Negotiating", None)
        }
    }
}
