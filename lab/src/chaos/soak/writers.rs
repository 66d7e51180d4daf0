//! Writers that change objects at a limited rate during a soak test and check every response.
//!
//! If a request gets no response or is rejected temporarily, because the control server is killed, suspended or
//! starting, the writer repeats it until it succeeds; changes are idempotent. Any other failure is recorded as a
//! problem in the outcome of the test.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::changes::{Estate, SoakCall, WRITERS_MIN};
use crate::{
    cluster::control::http_builder,
    host::{netns::Namespace, wait},
};

/// Response timeout of a writer. If the control server is suspended for longer, the writer retries.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a change without a response is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// Maximum delay that a writer makes up for by faster writes. Of a longer delay, such as an outage of the
/// server, only this part is made up for.
const BEHIND_MAX: Duration = Duration::from_secs(2);
/// Maximum number of unexpected responses recorded; further responses are dropped.
const UNEXPECTED_MAX: usize = 50;
/// Timeout for all writers to carry out a command: several times the response timeout of a request.
const OBEDIENCE: Duration = Duration::from_secs(90);

/// Command to the writer threads of a soak test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// Command to write changes at the configured rate.
    Write,
    /// Command to pause without removing the objects.
    Rest,
    /// Command to remove or restore all changed objects, and then to pause.
    Tidy,
    /// Command to end all writer threads.
    End,
}

/// Parameters of the writers: seed, number of writers, total rate, and number of permanent Services that the
/// writers may change.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pub(super) seed: u64,
    pub(super) writers: u64,
    /// Requests per second of all writers together.
    pub(super) per_second: u32,
    pub(super) filling: u32,
}

/// Counters of all writers, and unexpected responses.
#[derive(Debug, Clone, Default)]
pub(super) struct WriterResults {
    /// Number of changes written, by kind.
    pub(super) changes: BTreeMap<String, u64>,
    /// Number of successful requests.
    pub(super) requests: u64,
    /// Number of retried requests, by reason of the retry.
    pub(super) again: BTreeMap<String, u64>,
    /// Descriptions of unexpected responses, up to [`UNEXPECTED_MAX`].
    pub(super) unexpected: Vec<String>,
}

/// Writer threads of a soak test. Dropping the value ends them.
#[derive(Debug)]
pub(super) struct Writers {
    order: Arc<AtomicU8>,
    obeyed: Vec<Arc<AtomicU8>>,
    requests: Arc<AtomicU64>,
    written: Arc<Mutex<WriterResults>>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts the writers in the namespace `from`. Each begins at once to send writes to the server with the
    /// URL `base`.
    pub(super) fn start(from: &Namespace, base: &str, pace: &Pace) -> Result<Self> {
        ensure!(pace.writers >= WRITERS_MIN, "a soak has at least {WRITERS_MIN} writers");
        let mut writers = Self {
            order: Arc::default(),
            obeyed: Vec::new(),
            requests: Arc::default(),
            written: Arc::default(),
            threads: Vec::new(),
        };
        for index in 0..pace.writers {
            let obeyed = Arc::new(AtomicU8::new(Order::Write as u8));
            let mut writer = SoakWriter {
                estate: Estate::new(pace.seed, index, pace.writers, pace.filling),
                http: client()?,
                base: base.to_owned(),
                order: Arc::clone(&writers.order),
                obeyed: Arc::clone(&obeyed),
                requests: Arc::clone(&writers.requests),
                written: Arc::clone(&writers.written),
                step: Duration::from_secs(pace.writers) / pace.per_second,
            };
            writers.threads.push(from.spawn(&format!("writer-{index}"), move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be created for each writer").block_on(writer.run());
            })?);
            writers.obeyed.push(obeyed);
        }
        Ok(writers)
    }

    /// Sends a command to all writers and waits until each of them has carried it out.
    pub(super) fn tell(&self, order: Order) -> Result<()> {
        self.order.store(order as u8, Ordering::SeqCst);
        wait::until_within(OBEDIENCE, "the writers to follow the order", || {
            let slow = self.obeyed.iter().position(|obeyed| obeyed.load(Ordering::SeqCst) != order as u8);
            ensure!(slow.is_none(), "writer {slow:?} does not: {:?}", self.written().unexpected);
            Ok(())
        })
    }

    /// Returns the number of successful requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn written(&self) -> WriterResults {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        WriterResults { requests: self.requests(), ..written.clone() }
    }

    /// Ends the writers and returns their results.
    pub(super) fn end(mut self) -> WriterResults {
        self.join();
        self.written()
    }

    fn join(&mut self) {
        self.order.store(Order::End as u8, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.join();
    }
}

struct SoakWriter {
    estate: Estate,
    http: reqwest::Client,
    base: String,
    order: Arc<AtomicU8>,
    obeyed: Arc<AtomicU8>,
    requests: Arc<AtomicU64>,
    written: Arc<Mutex<WriterResults>>,
    /// Interval between two requests of one writer.
    step: Duration,
}

impl SoakWriter {
    async fn run(&mut self) {
        let mut due = Instant::now();
        loop {
            let order = self.order.load(Ordering::SeqCst);
            let is_new = self.obeyed.load(Ordering::SeqCst) != order;
            if order == Order::End as u8 {
                return;
            } else if order == Order::Write as u8 {
                self.obeyed.store(order, Ordering::SeqCst);
                due = self.change(due).await;
            } else {
                if is_new && order == Order::Tidy as u8 {
                    for call in self.estate.tidy() {
                        self.carry_out("tidying", &call).await;
                    }
                }
                self.obeyed.store(order, Ordering::SeqCst);
                tokio::time::sleep(AGAIN).await;
                due = Instant::now();
            }
        }
    }

    /// Makes the next change, which may take several requests. Sends the first one at the time `due`, and
    /// each further one an interval later. Returns the time for the first request of the following change.
    async fn change(&mut self, mut due: Instant) -> Instant {
        let change = self.estate.next();
        for call in &change.calls {
            tokio::time::sleep_until(due.into()).await;
            self.carry_out(change.kind, call).await;
            due = (due + self.step).max(Instant::now().checked_sub(BEHIND_MAX).unwrap_or(due));
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written.changes.entry(change.kind.to_owned()).or_default() += 1;
        due
    }

    async fn carry_out(&self, kind: &str, call: &SoakCall) {
        let mut was_asked = false;
        loop {
            match self.ask(call).await {
                Ok((200 | 201 | 204, _)) => _ = self.requests.fetch_add(1, Ordering::Relaxed),
                // The first attempt succeeded, but its response was lost.
                Ok((404, _)) if was_asked && call.method == "DELETE" => {}
                // No response, rejected by admission, or lost races: retry.
                outcome if !self.is_ending() && matches!(outcome, Err(_) | Ok((429 | 503 | 412, _))) => {
                    was_asked = true;
                    self.ask_again_because(
                        outcome.map_or_else(|error| reason(&error), |(status, _)| format!("answer {status}")),
                    );
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                outcome => self.tell_unexpected(kind, call, &outcome),
            }
            return;
        }
    }

    fn ask_again_because(&self, reason: String) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        *written.again.entry(reason).or_default() += 1;
    }

    fn tell_unexpected(&self, kind: &str, call: &SoakCall, outcome: &Result<(u16, String)>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.unexpected.len() < UNEXPECTED_MAX {
            let body = call.body.as_ref().map_or_else(String::new, Value::to_string);
            written.unexpected.push(format!("{kind}: {} {} {body}: {outcome:?}", call.method, call.path));
        }
    }

    fn is_ending(&self) -> bool {
        self.order.load(Ordering::SeqCst) == Order::End as u8
    }

    async fn ask(&self, call: &SoakCall) -> Result<(u16, String)> {
        let method = reqwest::Method::from_bytes(call.method.as_bytes())?;
        let mut request = self.http.request(method, format!("{}{}", self.base, call.path));
        if let Some(body) = &call.body {
            let form =
                if call.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            request = request.header("content-type", form).body(body.to_string());
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

/// Describes why a request got no response.
fn reason(error: &anyhow::Error) -> String {
    let error = error.downcast_ref::<reqwest::Error>();
    let (is_timeout, is_connect) =
        error.map_or((false, false), |error| (error.is_timeout(), error.is_connect()));
    match (is_timeout, is_connect) {
        (true, _) => "no answer in time",
        (false, true) => "no connection",
        (false, false) => "the connection ended",
    }
    .to_owned()
}

fn client() -> Result<reqwest::Client> {
    http_builder()?.tcp_nodelay(true).timeout(PATIENCE).build().context("a client")
}
