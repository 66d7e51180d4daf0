//! Health check thread: sleeps until the state changes, a check must start or a check has ended. All its
//! sockets are created in the network namespace of the thread.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
    thread::Builder,
    time::Instant,
};

use base::{clock::wall_clock, entropy};
use model::primitives::name::Name;
use tokio::{
    sync::watch,
    task::{self, AbortHandle, JoinError, JoinSet},
};
use tracing::error;

use super::{
    Metrics,
    engine::{Engine, Id, Moment},
    inbox::{Inbox, Mail},
    machine::Change,
    status::CheckedEndpoints,
    verdict::{Outcome, Verdict},
};

/// Starts the health check thread. The thread ends when its inbox is closed. The caller need not join it,
/// because it has no state to flush.
pub(super) fn spawn(
    node: Name,
    inbox: Arc<Inbox>,
    publish: watch::Sender<CheckedEndpoints>,
    metrics: Metrics,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let checker = Checker { engine: Engine::new(node), flights: Flights::default(), publish, metrics };
    Builder::new().name("checks".to_owned()).spawn(move || {
        runtime.block_on(checker.run(&inbox));
        runtime.shutdown_background();
    })?;
    Ok(())
}

struct Checker {
    engine: Engine,
    flights: Flights,
    publish: watch::Sender<CheckedEndpoints>,
    metrics: Metrics,
}

impl Checker {
    async fn run(mut self, inbox: &Inbox) {
        loop {
            let due = self.engine.next_due();
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                mail = inbox.next() => {
                    let Some(Mail { changes, refusals }) = mail else { return };
                    for id in self.engine.follow(changes, moment()) {
                        self.flights.cut(&id);
                        self.engine.cut(&id);
                    }
                    if let Some(refusals) = refusals {
                        self.engine.refuse(&refusals, moment());
                    }
                }
                Some((id, verdict)) = self.flights.next() => {
                    self.take(&id, &verdict);
                    // Results that arrived in the meantime are published together.
                    while let Some((id, verdict)) = self.flights.try_next() {
                        self.take(&id, &verdict);
                    }
                }
                () = sleep => {}
            }
            let started = self.engine.start(moment());
            for id in &started.evicted {
                self.flights.cut(id);
                self.count(Outcome::NotAsked);
            }
            for (id, probe) in started.probes {
                self.flights.start(id, probe.run());
            }
            self.metrics.waiting.set(i64::try_from(self.engine.waiting()).unwrap_or(i64::MAX));
            self.publish();
        }
    }

    fn take(&mut self, id: &Id, verdict: &Verdict) {
        self.count(verdict.outcome);
        self.engine.finish(id, verdict, moment());
    }

    fn count(&self, outcome: Outcome) {
        self.metrics.checks.get_or_create(&[("result", outcome.as_str())]).inc();
    }

    fn publish(&mut self) {
        let (change, checked) = self.engine.shown();
        if change == Change::Nothing {
            return;
        }
        let is_news = change == Change::State;
        self.publish.send_if_modified(|shown| {
            shown.clone_from(checked);
            is_news
        });
    }
}

/// Tokio tasks of the running checks.
#[derive(Default)]
struct Flights {
    tasks: JoinSet<Verdict>,
    ids: HashMap<task::Id, Id>,
    handles: BTreeMap<Id, AbortHandle>,
}

impl Flights {
    fn start(&mut self, id: Id, check: impl Future<Output = Verdict> + Send + 'static) {
        let handle = self.tasks.spawn(check);
        self.ids.insert(handle.id(), id.clone());
        self.handles.insert(id, handle);
    }

    /// Aborts the task of a check. The check then has no result.
    fn cut(&mut self, id: &Id) {
        if let Some(handle) = self.handles.remove(id) {
            self.ids.remove(&handle.id());
            handle.abort();
        }
    }

    /// Waits for the next result of a check. Never returns `None`, but waits while no check is running.
    /// Cancel-safe.
    async fn next(&mut self) -> Option<(Id, Verdict)> {
        loop {
            let Some(ended) = self.tasks.join_next_with_id().await else { std::future::pending().await };
            if let Some(answer) = self.land(ended) {
                return Some(answer);
            }
        }
    }

    fn try_next(&mut self) -> Option<(Id, Verdict)> {
        loop {
            let ended = self.tasks.try_join_next_with_id()?;
            if let Some(answer) = self.land(ended) {
                return Some(answer);
            }
        }
    }

    /// Returns the result of an ended task, or `None` if it was aborted.
    fn land(&mut self, ended: Result<(task::Id, Verdict), JoinError>) -> Option<(Id, Verdict)> {
        let (task, verdict) = match ended {
            Ok((task, verdict)) => (task, verdict),
            Err(error) => {
                if !error.is_cancelled() {
                    error!(%error, "a health check task panicked");
                }
                (error.id(), Verdict::new(Outcome::NotAsked, "the check failed inside of the agent"))
            }
        };
        let id = self.ids.remove(&task)?;
        self.handles.remove(&id);
        Some((id, verdict))
    }
}

fn moment() -> Moment {
    Moment { now: Instant::now(), wall: wall_clock(), random: entropy() }
}
