//! Replies to queries from the control server: one query at a time, and only after all received changes have
//! been applied.
//!
//! ```text
//! feed ──query──▶ this task ──Errand──▶ agent thread, between two iterations (previews, traces: need the backend)
//!                     │  └────────────▶ a thread of its own                  (diagnosis, fixes: need only the machine)
//!                     └──PUT answers/{id}──▶ control server
//! ```
//! Invariant: a query causes no kernel write, except for a closed list of fixes if the operator allows them.
//! If a query confirms a state that the agent holds, the agent writes this state to the kernel in its next
//! loop iteration, and not as part of the query. A reply is sent only to the control server that sent the
//! query.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base::{chain, clock::wall_clock};
use model::{
    primitives::name::Name,
    wire::{
        ask::{AskId, FINDINGS_MAX, Question, REPLY_BYTES_MAX, Reply},
        doctor::SafeFix,
    },
};
use network::refusals::RecordRefusals;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

pub use crate::feed::ReceivedQuery;
use crate::{
    control::{Control, ServerId},
    doctor::{self, Subject},
    feed::read_error,
    status::Status,
};

/// Capacity of the queue of queries; the control server sends no more at once.
pub const QUESTIONS_WAITING_MAX: usize = 8;
/// Capacity of the queue to the agent thread: the task that replies to queries forwards one at a time.
pub const ERRANDS_WAITING_MAX: usize = 1;
/// Timeout for sending a reply to the control server. The server does not wait longer for a reply either.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Query for the agent thread, with the channel for the reply.
#[derive(Debug)]
pub struct Errand {
    question: Question,
    reply: oneshot::Sender<Reply>,
}

impl Errand {
    /// Computes the reply with `answer` and sends it, unless the receiver has been dropped.
    pub fn carry_out(self, answer: impl FnOnce(Question) -> Reply) {
        let Self { question, reply } = self;
        if !reply.is_closed() {
            // The receiver may be dropped meanwhile.
            let _gone = reply.send(answer(question));
        }
    }
}

/// Task that replies to queries from the control servers, with its dependencies.
#[derive(Debug, Clone)]
pub struct Answerer {
    /// Connections to the control servers; the reply goes to the server that sent the query.
    pub control: Arc<Control>,
    /// Name of this node, part of the URL path to which replies are sent.
    pub node: Name,
    /// Current status of the agent.
    pub status: watch::Receiver<Status>,
    /// Attachments that the control server does not record.
    pub refusals: watch::Receiver<RecordRefusals>,
    /// Reason why the routes or the tunnel of workload networks are not as they should be.
    pub network_failure: watch::Receiver<Option<String>>,
    /// True if the operator allows the control server to request fixes (`--allow-fixes`).
    pub allow_fixes: bool,
}

/// Replies to queries, one at a time, until stopped.
pub async fn run(
    answerer: Answerer,
    mut questions: mpsc::Receiver<ReceivedQuery>,
    errands: mpsc::Sender<Errand>,
    stop: CancellationToken,
) {
    let answer_all = async {
        while let Some(ReceivedQuery { by, id, question }) = questions.recv().await {
            let reply = answerer.reply(question, &errands).await;
            if let Err(error) = answerer.deliver(by, id, &reply).await {
                debug!(id = id.0, error, "cannot deliver the reply to a query");
            }
        }
    };
    let _stopped = stop.run_until_cancelled(answer_all).await;
}

impl Answerer {
    async fn reply(&self, question: Question, errands: &mpsc::Sender<Errand>) -> Reply {
        match question {
            Question::Doctor => {
                let subject = self.subject();
                let findings = spawn_blocking(move || doctor::examine(&subject)).await;
                let held = self.status.borrow().held;
                let held = held.map(|held| doctor::held(&held, &self.node));
                let unrecorded = doctor::unrecorded(&self.refusals.borrow());
                let unprogrammed = self.network_failure.borrow().clone().map(doctor::unprogrammed);
                let own = held.into_iter().chain(unprogrammed).chain(unrecorded);
                let findings = findings.map(|findings| own.chain(findings).take(FINDINGS_MAX).collect());
                findings.map_or_else(
                    |_| failed("the inspection of the machine was aborted"),
                    |findings| Reply::Doctor { findings, clock: Some(wall_clock()) },
                )
            }
            Question::Fix { fixes } => self.fix(fixes).await,
            question @ (Question::Plan(_)
            | Question::Compare(_)
            | Question::Trace(_)
            | Question::Confirm { .. }) => {
                let (reply, answer) = oneshot::channel();
                if errands.send(Errand { question, reply }).await.is_err() {
                    return failed("the agent is stopping");
                }
                answer.await.unwrap_or_else(|_| failed("the agent is stopping"))
            }
        }
    }

    fn subject(&self) -> Subject {
        let status = self.status.borrow();
        Subject { mode: status.mode, options: status.options.clone() }
    }

    async fn fix(&self, fixes: BTreeSet<SafeFix>) -> Reply {
        if !self.allow_fixes {
            return failed(
                "this agent does not change its machine on request: start it with --allow-fixes, or run \
                 `tidegate-agent doctor --fix` on the machine",
            );
        }
        let mode = self.subject().mode;
        let made = spawn_blocking(move || doctor::make(&fixes, mode)).await;
        made.map_or_else(
            |_| failed("the fixes were aborted"),
            |fixes| {
                for done in &fixes {
                    info!(fix = done.fix.as_str(), outcome = ?done.outcome, message = done.message, "fix \
                                                                                                     requested \
                                                                                                     by \
                                                                                                     control");
                }
                Reply::Fix { fixes }
            },
        )
    }

    async fn deliver(&self, to: ServerId, id: AskId, reply: &Reply) -> Result<(), String> {
        let mut body = serde_json::to_vec(reply).map_err(|error| error.to_string())?;
        if body.len() > REPLY_BYTES_MAX {
            let message = format!("the reply has {} bytes, more than control accepts", body.len());
            body = serde_json::to_vec(&failed(&message)).map_err(|error| error.to_string())?;
        }
        let url = self.control.url(to, &format!("/v1/nodes/{}/answers/{}", self.node, id.0));
        let request = self.control.client().put(url).timeout(REQUEST_TIMEOUT);
        let request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.map_err(|error| chain(&error))?;
        if response.status().is_success() {
            return Ok(());
        }
        let status = response.status();
        Err(format!("{status}: {}", read_error(response).await))
    }
}

/// Returns a reply that reports the failure of a query with this message.
#[must_use]
pub fn failed(message: &str) -> Reply {
    Reply::Failed { message: base::limit_message(message.to_owned()) }
}
