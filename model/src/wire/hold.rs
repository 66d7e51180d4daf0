//! State guard of a node: protects the node against a control server with an empty, foreign or outdated
//! store.
//!
//! Within one epoch of the store, removals are intentional and were checked when they were written. A full
//! state of a different epoch is compared with the state that is in force on the node. If the new state lacks
//! too many addresses or endpoints, the node keeps its present state and reports the rejection, until a new
//! state lacks fewer of them or an operator confirms the new epoch.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    name::Name,
    quantity::{Position, Timestamp},
};

/// Number of virtual addresses or endpoints whose loss the state guard always accepts, because in a small
/// cluster even a small loss exceeds the percentage.
pub const LOST_FREE: u64 = 2;
/// Default maximum share, in percent, of the virtual addresses or endpoints of a node that a state of another
/// epoch may lack.
pub const LOST_PERCENT_DEFAULT: u8 = 50;

/// Loss of virtual addresses or endpoints that a rejected state would cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Loss {
    /// Number of virtual addresses or endpoints that the node would lose.
    pub lost: u64,
    /// Number of virtual addresses or endpoints that the node has now.
    pub total: u64,
}

/// State from a control server that a node rejects, with the loss that it would cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Held)]
pub struct HeldState {
    /// Position (epoch and revision) of the rejected state.
    pub offered: Position,
    /// Position of the state that the node keeps instead.
    pub in_force: Position,
    /// Reason of the rejection: `MuchLost` or `ControlBehind`.
    pub reason: HeldReason,
    /// Time at which the state was first rejected (RFC 3339, UTC).
    pub since: Timestamp,
    /// Virtual addresses at which the node would no longer accept connections, or which it would no longer
    /// announce.
    pub vips: Loss,
    /// Endpoints that would no longer receive connections, counted for each Service.
    pub endpoints: Loss,
}

/// Result of a confirmation: the state that the node applies now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Confirmed)]
pub struct ConfirmedState {
    /// Name of the Node.
    pub node: Name,
    /// State that the node rejected before, and applies now.
    pub confirmed: HeldState,
}

/// Reason why a node rejects a state: `MuchLost` (another epoch of the store, in which too much is missing;
/// can be confirmed) or `ControlBehind` (older than the state in force; never applied).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HeldReason {
    /// The state is of another epoch of the store and lacks too much of the state in force. An operator can
    /// confirm the state, which is then applied.
    MuchLost,
    /// The state is older than the state in force on the node, and is never applied.
    ControlBehind,
}

impl Loss {
    /// True if the lost share exceeds `limit_percent` and more than [`LOST_FREE`] entries would be lost. A
    /// limit of 100 accepts any loss.
    #[must_use]
    pub fn exceeds(self, limit_percent: u8) -> bool {
        let Self { lost, total } = self;
        limit_percent < 100
            && lost > LOST_FREE
            && u128::from(lost) * 100 > u128::from(total) * u128::from(limit_percent)
    }
}

impl HeldState {
    /// Returns a message for users that describes the rejected state and the loss.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { offered, in_force, reason, since, vips, endpoints } = self;
        match reason {
            HeldReason::MuchLost => format!(
                "since {since} the node rejects the state {offered}: it belongs to another epoch of the store and would remove {} of \
                 {} virtual addresses and {} of {} endpoints; the state {in_force} remains in force",
                vips.lost, vips.total, endpoints.lost, endpoints.total
            ),
            HeldReason::ControlBehind => format!(
                "since {since} the node rejects the state {offered}: it is older than {in_force}, which remains in force"
            ),
        }
    }

    /// Returns the remedy for users. `node` is the name of the node.
    #[must_use]
    pub fn hint(&self, node: &str) -> String {
        match self.reason {
            HeldReason::MuchLost => format!(
                "restore the correct database, or apply the missing objects; if the loss is intended: tidegate confirm \
                 {node} --epoch {}",
                self.offered.epoch
            ),
            HeldReason::ControlBehind => {
                "start the server with the newest database; to continue with an older one, start it once with --new-epoch"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_held_by_share_and_never_for_a_few() {
        let table = [
            // lost, total, limit in percent, is rejected
            (0, 0, 0, false),
            (2, 2, 50, false),
            (2, 2, 0, false),
            (3, 3, 50, true),
            (3, 6, 50, false),
            (4, 7, 50, true),
            (3, 1000, 0, true),
            (500, 1000, 50, false),
            (501, 1000, 50, true),
            (1000, 1000, 99, true),
            (1000, 1000, 100, false),
            (u64::MAX, u64::MAX, 99, true),
        ];
        for (lost, total, limit, held) in table {
            assert_eq!(Loss { lost, total }.exceeds(limit), held, "{lost} of {total} at {limit} %");
        }
    }

    #[test]
    fn words_name_the_loss_and_the_epoch_that_would_be_confirmed() {
        let held = HeldState {
            offered: "9-1".parse().unwrap(),
            in_force: "7-42".parse().unwrap(),
            reason: HeldReason::MuchLost,
            since: Timestamp::from_unix_seconds(0),
            vips: Loss { lost: 3, total: 4 },
            endpoints: Loss { lost: 5, total: 6 },
        };
        let message = held.message();
        assert!(
            message.contains("9-1") && message.contains("3 of 4") && message.contains("5 of 6"),
            "{message}"
        );
        assert!(held.hint("n1").ends_with("tidegate confirm n1 --epoch 9"), "{}", held.hint("n1"));
        let behind = HeldState { reason: HeldReason::ControlBehind, ..held };
        assert!(behind.message().contains("older than 7-42") && !behind.hint("n1").contains("confirm"));
    }
}
