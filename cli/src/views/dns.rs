//! Human-readable output of `dns query` and `explain dns`. Pure functions.

use model::discovery::dns::{ExplainedRecord, MessageSection, NameAttempt, NameResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::typed::decode_or_default;
use crate::terminal::{
    clean,
    style::{Style, Tone},
    table::{Cell, Table},
};

/// Explanation of a name, of which an unreadable part is left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    name: String,
    #[serde(rename = "type")]
    record_type: String,
    reason: String,
    attempts: Vec<NameAttempt>,
}

impl Explanation {
    /// Returns the last name that the client asks.
    #[must_use]
    pub fn last(&self) -> Option<&NameAttempt> {
        self.attempts.last()
    }
}

/// Renders the records of an answer, those of the additional section last.
#[must_use]
pub fn records(attempt: &NameAttempt, style: Style) -> String {
    let shown = attempt.records.iter().filter(|record| record.section != MessageSection::Authority);
    table(shown, style, |record| vec![Cell::from(&record.data)], vec!["NAME", "TTL", "TYPE", "DATA"])
}

/// Renders an explanation: the search path, and each name with its result, its records and their reasons.
#[must_use]
pub fn explanation(answer: &Value, style: Style) -> String {
    let whole: Explanation = decode_or_default(Some(answer));
    let subject = format!("{} {}", clean(&whole.name), clean(&whole.record_type));
    let mut out = format!("{}\n{}\n", style.paint(Tone::Title, &subject), clean(&whole.reason));
    for attempt in &whole.attempts {
        let (tone, word) = match attempt.result {
            NameResult::Records => (Tone::Good, "records"),
            NameResult::NoRecords => (Tone::Waiting, "no records (NOERROR)"),
            NameResult::NoName => (Tone::Waiting, "no name (NXDOMAIN)"),
            NameResult::Forwarded => (Tone::Waiting, "asked of the upstream servers"),
            NameResult::Unknown => (Tone::Waiting, "not known yet (SERVFAIL)"),
        };
        out.push_str(&format!("\n{}: {}\n", clean(&attempt.name), style.paint(tone, word)));
        out.push_str(&format!("  {}\n", clean(&attempt.reason)));
        if !attempt.records.is_empty() {
            let cells = |record: &ExplainedRecord| vec![Cell::from(&record.data), Cell::from(&record.reason)];
            let text =
                table(attempt.records.iter(), style, cells, vec!["NAME", "TTL", "TYPE", "DATA", "REASON"]);
            out.extend(text.lines().map(|line| format!("  {line}\n")));
        }
    }
    out
}

fn table<'a>(
    records: impl Iterator<Item = &'a ExplainedRecord>,
    style: Style,
    last: impl Fn(&ExplainedRecord) -> Vec<Cell>,
    header: Vec<&'static str>,
) -> String {
    let mut table = Table::new(header);
    for record in records {
        let mut row = vec![
            Cell::from(&record.name),
            Cell::from(record.ttl.to_string()),
            Cell::from(&record.record_type),
        ];
        row.extend(last(record));
        table.push(row);
    }
    if table.is_empty() { String::new() } else { table.render(style) }
}
