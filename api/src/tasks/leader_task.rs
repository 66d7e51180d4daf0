//! Loop that runs the tasks that decide for the whole cluster, such as the assigner and the health judge. Every
//! control server runs them and keeps their derived state up to date; only the leader decides.
//!
//! ```text
//! leadership changed ─▶ begin anew ┐
//! commits ─────────────────────────┼─▶ apply commits ─▶ apply triggers ─▶ tick, if due ─▶ leader? decide : discard
//! triggers from reports ───────────┤
//! tick (1 s) ──────────────────────┘
//! ```
//! The steps of the diagram are methods of [`LeaderTask`]. A task keeps no state across changes of leadership:
//! its state is derived from the published state, reports and time, so that a new leader behaves as after a
//! start.

use std::{sync::Arc, time::Duration};

use model::{
    admission::admit::{Operation, Request},
    primitives::quantity::{Position, Revision},
};
use tokio::time::MissedTickBehavior;

use crate::{
    context::server_state::ServerState, security::Caller, state::published::Published,
    write::writer::WriteError,
};

/// Interval at which a leader task does its work that depends on time.
const TICK: Duration = Duration::from_secs(1);

/// Task that runs on every control server but decides only on the leader, such as the assigner and the health
/// judge.
pub(crate) trait LeaderTask: Sized + Send {
    /// Creates the task without derived state.
    fn new(app: Arc<ServerState>) -> Self;

    /// Returns the position of the published state from which the task's state is derived.
    fn seen(&mut self) -> &mut Position;

    /// Waits until a report of an agent requires a decision.
    fn triggered(app: &ServerState) -> impl Future<Output = ()> + Send;

    /// Updates the derived state with the commits after `since`. Returns `None` if they are no longer in memory.
    fn apply_changes(&mut self, published: &Published, since: Revision) -> Option<()>;

    /// Derives the task's state from the complete published state.
    fn begin_anew(&mut self, published: &Published);

    /// Takes the triggers that were collected from agents' reports, and marks the objects for which they
    /// require a decision, so that [`Self::decide`] makes it.
    fn apply_triggers(&mut self);

    /// Does the work that depends on time. `leads` is true if this server is the leader.
    fn tick(&mut self, leads: bool) -> impl Future<Output = ()> + Send;

    /// Makes a decision for each marked object. Called on the leader only.
    fn decide(&mut self) -> impl Future<Output = ()> + Send;

    /// Removes all marks without a decision, because another server is the leader and decides.
    fn discard(&mut self);
}

/// Runs a leader task until the server stops.
pub(crate) async fn run<T: LeaderTask>(app: Arc<ServerState>) {
    let mut task = T::new(Arc::clone(&app));
    let mut commits = app.hub.subscribe();
    let mut leadership = app.leadership.clone();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut is_tick = false;
        tokio::select! {
            () = leadership.changed() => task = T::new(Arc::clone(&app)),
            changed = commits.changed() => if changed.is_err() { return },
            () = T::triggered(&app) => {}
            _ = tick.tick() => is_tick = true,
        }
        apply_commits(&mut task, &app);
        task.apply_triggers();
        let leads = leadership.holds();
        if is_tick {
            task.tick(leads).await;
        }
        if leads {
            task.decide().await;
        } else {
            task.discard();
        }
    }
}

/// Updates the derived state of a task to the newest published state.
pub(super) fn apply_commits<T: LeaderTask>(task: &mut T, app: &ServerState) {
    let published = app.hub.load();
    let position = published.position();
    let Position { epoch, revision } = *task.seen();
    if (Position { epoch, revision }) == position {
        return;
    }
    if epoch != published.epoch || task.apply_changes(&published, revision).is_none() {
        task.begin_anew(&published);
    }
    *task.seen() = position;
}

/// Submits the operations of a decision as one write of the server itself.
pub(super) async fn write(app: &ServerState, operations: Vec<Operation>) -> Result<(), WriteError> {
    let request = Request { operations, ..Request::default() };
    let outcome = app.writer.write(&Caller::server(), request, app.source.draw(), 0).await;
    match &outcome {
        Ok(_) | Err(WriteError::Busy | WriteError::Contended | WriteError::Unavailable) => {}
        Err(WriteError::Refused(_) | WriteError::Forbidden(_) | WriteError::TooLarge(_)) => {
            tracing::error!(error = ?outcome, "a decision of this server was rejected by its own validation");
        }
    }
    outcome.map(|_| ())
}
