//! Numbers of questions by name, for the busiest names and those that fail.
//!
//! Memory is bounded: a new name replaces the one with the fewest questions and inherits its number, which is then too high
//! by at most that number (space-saving algorithm, Metwally, Agrawal and El Abbadi 2005). Names are distributed over
//! several tables so that threads seldom wait for each other, and counted in windows of one minute.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use model::wire::dns_names::{DNS_NAMES_MAX, DnsNamesReport, NameCounts, QuestionCounts};

use crate::message::{NAME_BYTES_MAX, ResponseClass, name_of_response, response_class};

/// Number of tables.
const TABLES: usize = 16;
/// Maximum number of names in one table and window.
const NAMES_MAX: usize = 64;
/// Length of a window in seconds.
const WINDOW_SECS: u64 = 60;

/// Numbers of questions by name, in the current window and the one before.
#[derive(Debug)]
pub(crate) struct NameCounters {
    tables: [Mutex<NameTable>; TABLES],
    hasher: RandomState,
    start: Instant,
}

/// Names whose hashes belong to one table.
#[derive(Debug, Default)]
struct NameTable {
    /// Number of the current window since the start.
    window: u64,
    current: NameWindow,
    previous: NameWindow,
}

/// Numbers of one window. The names, their hashes and their numbers are in lists with the same order, so that a search
/// reads few bytes.
#[derive(Debug, Default)]
struct NameWindow {
    total: QuestionCounts,
    hashes: Vec<u64>,
    names: Vec<NameEntry>,
    /// Lower bound of the numbers of questions. The numbers only rise.
    fewest: u64,
    /// Position at which the search for a name with the fewest questions goes on.
    next: usize,
}

/// Name in wire format and lower case with its numbers.
#[derive(Debug)]
struct NameEntry {
    name: Vec<u8>,
    counts: QuestionCounts,
    /// Part of the questions that was inherited.
    inherited: u64,
}

impl Default for NameCounters {
    fn default() -> Self {
        Self { tables: Default::default(), hasher: RandomState::new(), start: Instant::now() }
    }
}

impl NameCounters {
    /// Counts the question that a response repeats. A response without a question, as to a malformed request, is not counted.
    pub(crate) fn record(&self, response: &[u8]) {
        self.record_at(response, self.now());
    }

    /// Returns the time since the start, which [`Self::record_name`] needs.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the numbers of the last two minutes.
    pub(crate) fn report(&self) -> DnsNamesReport {
        self.report_at(self.start.elapsed())
    }

    fn record_at(&self, response: &[u8], now: Duration) {
        if let Some(name) = name_of_response(response) {
            self.record_name(name, response_class(response), now);
        }
    }

    /// Counts a question for a name in wire format, in any case of letters.
    pub(super) fn record_name(&self, name: &[u8], class: ResponseClass, now: Duration) {
        let mut buffer = [0; NAME_BYTES_MAX];
        let Some(lower) = buffer.get_mut(..name.len()) else { return };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let name = &*lower;
        let mut counts = QuestionCounts { questions: 1, ..QuestionCounts::default() };
        match class {
            ResponseClass::Answer => {}
            ResponseClass::NoName => counts.missing = 1,
            ResponseClass::Error => counts.failed = 1,
        }
        let hash = self.hasher.hash_one(name);
        let index = usize::try_from(hash % (TABLES as u64)).unwrap_or(0);
        let Some(table) = self.tables.get(index) else { return };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.advance(now);
        table.current.add(hash, name, &counts);
    }

    fn report_at(&self, now: Duration) -> DnsNamesReport {
        let mut total = QuestionCounts::default();
        let mut all: BTreeMap<Vec<u8>, (QuestionCounts, u64)> = BTreeMap::new();
        for table in &self.tables {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            table.advance(now);
            for window in [&table.previous, &table.current] {
                total.add(&window.total);
                for NameEntry { name, counts, inherited } in &window.names {
                    let entry = all.entry(name.clone()).or_default();
                    entry.0.add(counts);
                    entry.1 += inherited;
                }
            }
        }
        let mut names: Vec<_> = all
            .into_iter()
            .map(|(name, (counts, uncertain))| NameCounts { name: text_of_wire(&name), counts, uncertain })
            .collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.counts.unanswered()));
        // Half of the report has the names with the most failures, the rest the busiest ones.
        let failing =
            names.iter().take(DNS_NAMES_MAX / 2).filter(|name| name.counts.unanswered() > 0).count();
        let (_, rest) = names.split_at_mut(failing);
        rest.sort_by_key(|name| std::cmp::Reverse(name.counts.questions));
        names.truncate(DNS_NAMES_MAX);
        names.sort_by_key(|name| std::cmp::Reverse(name.counts.questions));
        let (window, elapsed) = (now.as_secs() / WINDOW_SECS, now.as_secs() % WINDOW_SECS);
        let seconds = if window == 0 { elapsed } else { elapsed + WINDOW_SECS };
        DnsNamesReport { seconds: seconds.max(1), total, names }
    }
}

impl NameTable {
    /// Begins the window of a time since the start.
    fn advance(&mut self, now: Duration) {
        let window = now.as_secs() / WINDOW_SECS;
        match window.saturating_sub(self.window) {
            0 => return,
            1 => self.previous = std::mem::take(&mut self.current),
            _ => (self.previous, self.current) = Default::default(),
        }
        self.window = window;
    }
}

impl NameWindow {
    fn add(&mut self, hash: u64, name: &[u8], counts: &QuestionCounts) {
        self.total.add(counts);
        let mut same = self.hashes.iter().zip(&mut self.names);
        if let Some((_, entry)) = same.find(|(known, entry)| **known == hash && entry.name == name) {
            entry.counts.add(counts);
            return;
        }
        if self.names.len() < NAMES_MAX {
            self.hashes.push(hash);
            self.names.push(NameEntry { name: name.to_vec(), counts: *counts, inherited: 0 });
            return;
        }
        let position = self.position_of_fewest();
        let (Some(entry), Some(known)) = (self.names.get_mut(position), self.hashes.get_mut(position)) else {
            return;
        };
        *known = hash;
        // The memory of the name is used again.
        entry.name.clear();
        entry.name.extend_from_slice(name);
        entry.inherited = entry.counts.questions;
        entry.counts = QuestionCounts { questions: counts.questions + entry.inherited, ..*counts };
    }

    /// Returns the position of a name with the fewest questions. Takes constant time on average: the search goes on after
    /// the last name that was found, and begins again only when all names have more questions.
    fn position_of_fewest(&mut self) -> usize {
        let is_least = |entry: &NameEntry, fewest| entry.counts.questions <= fewest;
        let mut rest = self.names.iter().enumerate().skip(self.next);
        let found = rest.find(|(_, entry)| is_least(entry, self.fewest)).map(|(position, _)| position);
        let position = found.unwrap_or_else(|| {
            self.fewest = self.names.iter().map(|entry| entry.counts.questions).min().unwrap_or(0);
            self.names.iter().position(|entry| is_least(entry, self.fewest)).unwrap_or(0)
        });
        self.next = position;
        position
    }
}

/// Returns a name in wire format as text.
fn text_of_wire(name: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let [size, after @ ..] = rest
        && *size > 0
    {
        let (label, next) = after.split_at(usize::from(*size).min(after.len()));
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            if byte.is_ascii_graphic() && *byte != b'.' && *byte != b'\\' {
                text.push(char::from(*byte));
            } else {
                text.push_str(&format!("\\{byte:03}"));
            }
        }
        rest = next;
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(name: &str, code: u8) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0x80, code, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.as_bytes());
        }
        bytes.extend([0, 0, 1, 0, 1]);
        bytes
    }

    fn show(report: &DnsNamesReport) -> Vec<(&str, u64, u64, u64)> {
        let names = report.names.iter();
        names.map(|it| (&*it.name, it.counts.questions, it.counts.missing, it.counts.failed)).collect()
    }

    /// Questions are counted by name without case and by result, in this minute and the last one.
    #[test]
    fn questions_are_counted_by_name_and_result() {
        let counters = NameCounters::default();
        let at = Duration::from_secs;
        for (name, code, time) in [
            ("WWW.example.org", 0, 1),
            ("www.EXAMPLE.org", 0, 2),
            ("www.example.org", 2, 61),
            ("missing.example.org", 3, 62),
            ("", 5, 63),
        ] {
            counters.record_at(&response(name, code), at(time));
        }
        // Without a question, and with a malformed one.
        counters.record_at(&[0, 7, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0], at(63));
        counters.record_at(&response("a", 0)[..13], at(63));
        let report = counters.report_at(at(70));
        assert_eq!(report.seconds, 70);
        assert_eq!(report.total, QuestionCounts { questions: 5, missing: 1, failed: 2 });
        let mut names = show(&report);
        names[1..].sort_unstable();
        assert_eq!(names, [("www.example.org", 3, 0, 1), (".", 1, 0, 1), ("missing.example.org", 1, 1, 0)]);
        assert_eq!(counters.report_at(at(125)).total.questions, 3);
        assert_eq!(counters.report_at(at(300)), DnsNamesReport { seconds: 60, ..DnsNamesReport::default() });
    }

    /// A busy name stays among many others, with a number that is too high by at most the stated uncertainty, and memory and
    /// report are bounded.
    #[test]
    fn a_busy_name_is_found_among_many_names() {
        let counters = NameCounters::default();
        for number in 0..20_000 {
            counters.record_at(&response(&format!("n{number}.example.org"), 0), Duration::ZERO);
            if number % 10 == 0 {
                counters.record_at(&response("busy.example.org", 0), Duration::ZERO);
            }
            if number % 100 == 0 {
                counters.record_at(&response("failing.example.org", 2), Duration::ZERO);
            }
        }
        let report = counters.report_at(Duration::ZERO);
        assert_eq!(report.total.questions, 22_200);
        let busy = &report.names[0];
        assert_eq!(busy.name, "busy.example.org");
        let real = busy.counts.questions - busy.uncertain;
        assert!(real <= 2000 && busy.counts.questions >= 2000, "{busy:?}");
        assert!(report.names.iter().any(|name| name.name == "failing.example.org"));
        assert_eq!(report.names.len(), DNS_NAMES_MAX);
        for table in &counters.tables {
            assert!(table.lock().unwrap().current.names.len() <= NAMES_MAX);
        }
    }

    #[test]
    fn bytes_that_are_not_printable_are_escaped() {
        assert_eq!(text_of_wire(b"\x04a.\\b\x02\x00\xff\0"), r"a\046\092b.\000\255");
    }
}
