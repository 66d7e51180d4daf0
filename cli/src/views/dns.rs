//! Human-readable output of `dns query`, `dns top` and `explain dns`. Pure functions.

use std::{collections::BTreeMap, net::SocketAddr};

use model::{
    discovery::dns::{ExplainedRecord, MessageSection, NameAttempt, NameResult},
    wire::{
        dns_names::{DnsNamesReport, QuestionCounts},
        dns_server::{DnsServerList, DnsServerReport, DnsUpstreamState},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// Returns the names that the client asks, with their answers.
    #[must_use]
    pub fn attempts(&self) -> &[NameAttempt] {
        &self.attempts
    }

    /// Returns the last name that the client asks.
    #[must_use]
    pub fn last(&self) -> Option<&NameAttempt> {
        self.attempts.last()
    }

    /// Returns the question that says best why there are no records: the first name that exists; otherwise, for a name
    /// without a dot, the first one, because people mean a Service by it; otherwise the last one.
    #[must_use]
    pub fn most_telling(&self) -> Option<&NameAttempt> {
        let existing = self.attempts.iter().find(|one| one.result == NameResult::NoRecords);
        let first = || self.attempts.first().filter(|_| !self.name.contains('.'));
        existing.or_else(first).or_else(|| self.last())
    }
}

/// Order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOrder {
    /// Most questions first.
    Questions,
    /// Most failures first, without names that have none.
    Failures,
}

/// Numbers of a name on all DNS servers together.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyName {
    name: String,
    counts: QuestionCounts,
    uncertain: u64,
    per_second: f64,
    servers: Vec<SocketAddr>,
}

/// Returns the first names of all reports in an order.
#[must_use]
pub fn busiest(reports: &[(SocketAddr, DnsNamesReport)], order: NameOrder, limit: usize) -> Vec<BusyName> {
    let mut names: BTreeMap<&str, BusyName> = BTreeMap::new();
    for (server, report) in reports {
        for name in &report.names {
            let entry = names.entry(&name.name).or_insert_with(|| BusyName {
                name: name.name.clone(),
                counts: QuestionCounts::default(),
                uncertain: 0,
                per_second: 0.0,
                servers: Vec::new(),
            });
            entry.counts.add(&name.counts);
            entry.uncertain = entry.uncertain.saturating_add(name.uncertain);
            entry.per_second += rate(name.counts.questions, report.seconds);
            entry.servers.push(*server);
        }
    }
    let mut names: Vec<_> = names.into_values().collect();
    match order {
        NameOrder::Questions => names.sort_by_key(|name| std::cmp::Reverse(name.counts.questions)),
        NameOrder::Failures => {
            names.retain(|name| name.counts.unanswered() > 0);
            names.sort_by_key(|name| std::cmp::Reverse(name.counts.unanswered()));
        }
    }
    names.truncate(limit);
    names
}

/// Renders `dns top`: a table of the servers, and one of the names.
#[must_use]
pub fn top(reports: &[(SocketAddr, DnsNamesReport)], names: &[BusyName], style: Style) -> String {
    let mut servers = Table::new(vec!["SERVER", "QUESTIONS/S", "NO NAME", "FAILED", "QUESTIONS", "IN"]);
    for (server, report) in reports {
        let QuestionCounts { questions, missing, failed } = report.total;
        servers.push(vec![
            server.to_string().into(),
            format!("{:.1}", rate(questions, report.seconds)).into(),
            missing.to_string().into(),
            failure_cell(failed),
            questions.to_string().into(),
            format!("{} s", report.seconds).into(),
        ]);
    }
    let mut table = Table::new(vec!["NAME", "QUESTIONS/S", "NO NAME", "FAILED", "QUESTIONS", "SERVERS"]);
    for BusyName { name, counts, uncertain, per_second, servers } in names {
        let mark = if *uncertain > 0 { "~" } else { "" };
        table.push(vec![
            name.into(),
            format!("{mark}{per_second:.1}").into(),
            counts.missing.to_string().into(),
            failure_cell(counts.failed),
            format!("{mark}{}", counts.questions).into(),
            servers.len().to_string().into(),
        ]);
    }
    let rendered = [servers, table].into_iter().filter(|table| !table.is_empty());
    rendered.map(|table| table.render(style)).collect::<Vec<_>>().join("\n")
}

/// Renders `dns servers`: a table of the servers, and their problems.
#[must_use]
pub fn servers(list: &DnsServerList, style: Style) -> String {
    let mut table = Table::new(vec![
        "NAME",
        "VERSION",
        "REVISION",
        "ZONES",
        "UPSTREAMS",
        "QUESTIONS/S",
        "NO NAME",
        "FAILED",
        "CACHED",
        "PROBLEMS",
    ]);
    let mut problems = String::new();
    for server in &list.servers {
        let DnsServerReport { version, instance: _, connected: _, revision, zones, upstreams, cache, names } =
            &server.report;
        let usable = upstreams.iter().filter(|one| one.state == DnsUpstreamState::Ok).count();
        let count = server.problems.len();
        table.push(vec![
            server.name.as_str().into(),
            version.as_str().into(),
            revision.map_or_else(|| "<none>".to_owned(), |revision| revision.0.to_string()).into(),
            zones.len().to_string().into(),
            format!("{usable}/{}", upstreams.len()).into(),
            format!("{:.1}", rate(names.total.questions, names.seconds)).into(),
            names.total.missing.to_string().into(),
            failure_cell(names.total.failed),
            cache.positive.saturating_add(cache.negative).to_string().into(),
            failure_cell(u64::try_from(count).unwrap_or(u64::MAX)),
        ]);
        for problem in &server.problems {
            problems.push_str(&format!("{}: {}\n", server.name, clean(problem)));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let table = table.render(style);
    if problems.is_empty() { table } else { format!("{table}\n{problems}") }
}

/// Returns `dns top` as a document.
#[must_use]
pub fn top_document(reports: &[(SocketAddr, DnsNamesReport)], names: &[BusyName]) -> Value {
    let servers = reports.iter().map(|(server, report)| {
        json!({ "server": server, "seconds": report.seconds, "questions": report.total.questions,
                "missing": report.total.missing, "failed": report.total.failed })
    });
    let names = names.iter().map(|BusyName { name, counts, uncertain, per_second, servers }| {
        json!({ "name": name, "questions": counts.questions, "missing": counts.missing, "failed": counts.failed,
                "uncertain": uncertain, "questionsPerSecond": per_second, "servers": servers })
    });
    json!({ "servers": servers.collect::<Vec<_>>(), "names": names.collect::<Vec<_>>() })
}

fn failure_cell(failed: u64) -> Cell {
    let text = failed.to_string();
    if failed == 0 { text.into() } else { Cell::toned(Tone::Bad, text) }
}

/// Returns the number of questions per second. Numbers of questions are exact in a floating-point number.
fn rate(questions: u64, seconds: u64) -> f64 {
    questions as f64 / seconds.max(1) as f64
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
    let attempts: String = whole.attempts.iter().map(|one| attempt(one, style)).collect();
    heading(&whole, style) + &attempts
}

/// Renders name and type with the search path.
pub(super) fn heading(explanation: &Explanation, style: Style) -> String {
    let Explanation { name, record_type, reason, attempts: _ } = explanation;
    let subject = format!("{} {}", clean(name), clean(record_type));
    format!("{}\n{}\n", style.paint(Tone::Title, &subject), clean(reason))
}

/// Renders one name with its result, its records and their reasons.
pub(super) fn attempt(attempt: &NameAttempt, style: Style) -> String {
    let (tone, word) = match attempt.result {
        NameResult::Records => (Tone::Good, "records"),
        NameResult::NoRecords => (Tone::Waiting, "no records (NOERROR)"),
        NameResult::NoName => (Tone::Waiting, "no name (NXDOMAIN)"),
        NameResult::Forwarded => (Tone::Waiting, "asked of the upstream servers"),
        NameResult::Unknown => (Tone::Waiting, "not known yet (SERVFAIL)"),
    };
    let mut out = format!("\n{}: {}\n", clean(&attempt.name), style.paint(tone, word));
    out.push_str(&format!("  {}\n", clean(&attempt.reason)));
    if !attempt.records.is_empty() {
        let cells = |record: &ExplainedRecord| vec![Cell::from(&record.data), Cell::from(&record.reason)];
        let text = table(attempt.records.iter(), style, cells, vec!["NAME", "TTL", "TYPE", "DATA", "REASON"]);
        out.extend(text.lines().map(|line| format!("  {line}\n")));
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
