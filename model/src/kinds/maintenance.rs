//! Planned removal of endpoints from service: drains, in which established connections finish, and maintenance, in
//! which the endpoint is treated as absent.
//!
//! Maintenance can be set on an endpoint, its Workload, its Node and its Service; [`Maintenance::stronger`]
//! selects the effective one. Each agent enforces the deadline by its own clock, so it takes effect even without a
//! connection to the control server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::primitives::{
    quantity::Timestamp,
    violation::{Violation, ViolationCode},
};

/// Maximum length of a maintenance reason in bytes.
pub const REASON_BYTES_MAX: usize = 512;
/// Maximum length of the requester's name in bytes.
pub const BY_BYTES_MAX: usize = 128;

/// Planned removal of endpoints from service. If it is set on several levels (endpoint, Workload, Node,
/// Service), mode `Maintenance` takes precedence over `Drain`, and an earlier deadline over a later one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Maintenance {
    /// Treatment of connections: `Drain` (no new connections; established TCP connections finish) or
    /// `Maintenance` (the endpoint is treated as absent).
    pub mode: MaintenanceMode,
    /// Reason to show to users, one line of 1 to 512 bytes. Default: no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    pub reason: Option<String>,
    /// Name of the requester to show to users, one line of 1 to 128 bytes. Default: no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub by: Option<String>,
    /// Time at which remaining connections are closed (RFC 3339, UTC). Each node uses its own clock. Only
    /// allowed with mode `Drain`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
}

/// Treatment of connections: `Drain` (no new connections; established TCP connections finish, at most until
/// the deadline; UDP and SCTP flows move to other endpoints at once) or `Maintenance` (the endpoint is
/// treated as absent, and established connections follow the removal policy of the Service).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum MaintenanceMode {
    /// No new connections. Established TCP connections finish, at most until the deadline; UDP and SCTP flows
    /// move to other endpoints at once.
    Drain,
    /// The endpoint is treated as absent: no new connections, and established ones follow the removal policy
    /// of the Service.
    Maintenance,
}

impl MaintenanceMode {
    /// Returns the mode as written in the field `mode`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "Drain",
            Self::Maintenance => "Maintenance",
        }
    }
}

impl Maintenance {
    /// Drain without a deadline, as requested by `drain: true` of an endpoint.
    pub(crate) const DRAIN: Self =
        Self { mode: MaintenanceMode::Drain, reason: None, by: None, deadline: None };

    /// Returns the strongest of several maintenance settings: mode Maintenance before Drain, then the earliest
    /// deadline, then the first in the given order.
    #[must_use]
    pub fn stronger<'a>(all: impl IntoIterator<Item = Option<&'a Self>>) -> Option<&'a Self> {
        let rank = |one: &Self| {
            let until = one.deadline.map_or(i64::MAX, Timestamp::unix_seconds);
            (one.mode != MaintenanceMode::Maintenance, until)
        };
        all.into_iter().flatten().min_by_key(|one| rank(one))
    }

    /// Adds a violation to `found` for each invalid field. `at` is the JSON pointer to this maintenance
    /// setting.
    pub(crate) fn validate(&self, at: &str, found: &mut Vec<Violation>) {
        let Self { mode, reason, by, deadline } = self;
        check_text(&format!("{at}/reason"), reason.as_deref(), REASON_BYTES_MAX, found);
        check_text(&format!("{at}/by"), by.as_deref(), BY_BYTES_MAX, found);
        if deadline.is_some() && *mode == MaintenanceMode::Maintenance {
            let message = "must be left out with mode Maintenance, which does not wait for connections";
            let hint =
                "use mode Drain, or set spec.removalPolicy of the Service, which applies to its connections";
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
