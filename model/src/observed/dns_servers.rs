//! DNS servers as their reports describe them, with the problems that follow from the reports and their age.

use std::collections::BTreeMap;

use crate::{
    primitives::{
        name::Name,
        quantity::{Revision, Timestamp},
    },
    wire::dns_server::{
        DNS_REPORT_INTERVAL_SECS, DnsServerList, DnsServerReport, DnsServerStatus, DnsUpstream,
        DnsUpstreamState,
    },
};

/// Maximum number of DNS servers. One for each node of a large cluster.
pub const DNS_SERVERS_MAX: usize = 5_000;
/// Time without a report after which a server counts as silent, in seconds: three intervals.
const SILENT_AFTER_SECS: i64 = 3 * DNS_REPORT_INTERVAL_SECS as i64;
/// Time without a report after which a server is forgotten, in seconds.
const FORGOTTEN_AFTER_SECS: i64 = 3_600;
/// Time for which another server must have a later revision before a server counts as behind, in seconds.
const BEHIND_AFTER_SECS: i64 = 10;
/// Number of questions from which a share of failures is a problem.
const QUESTIONS_JUDGED_MIN: u64 = 100;
/// A problem is reported if more than one of so many questions fails.
const FAILURES_DIVISOR: u64 = 10;

/// Reports of all DNS servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsServers(BTreeMap<Name, ReportedServer>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReportedServer {
    /// Identity that sends the reports. Another one cannot report for the server while it is known.
    author: String,
    reported_at: Timestamp,
    /// Time of the first report with the revision.
    revision_since: Timestamp,
    report: DnsServerReport,
}

/// Reason for which a report is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsReportError {
    /// Another identity reports for the server.
    #[error(
        "another identity reports for the DNS server with this name; give each DNS server its own --name"
    )]
    Foreign,
    /// Too many servers report.
    #[error("{DNS_SERVERS_MAX} DNS servers report already")]
    TooMany,
}

impl DnsServers {
    /// Stores the report of a server. Forgets servers that have been silent for an hour.
    ///
    /// # Errors
    /// Returns an error if another identity reports for the server, or if too many servers report.
    pub fn apply(
        &mut self,
        name: Name,
        author: &str,
        report: DnsServerReport,
        now: Timestamp,
    ) -> Result<(), DnsReportError> {
        self.0.retain(|_, known| age(known, now) < FORGOTTEN_AFTER_SECS);
        let known = self.0.get(&name);
        if known.is_some_and(|known| known.author != author && age(known, now) < SILENT_AFTER_SECS) {
            return Err(DnsReportError::Foreign);
        }
        if known.is_none() && self.0.len() >= DNS_SERVERS_MAX {
            return Err(DnsReportError::TooMany);
        }
        let same = known.filter(|known| known.report.revision == report.revision);
        let revision_since = same.map_or(now, |known| known.revision_since);
        let entry = ReportedServer { author: author.to_owned(), reported_at: now, revision_since, report };
        self.0.insert(name, entry);
        Ok(())
    }

    /// Returns the servers with their problems at a time.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> DnsServerList {
        let newest = self.settled_revision(now);
        let known = self.0.iter().filter(|(_, known)| age(known, now) < FORGOTTEN_AFTER_SECS);
        let status = |(name, known): (&Name, &ReportedServer)| DnsServerStatus {
            name: name.clone(),
            reported_at: known.reported_at,
            problems: problems(known, newest, now),
            report: known.report.clone(),
        };
        DnsServerList { servers: known.map(status).collect() }
    }

    /// Returns the latest revision that a server has had for so long that the others should have it too. The revision of
    /// the cluster does not serve, because DNS servers receive changes of some kinds only. Silent servers do not count: after
    /// a restore from a backup, their revision may be later than any that follows.
    fn settled_revision(&self, now: Timestamp) -> Option<Revision> {
        let reporting = self.0.values().filter(|known| age(known, now) < SILENT_AFTER_SECS);
        let settled = reporting.filter(|known| {
            now.unix_seconds().saturating_sub(known.revision_since.unix_seconds()) >= BEHIND_AFTER_SECS
        });
        settled.filter_map(|known| known.report.revision).max()
    }
}

fn age(known: &ReportedServer, now: Timestamp) -> i64 {
    now.unix_seconds().saturating_sub(known.reported_at.unix_seconds())
}

fn problems(known: &ReportedServer, newest: Option<Revision>, now: Timestamp) -> Vec<String> {
    let age = age(known, now);
    if age >= SILENT_AFTER_SECS {
        // Its other problems are as old as its report.
        return vec![format!(
            "no report for {age} s: the server is down or cannot reach this control server"
        )];
    }
    let DnsServerReport { version: _, connected, revision, zones: _, upstreams, cache: _, names } =
        &known.report;
    let mut problems = Vec::new();
    match revision {
        None => problems.push("no state yet: all questions fail".to_owned()),
        Some(revision) if newest.is_some_and(|newest| *revision < newest) => {
            problems.push(format!("answers from revision {revision}, while others have a later one"));
        }
        Some(_) => {}
    }
    if !connected {
        problems.push("no control server sends it the state; it answers from the last one".to_owned());
    }
    problems.extend(upstreams.iter().filter_map(upstream_problem));
    let total = &names.total;
    if total.questions >= QUESTIONS_JUDGED_MIN && total.failed > total.questions / FAILURES_DIVISOR {
        problems.push(format!(
            "{} of {} questions failed within {} s",
            total.failed, total.questions, names.seconds
        ));
    }
    problems
}

fn upstream_problem(upstream: &DnsUpstream) -> Option<String> {
    let server = &upstream.server;
    match upstream.state {
        DnsUpstreamState::Ok => None,
        DnsUpstreamState::Failing => Some(format!("upstream server {server} does not respond")),
        DnsUpstreamState::Looping => {
            Some(format!("upstream server {server} forwards questions back, so it is not used"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dns_names::{DnsNamesReport, QuestionCounts};

    fn report(revision: u64) -> DnsServerReport {
        DnsServerReport {
            version: "1".to_owned(),
            connected: true,
            revision: Some(Revision(revision)),
            zones: Vec::new(),
            upstreams: Vec::new(),
            cache: <_>::default(),
            names: <_>::default(),
        }
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(seconds)
    }

    fn problems_of(servers: &DnsServers, now: i64) -> Vec<(String, String)> {
        let list = servers.list(at(now)).servers.into_iter();
        list.map(|one| (one.name.to_string(), one.problems.join("; "))).collect()
    }

    /// A server is silent after three intervals, and forgotten after an hour.
    #[test]
    fn a_silent_server_is_a_problem_and_is_forgotten_later() {
        let mut servers = DnsServers::default();
        servers.apply(name("a"), "x", report(1), at(1000)).unwrap();
        assert_eq!(problems_of(&servers, 1014)[0].1, "");
        assert!(problems_of(&servers, 1015)[0].1.starts_with("no report for 15 s"));
        assert!(problems_of(&servers, 4599).len() == 1 && problems_of(&servers, 4600).is_empty());
    }

    /// A server is behind if another one has had a later revision for 10 s.
    #[test]
    fn a_server_behind_the_others_is_a_problem() {
        let mut servers = DnsServers::default();
        let mut both = |now: i64, (one, other): (u64, u64)| {
            servers.apply(name("a"), "x", report(one), at(now)).unwrap();
            servers.apply(name("b"), "x", report(other), at(now)).unwrap();
            problems_of(&servers, now)
        };
        assert_eq!(both(1000, (7, 8))[0].1, "");
        assert_eq!(both(1009, (7, 8))[0].1, "");
        let found = both(1010, (7, 8));
        assert!(found[0].1.starts_with("answers from revision 7") && found[1].1.is_empty(), "{found:?}");
        assert_eq!(both(1015, (8, 9))[0].1, "");
        // The other server stopped, and the control servers were restored from a backup.
        servers.apply(name("a"), "x", report(2), at(1030)).unwrap();
        assert_eq!(problems_of(&servers, 1030)[0].1, "");
    }

    #[test]
    fn states_and_failures_of_a_report_are_problems() {
        let mut servers = DnsServers::default();
        let upstream = |server: &str, state| DnsUpstream { server: server.to_owned(), state };
        let total = QuestionCounts { questions: 100, missing: 50, failed: 11 };
        let bad = DnsServerReport {
            connected: false,
            revision: None,
            upstreams: vec![
                upstream("192.0.2.1:53", DnsUpstreamState::Failing),
                upstream("192.0.2.2:53", DnsUpstreamState::Looping),
                upstream("192.0.2.3:53", DnsUpstreamState::Ok),
            ],
            names: DnsNamesReport { seconds: 60, total, names: Vec::new() },
            ..report(0)
        };
        servers.apply(name("a"), "x", bad, at(1000)).unwrap();
        assert_eq!(
            problems_of(&servers, 1000)[0].1,
            "no state yet: all questions fail; no control server sends it the state; it answers from the last one; \
             upstream server 192.0.2.1:53 does not respond; upstream server 192.0.2.2:53 forwards questions back, so it is \
             not used; 11 of 100 questions failed within 60 s"
        );
    }

    /// A report for a server of another identity is rejected while that one reports.
    #[test]
    fn a_server_reports_only_about_itself() {
        let mut servers = DnsServers::default();
        servers.apply(name("a"), "x", report(1), at(1000)).unwrap();
        assert_eq!(servers.apply(name("a"), "y", report(2), at(1014)), Err(DnsReportError::Foreign));
        assert_eq!(servers.apply(name("a"), "y", report(2), at(1015)), Ok(()));
        for number in 1..DNS_SERVERS_MAX {
            servers.apply(name(&format!("s{number}")), "x", report(1), at(1015)).unwrap();
        }
        assert_eq!(servers.apply(name("more"), "x", report(1), at(1016)), Err(DnsReportError::TooMany));
        assert_eq!(servers.apply(name("more"), "x", report(1), at(4700)), Ok(()));
    }
}
