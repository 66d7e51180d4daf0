//! Tells control how far this agent is: the whole report each time, at once after progress and every 5 seconds, never
//! two in flight. A lost report is repaired by the next.

use std::time::Duration;

use model::{
    name::Name,
    report::{Counters, Facts, Report},
};
use reqwest::{Client, StatusCode, Url};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    entropy, facts,
    feed::{chain, read_error},
    status::Status,
    tally::Tally,
};

/// Time between reports without progress, by which control knows that the agent lives.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time that one report may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait after the first report that failed, and the longest one.
const RETRY_FLOOR: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Age at which the facts about the machine are read anew.
const FACTS_AGE_MAX: Duration = Duration::from_secs(30);

/// Who reports, and to whom.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// The client.
    pub client: Client,
    /// The base URL of control.
    pub api: Url,
    /// The node.
    pub node: Name,
    /// Differs with every start of the agent.
    pub boot_id: String,
    /// What is counted.
    pub tally: Tally,
}

#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error("control cannot be reached")]
    Unreachable(#[from] reqwest::Error),
    #[error("control refused the report with {status}: {body}")]
    Refused { status: StatusCode, body: String },
}

/// Reports until told to stop, from the moment on at which control knows the node.
pub async fn run(
    reporter: Reporter,
    status: watch::Receiver<Status>,
    is_known: watch::Receiver<bool>,
    stop: CancellationToken,
) {
    let _stopped = stop.run_until_cancelled(run_forever(reporter, status, is_known)).await;
}

async fn run_forever(
    reporter: Reporter,
    mut status: watch::Receiver<Status>,
    mut is_known: watch::Receiver<bool>,
) {
    if is_known.wait_for(|is_known| *is_known).await.is_err() {
        return;
    }
    let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CAP);
    let mut facts = facts::collect();
    let mut facts_at = Instant::now();
    let mut last_error = None;
    loop {
        if facts_at.elapsed() > FACTS_AGE_MAX {
            facts = facts::collect();
            facts_at = Instant::now();
        }
        let report = make_report(&reporter, &status.borrow_and_update(), facts.clone());
        match reporter.send(&report).await {
            Ok(()) => {
                reporter.tally.reports.inc();
                backoff.reset();
                if last_error.take().is_some() {
                    info!("reporting to control again");
                }
                let Ok(changed) = timeout(REPORT_INTERVAL, status.changed()).await else { continue };
                if changed.is_err() {
                    return;
                }
            }
            Err(error) => {
                reporter.tally.report_errors.inc();
                let text = chain(&error);
                if last_error.as_ref() == Some(&text) {
                    debug!(error = text, "a report was not delivered");
                } else {
                    warn!(error = text, "a report was not delivered; trying again");
                    last_error = Some(text);
                }
                tokio::time::sleep(backoff.next_delay(entropy())).await;
            }
        }
    }
}

impl Reporter {
    async fn send(&self, report: &Report) -> Result<(), ReportError> {
        let mut url = self.api.clone();
        url.set_path(&format!("/v1/nodes/{}/report", self.node));
        let response = self.client.put(url).json(report).timeout(REQUEST_TIMEOUT).send().await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(ReportError::Refused { status, body: read_error(response).await }),
        }
    }
}

/// The report of a moment.
#[must_use]
pub fn make_report(reporter: &Reporter, status: &Status, facts: Facts) -> Report {
    let verified = status.verified.unwrap_or_default();
    Report {
        boot_id: reporter.boot_id.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: status.mode,
        received: status.received.unwrap_or_default(),
        // A pass reads back what it wrote before it ends, so what is applied is verified in the same moment.
        applied: verified,
        verified,
        failures: (*status.failures).clone(),
        failures_total: status.failures_total,
        facts,
        counters: counters(&reporter.tally, status),
        warnings: status.warnings.clone(),
        events: Vec::new(),
        traffic: std::collections::BTreeMap::new(),
    }
}

/// The published counters of a moment.
#[must_use]
pub fn counters(tally: &Tally, status: &Status) -> Counters {
    Counters {
        objects_received: tally.objects_received.get(),
        feed_bytes: tally.feed_bytes.get(),
        passes: tally.passes.get(),
        kernel_transactions: status.kernel.transactions,
        kernel_messages: status.kernel.messages,
        drift_repairs: tally.drift_repairs.get(),
        conntrack_deletions: status.kernel.conntrack_deletions,
    }
}
