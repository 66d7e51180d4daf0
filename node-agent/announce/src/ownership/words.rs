//! Formats the role of this node for an address, and the reason for it, as texts for the status output.
//! Reasons are never empty.

use model::wire::report::{AnnouncementRole, PROBING};

use super::machine::{Cause, ObservedStation, Ownership, Party, Phase, Why};

/// Returns the role of this node for an address with the reason as text, or `None` if this node is not a
/// candidate.
#[must_use]
pub fn standing(ownership: &Ownership) -> Option<(AnnouncementRole, String)> {
    match ownership.phase() {
        Phase::Away => None,
        Phase::Owner(cause) => Some((AnnouncementRole::Owner, owner(ownership, cause))),
        Phase::Probing(_) => Some((AnnouncementRole::Held, PROBING.to_owned())),
        Phase::Standby(why) => Some(standby(ownership, why)),
    }
}

fn owner(ownership: &Ownership, cause: &Cause) -> String {
    if ownership.is_leaving() {
        return "another node is to announce it; this one goes on until that one is heard".to_owned();
    }
    match cause {
        Cause::First => "this node is the first of the candidates".to_owned(),
        Cause::Silent(name) => format!("{name}, which announced it, fell silent"),
        Cause::HandedOver(name) => format!("{name}, which announced it, handed over"),
        Cause::NobodyAnswered => "no candidate before this node lives, and nobody answered for it".to_owned(),
    }
}

fn standby(ownership: &Ownership, why: &Why) -> (AnnouncementRole, String) {
    let first = if ownership.is_first_live() { AnnouncementRole::Held } else { AnnouncementRole::Standby };
    match why {
        Why::Unordered => (AnnouncementRole::Standby, "another node is to announce it".to_owned()),
        Why::Closed(why) => (first, why.clone()),
        Why::Isolated => (
            first,
            "neither control nor another candidate is reached, and the advertisement says to be silent then"
                .to_owned(),
        ),
        Why::Before(name) => (AnnouncementRole::Standby, format!("{name} is before this node and lives")),
        Why::Unheard(name) => {
            (AnnouncementRole::Standby, format!("{name} is before this node and has not been heard yet"))
        }
        Why::Restarting(name) => {
            (AnnouncementRole::Standby, format!("{name} is before this node and restarts"))
        }
        Why::Unsteady(name) => (
            AnnouncementRole::Standby,
            format!(
                "the session with {name}, which is before this node, fails repeatedly; waiting for a longer failure"
            ),
        ),
        Why::Answered(ObservedStation { party: Party::Candidate(name), mac, interface }) => {
            (AnnouncementRole::Standby, format!("{name} ({mac} on {interface}) answers for it and keeps it"))
        }
        Why::Answered(ObservedStation { party: Party::Stranger, mac, interface }) => (
            AnnouncementRole::Held,
            format!("{mac} on {interface}, which is not a candidate, answers for it"),
        ),
    }
}
