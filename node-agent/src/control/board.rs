//! Observed state of each control server, for status output and for other parts of the agent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use reqwest::Url;
use serde::Serialize;

use super::ServerId;

/// Purpose of a stream that is open from a control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamUse {
    /// No stream from this server is open.
    None,
    /// The stream (feed) delivers the state of this node.
    State,
    /// The stream carries only queries to this node; the state comes from another server.
    Questions,
}

/// Observed state of one control server: its stream, and the success of reports to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerState {
    /// Base URL of the server, as configured.
    pub url: String,
    /// Purpose of the stream that is open from this server.
    pub stream: StreamUse,
    /// Reason for which the last stream ended or could not be opened; `None` once a stream has opened again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_error: Option<String>,
    /// Number of streams opened from this server since the start of the agent.
    pub streams_opened: u64,
    /// True if the server accepted the last report; `None` before the first report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_reports: Option<bool>,
    /// Reason why the last report was not accepted; `None` if it was, or before the first report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_error: Option<String>,
    /// Number of reports that the server has accepted since the agent started.
    pub reports: u64,
    /// Number of reports that failed: they could not be delivered, or the server rejected them.
    pub report_errors: u64,
}

/// Observed state of all control servers, updated by the tasks that receive the state of the node and send
/// its reports.
#[derive(Debug)]
pub struct Board(Mutex<Vec<ServerState>>);

impl Board {
    pub(super) fn new(urls: &[Url]) -> Self {
        let seen = urls.iter().map(|url| ServerState {
            url: url.as_str().trim_end_matches('/').to_owned(),
            stream: StreamUse::None,
            stream_error: None,
            streams_opened: 0,
            takes_reports: None,
            report_error: None,
            reports: 0,
            report_errors: 0,
        });
        Self(Mutex::new(seen.collect()))
    }

    /// Returns the observed state of all servers in configuration order.
    #[must_use]
    pub fn all(&self) -> Vec<ServerState> {
        self.lock().clone()
    }

    /// Returns the number of streams opened from a server.
    #[must_use]
    pub fn streams_opened(&self, server: ServerId) -> u64 {
        self.lock()[server.0].streams_opened
    }

    /// Records that a stream from a server was opened, and its purpose.
    pub fn opened(&self, server: ServerId, stream: StreamUse) {
        let mut all = self.lock();
        let seen = &mut all[server.0];
        seen.stream = stream;
        seen.stream_error = None;
        seen.streams_opened += 1;
    }

    /// Records that a stream from `server` has ended or could not be opened; `stream` is its purpose (state
    /// or queries). Has no effect while a stream for the other purpose is open from this server.
    pub fn ended(&self, server: ServerId, stream: StreamUse, error: Option<String>) {
        let mut all = self.lock();
        let seen = &mut all[server.0];
        if seen.stream == stream || seen.stream == StreamUse::None {
            seen.stream = StreamUse::None;
            seen.stream_error = error;
        }
    }

    /// Records the result of a report to a server. Calls `tell` with true if any server accepted its last
    /// report, otherwise with false, in the order in which results are recorded.
    pub fn reported(&self, server: ServerId, outcome: Result<(), String>, tell: impl FnOnce(bool)) {
        let mut all = self.lock();
        let seen = &mut all[server.0];
        seen.takes_reports = Some(outcome.is_ok());
        match &outcome {
            Ok(()) => seen.reports += 1,
            Err(_) => seen.report_errors += 1,
        }
        seen.report_error = outcome.err();
        tell(all.iter().any(|seen| seen.takes_reports == Some(true)));
    }

    /// Locks the state. A poisoned lock is harmless, because changes are assignments of plain fields.
    fn lock(&self) -> MutexGuard<'_, Vec<ServerState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_reached_while_any_server_takes_reports() {
        let urls = ["http://a:1", "http://b:1"].map(|url| url.parse().unwrap());
        let board = Board::new(&urls);
        let (a, b) = (ServerId(0), ServerId(1));
        let mut told = Vec::new();
        let failed = || Err("refused".to_owned());
        for (server, outcome) in [(a, failed()), (b, Ok(())), (a, failed()), (b, failed()), (a, Ok(()))] {
            board.reported(server, outcome, |is_reached| told.push(is_reached));
        }
        assert_eq!(told, [false, true, true, false, true]);
        let all = board.all();
        assert_eq!((all[0].reports, all[0].report_errors, all[0].report_error.as_deref()), (1, 2, None));
        assert_eq!(all[1].report_error.as_deref(), Some("refused"));
    }

    #[test]
    fn a_stream_that_ends_late_does_not_hide_the_one_that_took_its_place() {
        let board = Board::new(&["http://a:1".parse().unwrap()]);
        let a = ServerId(0);
        board.opened(a, StreamUse::Questions);
        board.opened(a, StreamUse::State);
        board.ended(a, StreamUse::Questions, Some("late".to_owned()));
        assert_eq!(board.all()[0].stream, StreamUse::State);
        board.ended(a, StreamUse::State, Some("cut".to_owned()));
        let seen = &board.all()[0];
        assert_eq!((seen.stream, seen.stream_error.as_deref()), (StreamUse::None, Some("cut")));
        assert_eq!(board.streams_opened(a), 2);
    }
}
