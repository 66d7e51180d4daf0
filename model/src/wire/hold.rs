//! The guard of a node against a control server that knows less than it did: an empty database, a foreign one, an old backup.
//!
//! Within one life of a store (an epoch) what is removed was removed on purpose, and was guarded when it was written. A full
//! state of another life is compared with what the node holds: when too much of that would be lost, the node goes on
//! with what it has and says so, until the loss is no longer that large or somebody confirms the new life.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::quantity::{Position, Timestamp};

/// Virtual addresses, or endpoints, that may always be lost: in a small cluster every loss is a large share.
pub const LOST_FREE: u64 = 2;
/// The share that may be lost when nothing else is said, in percent.
pub const LOST_PERCENT_DEFAULT: u8 = 50;

/// How much of something would be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Loss {
    /// How many there would be no longer.
    pub lost: u64,
    /// How many the node holds.
    pub total: u64,
}

/// A state that a node does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Held {
    /// The position of the state that control offers.
    pub offered: Position,
    /// The position of the state that the node goes on with.
    pub in_force: Position,
    /// Why it does not take the offered one.
    pub reason: HeldReason,
    /// Since when.
    pub since: Timestamp,
    /// The virtual addresses that would not be served or announced any longer.
    pub vips: Loss,
    /// The endpoints that would not be given connections any longer, each of each Service.
    pub endpoints: Loss,
}

/// Why a node does not take a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum HeldReason {
    /// It is of another life of the store, and much that the node holds is not in it. It can be confirmed.
    MuchLost,
    /// It is older than the one that the node holds. It is never taken.
    ControlBehind,
}

impl Loss {
    /// Whether it is more than may be lost unasked; a limit of 100 allows everything.
    #[must_use]
    pub fn exceeds(self, limit_percent: u8) -> bool {
        let Self { lost, total } = self;
        limit_percent < 100
            && lost > LOST_FREE
            && u128::from(lost) * 100 > u128::from(total) * u128::from(limit_percent)
    }
}

impl Held {
    /// What is held, in words.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { offered, in_force, reason, since, vips, endpoints } = self;
        match reason {
            HeldReason::MuchLost => format!(
                "since {since} the node holds back the state {offered} of another life of the store, which would take away \
                 {} of {} virtual addresses and {} of {} endpoints; it goes on with {in_force}",
                vips.lost, vips.total, endpoints.lost, endpoints.total
            ),
            HeldReason::ControlBehind => format!(
                "since {since} the node refuses the state {offered}, which is older than {in_force}, with which it goes on"
            ),
        }
    }

    /// What to do about it. `node` is the name of the node.
    #[must_use]
    pub fn hint(&self, node: &str) -> String {
        match self.reason {
            HeldReason::MuchLost => format!(
                "put the right database in place, or apply what is missing; if the loss is meant: tidegate confirm {node} \
                 --epoch {}",
                self.offered.epoch
            ),
            HeldReason::ControlBehind => {
                "start the server on the newest database; on an older one, start it once with --new-epoch"
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
            // lost, total, limit in percent, held
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
        let held = Held {
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
        let behind = Held { reason: HeldReason::ControlBehind, ..held };
        assert!(behind.message().contains("older than 7-42") && !behind.hint("n1").contains("confirm"));
    }
}
