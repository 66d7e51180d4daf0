//! Busiest names of a DNS server, which it returns at `/names` of its status server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of names in a report.
pub const DNS_NAMES_MAX: usize = 200;

/// Numbers of questions that a DNS server has answered within the last two minutes, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsNamesReport {
    /// Time in seconds within which the questions were answered, at most 120.
    pub seconds: u64,
    /// Numbers of all names.
    pub total: QuestionCounts,
    /// Names with the most questions and those with the most failures, at most 200, busiest first.
    pub names: Vec<NameCounts>,
}

/// Numbers of questions by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuestionCounts {
    /// Number of all questions.
    pub questions: u64,
    /// Questions for names that do not exist (NXDOMAIN).
    pub missing: u64,
    /// Questions that failed or were refused (SERVFAIL, REFUSED and other errors).
    pub failed: u64,
}

/// Numbers of questions for a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NameCounts {
    /// Name in lower case, without the final dot; `.` for the root. Bytes that are not printable are written as `\DDD`.
    pub name: String,
    /// Numbers of questions by result.
    #[serde(flatten)]
    pub counts: QuestionCounts,
    /// Maximum number by which `questions` is too high: 0 unless clients ask for more names than are counted.
    pub uncertain: u64,
}

impl QuestionCounts {
    /// Adds other numbers.
    pub const fn add(&mut self, other: &Self) {
        let Self { questions, missing, failed } = *other;
        self.questions = self.questions.saturating_add(questions);
        self.missing = self.missing.saturating_add(missing);
        self.failed = self.failed.saturating_add(failed);
    }

    /// Number of questions without a usable answer.
    #[must_use]
    pub const fn unanswered(&self) -> u64 {
        self.missing.saturating_add(self.failed)
    }
}
