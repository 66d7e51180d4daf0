//! Endpoints on their way out by intent: drains, which let established connections finish, and maintenance, which does
//! as if the endpoint were not there.
//!
//! It can be asked for at the endpoint, its Workload, its Node and its Service; [`Maintenance::stronger`] says what
//! counts. The deadline is part of the intent and carried out by each agent by its own clock, so that it holds while control
//! is away.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    quantity::Timestamp,
    violation::{Violation, ViolationCode},
};

/// Longest reason, in bytes: a sentence and a link to a ticket.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest name of who asked, in bytes.
pub const BY_BYTES_MAX: usize = 128;

/// Takes endpoints out of service by intent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Maintenance {
    /// What happens to connections.
    pub mode: MaintenanceMode,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub reason: Option<String>,
    /// Who asked for it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub by: Option<String>,
    /// With mode Drain: when the connections that are left are cut; when left out, they go on until they end by
    /// themselves. Each node goes by its own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
}

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum MaintenanceMode {
    /// No new connections; established ones of TCP finish, until the deadline if there is one. Flows of UDP and SCTP
    /// move at once, as always.
    Drain,
    /// As if the endpoint were not there: no new connections, and what is established follows the removal policy of the
    /// Service.
    Maintenance,
}

impl MaintenanceMode {
    /// The word of the field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "Drain",
            Self::Maintenance => "Maintenance",
        }
    }
}

impl Maintenance {
    /// A drain without an end: what `drain: true` of an endpoint means.
    pub(crate) const DRAIN: Self =
        Self { mode: MaintenanceMode::Drain, reason: None, by: None, deadline: None };

    /// What counts of several: maintenance before a drain, the drain that ends sooner before others, and else the first.
    #[must_use]
    pub fn stronger<'a>(all: impl IntoIterator<Item = Option<&'a Self>>) -> Option<&'a Self> {
        let rank = |one: &Self| {
            let until = one.deadline.map_or(i64::MAX, Timestamp::unix_seconds);
            (one.mode != MaintenanceMode::Maintenance, until)
        };
        all.into_iter().flatten().min_by_key(|one| rank(one))
    }

    /// Reports what is wrong with it.
    pub(crate) fn validate(&self, at: &str, found: &mut Vec<Violation>) {
        let Self { mode, reason, by, deadline } = self;
        check_text(&format!("{at}/reason"), reason.as_deref(), REASON_BYTES_MAX, found);
        check_text(&format!("{at}/by"), by.as_deref(), BY_BYTES_MAX, found);
        if deadline.is_some() && *mode == MaintenanceMode::Maintenance {
            let message = "must be left out with mode Maintenance, which waits for no connection";
            let hint = "use mode Drain; or spec.removalPolicy of the Service, which says what happens to connections";
            found.push(Violation::new(format!("{at}/deadline"), ViolationCode::Conflict, message).hint(hint));
        }
    }
}

fn check_text(at: &str, text: Option<&str>, bytes_max: usize, found: &mut Vec<Violation>) {
    let Some(text) = text else { return };
    if text.len() > bytes_max {
        let message = format!("must have at most {bytes_max} bytes, has {}", text.len());
        found.push(Violation::new(at, ViolationCode::TooLong, message));
    } else if text.trim().is_empty() || text.chars().any(char::is_control) {
        let message = "must be one line of text, or be left out";
        found.push(Violation::new(at, ViolationCode::Invalid, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintenance_counts_before_a_drain_and_the_sooner_end_before_the_later() {
        let drain = |until: Option<i64>| Maintenance {
            deadline: until.map(Timestamp::from_unix_seconds),
            ..Maintenance::DRAIN
        };
        let out = Maintenance { mode: MaintenanceMode::Maintenance, ..Maintenance::DRAIN };
        let (open, late, soon) = (drain(None), drain(Some(200)), drain(Some(100)));
        assert_eq!(Maintenance::stronger([None, None]), None);
        assert_eq!(Maintenance::stronger([Some(&open), None, Some(&late), Some(&soon)]), Some(&soon));
        assert_eq!(Maintenance::stronger([Some(&soon), Some(&out)]), Some(&out));
    }
}
