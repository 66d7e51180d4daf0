//! Gateways (processes of `tidegate-gateway`) as their reports describe them: the problems that follow from the reports and
//! their age, and the listeners that the processes serve.

use std::{collections::BTreeMap, sync::Arc};

use super::reporter_book::{
    FORGOTTEN_AFTER_SECS, OwnReport, REPORTERS_MAX, Reporter, ReporterBook, TooManyReporters,
};
use crate::{
    http::HttpObjectKey,
    kinds::condition_reason::ConditionReason,
    primitives::{
        name::Name,
        quantity::{Port, Revision, Timestamp},
    },
    wire::http_gateway::{
        GATEWAY_REPORT_INTERVAL_SECS, GatewaySocket, HttpGatewayList, HttpGatewayReport, HttpGatewayStatus,
    },
};

/// Number of requests from which a share of failures is a problem.
const REQUESTS_JUDGED_MIN: u64 = 100;
/// A problem is reported if more than one of so many requests fails.
const FAILURES_DIVISOR: u64 = 10;
/// Maximum number of names in a message.
const NAMES_MAX: usize = 3;

/// Reports of all gateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGateways {
    started: Timestamp,
    known: ReporterBook<Arc<HttpGatewayReport>>,
}

type ReportedGateway = Reporter<Arc<HttpGatewayReport>>;

impl OwnReport for Arc<HttpGatewayReport> {
    const INTERVAL_SECS: u64 = GATEWAY_REPORT_INTERVAL_SECS;

    fn revision(&self) -> Option<Revision> {
        self.revision
    }
}

/// Reason for which a report is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GatewayReportError {
    /// Another identity, or a process that started later, reports for the gateway.
    #[error("another gateway reports under this name; give each gateway its own --name")]
    Foreign,
    /// Too many gateways report.
    #[error("{REPORTERS_MAX} gateways report already")]
    TooMany,
}

/// Gateways at one time, divided by the age of their reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayReports {
    /// True shortly after the start of the control server, when gateways may exist that have not reported yet.
    pub is_starting: bool,
    /// Reports of the gateways that are not silent, by the name of the gateway.
    pub reporting: BTreeMap<Name, Arc<HttpGatewayReport>>,
    /// Times of the last reports of silent gateways, with the reports.
    pub silent: BTreeMap<Name, (Timestamp, Arc<HttpGatewayReport>)>,
    /// Earliest time at which this division changes without a report; `None` if there is none.
    pub until: Option<Timestamp>,
}

/// Reason for which a listener is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerProblem {
    /// Reason of the condition Programmed.
    pub reason: ConditionReason,
    /// Description of the reason.
    pub message: String,
    /// True if another process serves the listener.
    pub is_partial: bool,
}

impl HttpGateways {
    /// Creates an empty list; `started` is the start time of the control server.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self { started, known: ReporterBook::default() }
    }

    /// Stores the report of a gateway, or removes the gateway if it stops. Forgets gateways that have been silent for an hour.
    /// Returns true if the change may have an influence on the state of a Gateway.
    ///
    /// # Errors
    /// Returns an error if another identity or a newer process reports for the gateway, or if too many gateways report.
    pub fn apply(
        &mut self,
        name: Name,
        author: &str,
        report: HttpGatewayReport,
        now: Timestamp,
    ) -> Result<bool, GatewayReportError> {
        self.known.forget(now);
        let known = self.known.get_mut(&name);
        let current = known.filter(|known| !known.is_silent(now));
        let is_older = |known: &ReportedGateway| report.started_at < known.report.started_at;
        if current.as_ref().is_some_and(|known| known.is_foreign(author, now) || is_older(known)) {
            return Err(GatewayReportError::Foreign);
        }
        let is_news = current.is_none_or(|known| !is_equivalent(&known.report, &report));
        if report.stopping {
            return Ok(self.known.remove(&name));
        }
        let inserted = self.known.insert(name, author, Arc::new(report), now);
        inserted.map(|()| is_news).map_err(|TooManyReporters| GatewayReportError::TooMany)
    }

    /// Returns the gateways with their problems at a time.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> HttpGatewayList {
        let newest = self.known.settled_revision(now);
        let status = |(name, known): (&Name, &ReportedGateway)| HttpGatewayStatus {
            name: name.clone(),
            reported_at: known.reported_at,
            problems: problems(known, newest, now),
            report: (*known.report).clone(),
        };
        HttpGatewayList { gateways: self.known.known(now).map(status).collect() }
    }

    /// Returns the gateways divided by the age of their reports at a time.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> GatewayReports {
        let later = |time: Timestamp, seconds: i64| {
            Timestamp::from_unix_seconds(time.unix_seconds().saturating_add(seconds))
        };
        let silent_after = ReportedGateway::SILENT_AFTER_SECS;
        let started = later(self.started, silent_after);
        let is_starting = now < started;
        let mut reports = GatewayReports { is_starting, ..GatewayReports::default() };
        let mut ends: Vec<_> = is_starting.then_some(started).into_iter().collect();
        for (name, known) in self.known.known(now) {
            if known.is_silent(now) {
                ends.push(later(known.reported_at, FORGOTTEN_AFTER_SECS));
                reports.silent.insert(name.clone(), (known.reported_at, Arc::clone(&known.report)));
            } else {
                ends.push(later(known.reported_at, silent_after));
                reports.reporting.insert(name.clone(), Arc::clone(&known.report));
            }
        }
        reports.until = ends.into_iter().min();
        reports
    }
}

fn problems(known: &ReportedGateway, newest: Option<Revision>, now: Timestamp) -> Vec<String> {
    if known.is_silent(now) {
        // Its other problems are as old as its report.
        return vec![format!(
            "no report for {} s: the gateway is down or cannot reach this control server",
            known.age(now)
        )];
    }
    let HttpGatewayReport {
        version: _,
        started_at: _,
        stopping: _,
        connected,
        revision,
        serves: _,
        sockets,
        certificates: _,
        certificates_missing,
        connections: _,
        requests,
    } = &*known.report;
    let mut problems = Vec::new();
    match revision {
        None => problems.push("no state yet: it listens at no port".to_owned()),
        Some(revision) if newest.is_some_and(|newest| *revision < newest) => {
            problems.push(format!("decides from revision {revision}, while others have a later one"));
        }
        Some(_) => {}
    }
    if !connected {
        problems.push("no control server sends it the state; it decides from the last one".to_owned());
    }
    problems.extend(sockets.iter().filter_map(socket_problem));
    if !certificates_missing.is_empty() {
        problems.push(missing(certificates_missing));
    }
    let (total, failed) = (requests.count(..), requests.count(500..));
    if total >= REQUESTS_JUDGED_MIN && failed > total / FAILURES_DIVISOR {
        problems.push(format!(
            "{failed} of {total} requests within {} s ended with a code from 500",
            requests.seconds
        ));
    }
    problems
}

impl GatewayReports {
    /// Returns the reports of the processes that serve a Gateway and are not silent.
    pub fn serving<'a>(
        &'a self,
        gateway: &'a HttpObjectKey,
    ) -> impl Iterator<Item = (&'a Name, &'a HttpGatewayReport)> {
        let reporting = self.reporting.iter().map(|(name, report)| (name, &**report));
        reporting.filter(|(_, report)| serves(report, gateway))
    }

    /// Returns the silent processes that served a Gateway, with the times of their last reports.
    pub fn silent_of<'a>(
        &'a self,
        gateway: &'a HttpObjectKey,
    ) -> impl Iterator<Item = (&'a Name, Timestamp)> {
        let silent = self.silent.iter().filter(|(_, (_, report))| serves(report, gateway));
        silent.map(|(name, (at, _))| (name, *at))
    }

    /// Returns the reason for which a listener of a Gateway at a port is not served by each process that should serve it;
    /// `None` if it is.
    #[must_use]
    pub fn listener_problem(&self, gateway: &HttpObjectKey, port: Port) -> Option<ListenerProblem> {
        let serving: Vec<_> = self.serving(gateway).collect();
        if serving.is_empty() {
            return Some(self.no_gateway(gateway));
        }
        let without: Vec<_> = serving.iter().filter(|(_, report)| !is_open(report, port)).collect();
        let (name, report) = without.first()?;
        let is_partial = without.len() < serving.len();
        let failed = report.sockets.iter().find(|one| one.address.port() == port.get());
        let cause = match failed.and_then(|socket| socket.error.as_ref()) {
            Some(error) => format!("gateway {name} cannot listen at port {port}: {error}"),
            None => format!("gateway {name} does not listen at port {port} yet"),
        };
        let others = if is_partial { "; other gateways serve it" } else { "" };
        let message = format!("{cause}{others}");
        Some(ListenerProblem { reason: ConditionReason::NotListening, message, is_partial })
    }

    fn no_gateway(&self, gateway: &HttpObjectKey) -> ListenerProblem {
        let silent: Vec<_> =
            self.silent_of(gateway).map(|(name, at)| format!("{name} last did at {at}")).collect();
        let mut message = "no gateway that serves it reports to this control server".to_owned();
        if !silent.is_empty() {
            message.push_str(&format!("; {}", few(silent.iter())));
        }
        let reason = if self.is_starting { ConditionReason::NoReport } else { ConditionReason::NoGateway };
        ListenerProblem { reason, message, is_partial: false }
    }
}

/// Returns true if two reports have the same influence on the state of Gateways.
fn is_equivalent(one: &HttpGatewayReport, other: &HttpGatewayReport) -> bool {
    let HttpGatewayReport {
        version: _,
        started_at: _,
        stopping,
        connected,
        // A change of the state is noticed by itself.
        revision: _,
        serves,
        sockets,
        certificates: _,
        certificates_missing,
        connections: _,
        requests: _,
    } = one;
    (stopping, connected, serves, sockets, certificates_missing)
        == (&other.stopping, &other.connected, &other.serves, &other.sockets, &other.certificates_missing)
}

fn serves(report: &HttpGatewayReport, gateway: &HttpObjectKey) -> bool {
    report.serves.is_empty() || report.serves.contains(gateway)
}

/// Returns true if a gateway has an open socket at a port.
fn is_open(report: &HttpGatewayReport, port: Port) -> bool {
    report.sockets.iter().any(|socket| socket.address.port() == port.get() && socket.error.is_none())
}

fn socket_problem(socket: &GatewaySocket) -> Option<String> {
    let error = socket.error.as_ref()?;
    Some(format!("cannot listen on {}: {error}", socket.address))
}

fn missing(certificates: &[HttpObjectKey]) -> String {
    format!(
        "it lacks the private keys of {}; their connections are refused",
        few(certificates.iter().map(ToString::to_string))
    )
}

/// Joins the first texts of a list, with the number of the others.
fn few(texts: impl ExactSizeIterator<Item = impl AsRef<str>>) -> String {
    let more = texts.len().saturating_sub(NAMES_MAX);
    let mut joined = String::new();
    for text in texts.take(NAMES_MAX) {
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(text.as_ref());
    }
    if more > 0 {
        joined.push_str(&format!(" and {more} more"));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http_gateway::{GatewayCodeCount, GatewayRequests};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(seconds)
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn key(text: &str) -> HttpObjectKey {
        text.parse().unwrap()
    }

    fn port(number: u16) -> Port {
        Port::new(number).unwrap()
    }

    fn socket(address: &str, error: Option<&str>) -> GatewaySocket {
        GatewaySocket { address: address.parse().unwrap(), error: error.map(str::to_owned) }
    }

    fn report(started_at: i64) -> HttpGatewayReport {
        HttpGatewayReport {
            version: "1".to_owned(),
            started_at: at(started_at),
            stopping: false,
            connected: true,
            revision: Some(Revision(7)),
            serves: Vec::new(),
            sockets: vec![socket("0.0.0.0:80", None)],
            certificates: 0,
            certificates_missing: Vec::new(),
            connections: 0,
            requests: GatewayRequests::default(),
        }
    }

    fn problems(gateways: &HttpGateways, now: i64) -> Vec<String> {
        gateways.list(at(now)).gateways.into_iter().map(|one| one.problems.join("; ")).collect()
    }

    /// A gateway is silent after three intervals, and forgotten after an hour. One that stops is forgotten at once.
    #[test]
    fn a_silent_gateway_is_a_problem_and_one_that_stopped_is_not() {
        let mut gateways = HttpGateways::new(at(0));
        assert_eq!(gateways.apply(name("a"), "x", report(1), at(1000)), Ok(true));
        assert_eq!(gateways.apply(name("a"), "x", report(1), at(1005)), Ok(false), "no news");
        assert_eq!(problems(&gateways, 1019), [""]);
        assert_eq!(gateways.at(at(1019)).until, Some(at(1020)));
        assert!(problems(&gateways, 1020)[0].starts_with("no report for 15 s"));
        let silent = gateways.at(at(1020));
        assert!(silent.reporting.is_empty() && silent.silent.contains_key(&name("a")));
        assert_eq!(problems(&gateways, 4605), [""; 0]);
        assert_eq!(gateways.apply(name("a"), "x", report(1), at(1030)), Ok(true), "it is back");
        let stopping = HttpGatewayReport { stopping: true, ..report(1) };
        assert_eq!(gateways.apply(name("a"), "x", stopping, at(1031)), Ok(true));
        assert_eq!(problems(&gateways, 1031), [""; 0]);
    }

    /// Reports of another identity, and of an older process of the same name, are rejected. The last report of a process does
    /// not remove its successor.
    #[test]
    fn a_gateway_reports_only_about_itself() {
        let mut gateways = HttpGateways::new(at(0));
        gateways.apply(name("a"), "x", report(10), at(1000)).unwrap();
        assert_eq!(gateways.apply(name("a"), "y", report(20), at(1014)), Err(GatewayReportError::Foreign));
        assert_eq!(gateways.apply(name("a"), "x", report(20), at(1010)), Ok(false), "its successor");
        let stopping = HttpGatewayReport { stopping: true, ..report(10) };
        assert_eq!(gateways.apply(name("a"), "x", stopping, at(1011)), Err(GatewayReportError::Foreign));
        assert_eq!(gateways.apply(name("a"), "y", report(1), at(1025)), Ok(true), "it was silent");
        for number in 1..REPORTERS_MAX {
            gateways.apply(name(&format!("g{number}")), "x", report(1), at(1025)).unwrap();
        }
        assert_eq!(gateways.apply(name("b"), "x", report(1), at(1026)), Err(GatewayReportError::TooMany));
    }

    #[test]
    fn states_and_failures_of_a_report_are_problems() {
        let mut gateways = HttpGateways::new(at(0));
        let codes =
            vec![GatewayCodeCount { code: 200, count: 89 }, GatewayCodeCount { code: 503, count: 11 }];
        let bad = HttpGatewayReport {
            connected: false,
            revision: None,
            sockets: vec![socket("0.0.0.0:80", Some("in use"))],
            certificates_missing: vec![key("shop/a"), key("shop/b"), key("shop/c"), key("shop/d")],
            requests: GatewayRequests { seconds: 60, codes },
            ..report(1)
        };
        gateways.apply(name("a"), "x", bad, at(1000)).unwrap();
        assert_eq!(
            problems(&gateways, 1000),
            [
                "no state yet: it listens at no port; no control server sends it the state; it decides from the last one; \
              cannot listen on 0.0.0.0:80: in use; it lacks the private keys of shop/a, shop/b, shop/c and 1 more; their \
              connections are refused; 11 of 100 requests within 60 s ended with a code from 500"
            ]
        );
    }

    /// A gateway is behind if another one has had a later revision for 10 s.
    #[test]
    fn a_gateway_behind_the_others_is_a_problem() {
        let mut gateways = HttpGateways::new(at(0));
        let with = |revision| HttpGatewayReport { revision: Some(Revision(revision)), ..report(1) };
        for now in [1000, 1010] {
            gateways.apply(name("a"), "x", with(7), at(now)).unwrap();
            gateways.apply(name("b"), "x", with(8), at(now)).unwrap();
        }
        assert_eq!(problems(&gateways, 1009), ["", ""]);
        assert_eq!(problems(&gateways, 1010), ["decides from revision 7, while others have a later one", ""]);
    }

    /// A listener is served if each gateway that serves its Gateway has an open socket at the port.
    #[test]
    fn a_listener_is_served_by_open_sockets() {
        let mut gateways = HttpGateways::new(at(1000));
        let found = |gateways: &HttpGateways, now: i64, of: &str, number: u16| {
            let problem = gateways.at(at(now)).listener_problem(&key(of), port(number));
            problem.map(|one| (one.reason, one.message, one.is_partial))
        };
        let reason = |gateways: &HttpGateways, now: i64| {
            found(gateways, now, "shop/edge", 80).map(|(reason, _, is_partial)| (reason, is_partial))
        };
        assert_eq!(reason(&gateways, 1014), Some((ConditionReason::NoReport, false)), "just started");
        assert_eq!(reason(&gateways, 1015), Some((ConditionReason::NoGateway, false)));
        gateways.apply(name("a"), "x", report(1), at(1020)).unwrap();
        assert_eq!(reason(&gateways, 1020), None);
        let (_, message, _) = found(&gateways, 1020, "shop/edge", 443).unwrap();
        assert_eq!(message, "gateway a does not listen at port 443 yet");
        let failed = vec![socket("192.0.2.1:80", Some("in use"))];
        let other = HttpGatewayReport { sockets: failed, serves: vec![key("shop/edge")], ..report(1) };
        gateways.apply(name("b"), "x", other, at(1020)).unwrap();
        let (_, message, is_partial) = found(&gateways, 1020, "shop/edge", 80).unwrap();
        let wanted = "gateway b cannot listen at port 80: in use; other gateways serve it";
        assert_eq!((message.as_str(), is_partial), (wanted, true));
        assert_eq!(found(&gateways, 1020, "shop/inner", 80), None, "b does not serve it");
        let (reason, message, _) = found(&gateways, 1035, "shop/edge", 80).unwrap();
        assert_eq!(reason, ConditionReason::NoGateway);
        assert!(message.contains("; a last did at 1970-01-01T00:17:00Z, b last did at"), "{message}");
    }
}
