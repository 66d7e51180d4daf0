//! DNS servers as their reports describe them, with the problems that follow from the reports and their age.

use std::fmt;

use super::reporter_book::{OwnReport, REPORTERS_MAX, Reporter, ReporterBook, TooManyReporters};
use crate::{
    discovery::dns::is_shadowed,
    primitives::{
        name::Name,
        quantity::{Revision, Timestamp},
    },
    wire::dns_server::{
        DNS_REPORT_INTERVAL_SECS, DnsServerList, DnsServerReport, DnsServerStatus, DnsUpstream,
        DnsUpstreamState,
    },
};

/// Number of questions from which a share of failures is a problem.
const QUESTIONS_JUDGED_MIN: u64 = 100;
/// A problem is reported if more than one of so many questions fails.
const FAILURES_DIVISOR: u64 = 10;

/// Reports of all DNS servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsServers(ReporterBook<KnownReport>);

/// Last report of a name, and the traces of other processes that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownReport {
    report: DnsServerReport,
    /// Process whose reports this one has replaced. After a restart it never reports again.
    replaced: Option<String>,
    /// Time of the last report of the replaced process, which means that two servers use the name.
    contested_at: Option<Timestamp>,
}

type ReportedServer = Reporter<KnownReport>;

impl OwnReport for KnownReport {
    const INTERVAL_SECS: u64 = DNS_REPORT_INTERVAL_SECS;

    fn revision(&self) -> Option<Revision> {
        self.report.revision
    }
}

/// Reason for which a report is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsReportError {
    /// Another identity reports for the server.
    #[error(
        "another identity reports for the DNS server with this name; give each DNS server its own --name"
    )]
    Foreign,
    /// A process that started to report later has replaced this one.
    #[error(
        "another DNS server, which began to report later, has this name; give each DNS server its own --name"
    )]
    Contested,
    /// Too many servers report.
    #[error("{REPORTERS_MAX} DNS servers report already")]
    TooMany,
}

impl DnsServers {
    /// Stores the report of a server. Forgets servers that have been silent for an hour.
    ///
    /// # Errors
    /// Returns an error if another identity or a later process reports for the server, or if too many servers report.
    pub fn apply(
        &mut self,
        name: Name,
        author: &str,
        report: DnsServerReport,
        now: Timestamp,
    ) -> Result<(), DnsReportError> {
        self.0.forget(now);
        let (mut replaced, mut contested_at) = (None, None);
        if let Some(known) = self.0.get_mut(&name) {
            if known.is_foreign(author, now) {
                return Err(DnsReportError::Foreign);
            }
            let is_silent = known.is_silent(now);
            let before = &mut known.report;
            if before.report.instance == report.instance {
                replaced = before.replaced.take();
            } else if before.replaced.as_ref() == Some(&report.instance) && !is_silent {
                before.contested_at = Some(now);
                return Err(DnsReportError::Contested);
            } else {
                replaced = Some(std::mem::take(&mut before.report.instance));
            }
            contested_at = before.contested_at;
        }
        let inserted = self.0.insert(name, author, KnownReport { report, replaced, contested_at }, now);
        inserted.map_err(|TooManyReporters| DnsReportError::TooMany)
    }

    /// Returns the servers with their problems at a time.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> DnsServerList {
        let newest = self.0.settled_revision(now);
        let status = |(name, known): (&Name, &ReportedServer)| DnsServerStatus {
            name: name.clone(),
            reported_at: known.reported_at,
            problems: problems(known, newest, now).iter().map(ToString::to_string).collect(),
            report: known.report.report.clone(),
        };
        DnsServerList { servers: self.0.known(now).map(status).collect() }
    }

    /// Returns the servers that have problems at a time, with their problems, in the order of their names.
    #[must_use]
    pub fn problems(&self, now: Timestamp) -> Vec<(Name, Vec<DnsServerProblem>)> {
        let newest = self.0.settled_revision(now);
        let all = self.0.known(now).map(|(name, known)| (name.clone(), problems(known, newest, now)));
        all.filter(|(_, problems)| !problems.is_empty()).collect()
    }

    /// Returns the number of servers that have not been silent for an hour.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.0.known(now).count()
    }
}

/// Problem of a DNS server. The text is a clause for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsServerProblem {
    /// The server has not reported since this time.
    Silent {
        /// Time of the last report.
        since: Timestamp,
    },
    /// Another process reports with the same name.
    Contested,
    /// The server has no state, so that all questions fail.
    NoState,
    /// The server answers from this revision, although another one has had a later revision for some time.
    Behind(Revision),
    /// No control server sends the state to the server.
    NotConnected,
    /// The zone of a DnsZone belongs to the cluster zone, so that its records and host names are not answered.
    ZoneShadowed(String),
    /// The upstream server does not respond.
    UpstreamFailing(String),
    /// The upstream server forwards questions back.
    UpstreamLooping(String),
    /// Many questions fail.
    Failures {
        /// Number of questions that failed.
        failed: u64,
        /// Number of all questions.
        questions: u64,
        /// Period in which they were asked, in seconds.
        seconds: u64,
    },
}

impl DnsServerProblem {
    /// Returns the reason as a stable identifier in CamelCase.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "DnsServerSilent",
            Self::Contested => "DnsServerNameContested",
            Self::NoState => "DnsServerWithoutState",
            Self::Behind(_) => "DnsServerBehind",
            Self::NotConnected => "DnsServerNotConnected",
            Self::ZoneShadowed(_) => "DnsZoneShadowed",
            Self::UpstreamFailing(_) => "DnsUpstreamFailing",
            Self::UpstreamLooping(_) => "DnsUpstreamLooping",
            Self::Failures { .. } => "DnsQuestionsFail",
        }
    }
}

impl fmt::Display for DnsServerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { since } => {
                write!(f, "no report since {since}: the server is down or cannot reach this control server")
            }
            Self::Contested => write!(f, "another DNS server reports with this name too"),
            Self::NoState => write!(f, "no state yet: all questions fail until a control server sends it"),
            Self::Behind(revision) => {
                write!(f, "answers from revision {revision}, while others have a later one")
            }
            Self::NotConnected => {
                write!(f, "no control server sends it the state; it answers from the last one")
            }
            Self::ZoneShadowed(zone) => {
                write!(f, "DnsZone {zone} is not answered, because its names belong to the cluster zone")
            }
            Self::UpstreamFailing(server) => write!(f, "upstream server {server} does not respond"),
            Self::UpstreamLooping(server) => {
                write!(f, "upstream server {server} forwards questions back, so it is not used")
            }
            Self::Failures { failed, questions, seconds } => {
                write!(f, "{failed} of {questions} questions failed within {seconds} s")
            }
        }
    }
}

fn problems(known: &ReportedServer, newest: Option<Revision>, now: Timestamp) -> Vec<DnsServerProblem> {
    if known.is_silent(now) {
        // Its other problems are as old as its report.
        return vec![DnsServerProblem::Silent { since: known.reported_at }];
    }
    let DnsServerReport { version: _, instance: _, connected, revision, zones, upstreams, cache: _, names } =
        &known.report.report;
    let mut problems = Vec::new();
    let is_recent = |at: Timestamp| {
        now.unix_seconds().saturating_sub(at.unix_seconds()) < ReportedServer::SILENT_AFTER_SECS
    };
    if known.report.contested_at.is_some_and(is_recent) {
        problems.push(DnsServerProblem::Contested);
    }
    match revision {
        None => problems.push(DnsServerProblem::NoState),
        Some(revision) if newest.is_some_and(|newest| *revision < newest) => {
            problems.push(DnsServerProblem::Behind(*revision));
        }
        Some(_) => {}
    }
    if !connected && revision.is_some() {
        problems.push(DnsServerProblem::NotConnected);
    }
    if let [cluster, others @ ..] = &zones[..] {
        let shadowed = others.iter().filter(|zone| is_shadowed(zone, cluster));
        problems.extend(shadowed.map(|zone| DnsServerProblem::ZoneShadowed(zone.clone())));
    }
    problems.extend(upstreams.iter().filter_map(upstream_problem));
    let total = &names.total;
    if total.questions >= QUESTIONS_JUDGED_MIN && total.failed > total.questions / FAILURES_DIVISOR {
        let (failed, questions) = (total.failed, total.questions);
        problems.push(DnsServerProblem::Failures { failed, questions, seconds: names.seconds });
    }
    problems
}

fn upstream_problem(upstream: &DnsUpstream) -> Option<DnsServerProblem> {
    let server = upstream.server.clone();
    match upstream.state {
        DnsUpstreamState::Ok => None,
        DnsUpstreamState::Failing => Some(DnsServerProblem::UpstreamFailing(server)),
        DnsUpstreamState::Looping => Some(DnsServerProblem::UpstreamLooping(server)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dns_names::{DnsNamesReport, QuestionCounts};

    fn report(revision: u64) -> DnsServerReport {
        DnsServerReport {
            version: "1".to_owned(),
            instance: String::new(),
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
        assert!(problems_of(&servers, 1015)[0].1.starts_with("no report since 1970-01-01T00:16:40Z"));
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
            zones: [
                "cluster.local",
                "example.org",
                "local",
                "svc.cluster.local",
                "a.pod.cluster.local",
                "db.cluster.local",
            ]
            .map(str::to_owned)
            .to_vec(),
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
            "no state yet: all questions fail until a control server sends it; DnsZone svc.cluster.local is not answered, because \
             its names belong to the cluster zone; DnsZone a.pod.cluster.local is not answered, because its names belong to \
             the cluster zone; upstream server 192.0.2.1:53 does not respond; upstream server 192.0.2.2:53 forwards questions back, so it is \
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
        for number in 1..REPORTERS_MAX {
            servers.apply(name(&format!("s{number}")), "x", report(1), at(1015)).unwrap();
        }
        assert_eq!(servers.apply(name("more"), "x", report(1), at(1016)), Err(DnsReportError::TooMany));
        assert_eq!(servers.apply(name("more"), "x", report(1), at(4700)), Ok(()));
    }

    /// A restart is no second server. Of two servers with one name, the one that began to report later is listed, with the problem,
    /// and the other one is refused while both report.
    #[test]
    fn two_servers_with_one_name_are_recognized() {
        let mut servers = DnsServers::default();
        let mut apply = |instance: &str, now: i64| {
            let report = DnsServerReport { instance: instance.to_owned(), ..report(1) };
            let outcome = servers.apply(name("a"), "x", report, at(now));
            (outcome, problems_of(&servers, now)[0].1.clone())
        };
        let fine = (Ok(()), String::new());
        let contested = "another DNS server reports with this name too".to_owned();
        assert_eq!(apply("one", 1000), fine);
        assert_eq!(apply("two", 1002), fine, "a restart");
        assert_eq!(apply("two", 1007), fine);
        assert_eq!(apply("one", 1010), (Err(DnsReportError::Contested), contested.clone()));
        assert_eq!(apply("two", 1012), (Ok(()), contested));
        assert_eq!(apply("two", 1025), fine, "the other one has stopped");
        assert_eq!(apply("one", 1040), fine, "and this one too, for a while");
    }
}
