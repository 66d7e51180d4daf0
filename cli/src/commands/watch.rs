//! `watch`, and the event stream that `get -w` also uses. After a loss of the connection, connects again and
//! resumes after the last received position.
//!
//! States: `listing` receives the existing objects, up to the event BOOKMARK; `following` receives changes
//! until the connection is cut; `waiting` is the delay before the next connection. The server responds with
//! status 410 if it no longer has the changes after the position; the watch then lists all objects again.
//!
//! ```text
//! listing ──BOOKMARK──▶ following ──cut──▶ waiting ──connected──▶ following
//!    ▲                      │                 │
//!    └──────── 410, the position is too old ──┘
//! ```

use std::time::Duration;

use client::Error;
use model::{
    kinds::{resource::Kind, selector::LabelSelector},
    primitives::{name::Namespace, text::escape_json},
};
use serde_json::Value;

use crate::{
    args::{EventOutput, Watch},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    terminal::clean,
    views::{render, typed::documents::WatchEvent},
};

/// Delay before the first attempt to reconnect.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Maximum delay between attempts to reconnect; limits the time until the end of an outage is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Selection of the objects to watch, and the position reached so far.
pub(crate) struct Follow {
    /// Kinds to watch; empty means every kind.
    pub(crate) kinds: Vec<Kind>,
    /// Namespace to watch; `None` means every namespace.
    pub(crate) namespace: Option<Namespace>,
    /// Label selector that watched objects must match; `None` matches all.
    pub(crate) selector: Option<LabelSelector>,
    /// Last position received from the server; with `None`, the watch starts with all existing objects.
    pub(crate) position: Option<String>,
}

pub(crate) async fn run(
    client: &Client,
    arguments: Watch,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let mut follow = Follow {
        kinds: arguments.kinds,
        namespace: arguments.namespace,
        selector: arguments.selector,
        position: arguments.resume.map(|position| position.to_string()),
    };
    follow
        .run(client, terminal, |event, terminal| match arguments.output {
            EventOutput::Json if WatchEvent::of(event).event_type == "HEARTBEAT" => Ok(()),
            EventOutput::Json => terminal.print(&format!("{}\n", escape_json(&event.to_string()))),
            EventOutput::Lines => match render::event(event, terminal.style) {
                Some(line) => terminal.print(&format!("{line}\n")),
                None => {
                    note_end_of_listing(&WatchEvent::of(event), terminal);
                    Ok(())
                }
            },
        })
        .await
}

fn note_end_of_listing(event: &WatchEvent, terminal: &mut Terminal) {
    if event.initial {
        let position = clean(event.position.as_deref().unwrap_or_default());
        terminal.note(&format!("-- end of the listing at {position}; changes follow"));
    }
}

impl Follow {
    /// Passes every event to `each`. Returns only on a failure that reconnecting cannot fix: the first
    /// connection fails, the server rejects the request, or `each` fails.
    pub(crate) async fn run(
        &mut self,
        client: &Client,
        terminal: &mut Terminal,
        mut each: impl FnMut(&Value, &mut Terminal) -> Result<(), Failure>,
    ) -> Result<ExitCode, Failure> {
        let (mut pause, mut cut_before) = (PAUSE_MIN, false);
        loop {
            let before = self.position.clone();
            let (connected, failure) = match client.stream(self.request()).await {
                Err(failure) => (false, Some(failure)),
                Ok(mut lines) => {
                    if cut_before {
                        terminal.note("-- connected again");
                    }
                    loop {
                        match lines.next().await {
                            Ok(Some(event)) => {
                                self.take_position(&event);
                                each(&event, terminal)?;
                                terminal.flush()?;
                            }
                            Ok(None) => break (true, None),
                            Err(failure) => break (true, Some(failure)),
                        }
                    }
                }
            };
            let progressed = connected && self.position != before;
            let said = self.after_cut(connected, cut_before, failure)?;
            let begins_anew = before.is_some() && self.position.is_none();
            // An outage is logged once, not once per reconnect attempt.
            if connected || begins_anew || !cut_before {
                terminal.note(&said);
            }
            pause = if progressed { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            cut_before = true;
            tokio::time::sleep(pause).await;
        }
    }

    fn request(&self) -> Request {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
        Request::get("/v1/watch")
            .query("kinds", (!kinds.is_empty()).then(|| kinds.join(",")))
            .query("namespace", self.namespace.as_ref().map(Namespace::as_str))
            .query("labelSelector", self.selector.as_ref().map(ToString::to_string))
            .query("resume", self.position.as_deref())
    }

    /// Records the position of `event`, if it has one; only such events are resume points. Objects of a
    /// partially received revision are therefore sent again: delivery is at least once.
    fn take_position(&mut self, event: &Value) {
        if let Some(position) = WatchEvent::of(event).position {
            self.position = Some(position);
        }
    }

    /// Handles the end of the stream (`failure` is `None`) or a failed connection. Returns the message to
    /// print before the next attempt, or the failure that ends the watch. If the position has expired, clears
    /// it, so that the next attempt lists all objects.
    fn after_cut(
        &mut self,
        connected: bool,
        cut_before: bool,
        failure: Option<Failure>,
    ) -> Result<String, Failure> {
        let is_first = !connected && !cut_before;
        let cause = match failure {
            None => "the server closed the stream".to_owned(),
            Some(failure) if failure.problem_code() == Some("ResumeExpired") && !is_first => {
                self.position = None;
                return Ok("-- disconnected: the position has expired; listing everything again".to_owned());
            }
            Some(failure) if is_first || is_final(&failure) => return Err(failure),
            Some(failure) => failure.to_string(),
        };
        let place = self.position.as_deref().map_or_else(|| "the beginning".to_owned(), str::to_owned);
        Ok(format!("-- disconnected: {}; resuming from {}", clean(&cause), clean(&place)))
    }
}

/// Returns true if a retry would fail in the same way, because the server rejects the request itself.
fn is_final(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(problem) => {
            problem.rejection.status < 500
                && problem.rejection.status != 429
                && problem.rejection.status != 408
        }
        Failure::Control(error) => matches!(error, Error::TooLarge { .. }),
        Failure::Usage { .. }
        | Failure::File { .. }
        | Failure::Machine { .. }
        | Failure::Some { .. }
        | Failure::NotReached { .. }
        | Failure::StillOpen { .. }
        | Failure::Output(_) => true,
    }
}
