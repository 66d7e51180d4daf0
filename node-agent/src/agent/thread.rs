//! Thread of the control loop, which is the only one that programs the kernel. Kernel calls block, so they
//! are kept off the async runtime.

use std::{io, thread::JoinHandle, time::Instant};

use base::entropy;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    time::timeout_at,
};

use super::Agent;
use crate::{ask::Errand, feed::machine::Batch, service_status::LoopCounter, status::Status};

/// Capacity of the queue to the agent loop for batches of state changes. When the queue is full, the agent
/// stops reading from the control server, which merges further changes.
pub const BATCHES_WAITING_MAX: usize = 64;

/// Handles by which other parts of the agent access the loop thread.
pub struct Running {
    /// Handle of the loop thread, which ends when all senders of state changes are dropped.
    pub thread: JoinHandle<io::Result<()>>,
    /// Status of the agent, published after each iteration of the loop.
    pub status: watch::Receiver<Status>,
    /// Channel that receives a value after the first iteration of the loop.
    pub first_turn: oneshot::Receiver<()>,
    /// Counter of completed loop iterations, for the watchdog.
    pub beats: LoopCounter,
}

/// Starts the loop on its own thread.
///
/// # Errors
/// Returns an error if the thread cannot be created.
pub fn spawn(
    mut agent: Agent,
    batches: mpsc::Receiver<Batch>,
    errands: mpsc::Receiver<Errand>,
) -> io::Result<Running> {
    let (publish, status) = watch::channel(agent.status());
    let (done, first_turn) = oneshot::channel();
    let runtime = Handle::current();
    let beats = LoopCounter::default();
    let ends = Ends { publish, first_turn: done, beats: beats.clone() };
    let thread = std::thread::Builder::new()
        .name("loop".to_owned())
        .spawn(move || run(agent, Inlets { batches, errands }, ends, &runtime))?;
    Ok(Running { thread, status, first_turn, beats })
}

/// Queues from which the loop takes its inputs.
struct Inlets {
    batches: mpsc::Receiver<Batch>,
    errands: mpsc::Receiver<Errand>,
}

/// Next input of the loop.
enum Brought {
    /// Batch of state changes from the control server; `None` if all senders are dropped.
    Batch(Option<Box<Batch>>),
    /// Query from the control server, answered between two iterations of the loop.
    Errand(Errand),
}

impl Inlets {
    /// Returns the next input of the loop. Batches of state changes take precedence over queries.
    async fn next(&mut self) -> Brought {
        tokio::select! {
            biased;
            batch = self.batches.recv() => Brought::Batch(batch.map(Box::new)),
            Some(errand) = self.errands.recv() => Brought::Errand(errand),
        }
    }
}

/// Channels to which the loop publishes its results.
struct Ends {
    publish: watch::Sender<Status>,
    first_turn: oneshot::Sender<()>,
    beats: LoopCounter,
}

fn run(mut agent: Agent, mut inlets: Inlets, ends: Ends, runtime: &Handle) -> io::Result<()> {
    let Ends { publish, first_turn, beats } = ends;
    let mut first_turn = Some(first_turn);
    let mut errand: Option<Errand> = None;
    loop {
        agent.turn(Instant::now(), entropy());
        beats.beat();
        let status = agent.status();
        publish.send_if_modified(|shown| std::mem::replace(shown, status.clone()) != status);
        if let Some(first_turn) = first_turn.take() {
            // The receiver may be gone; the loop continues either way.
            let _gone = first_turn.send(());
        }
        // Answered after the turn, so that everything received before the question is in the kernel.
        if let Some(errand) = errand.take() {
            errand.carry_out(|question| agent.answer(question));
        }
        let deadline = agent.next_turn(Instant::now());
        // The timeout is created inside the runtime, because it needs the runtime's clock.
        let received = runtime.block_on(async { timeout_at(deadline.into(), inlets.next()).await });
        match received {
            Ok(Brought::Batch(Some(batch))) => agent.receive(*batch, Instant::now()),
            Ok(Brought::Batch(None)) => return agent.stop(),
            Ok(Brought::Errand(brought)) => errand = Some(brought),
            Err(_elapsed) => continue,
        }
        // Queued batches are applied in one pass.
        for _ in 0..BATCHES_WAITING_MAX {
            let Ok(batch) = inlets.batches.try_recv() else { break };
            agent.receive(batch, Instant::now());
        }
    }
}
