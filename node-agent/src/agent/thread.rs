//! The one thread that owns the kernel: kernel calls block, so they are kept away from the runtime.

use std::{io, thread::JoinHandle, time::Instant};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    time::timeout_at,
};

use super::Agent;
use crate::{ask::Errand, entropy, feed::machine::Batch, status::Status, told::Beats};

/// Batches that wait for the loop. When it is full the feed stops reading, and control squashes what follows.
pub const BATCHES_WAITING_MAX: usize = 64;

/// The ends of the loop's thread that others hold.
pub struct Running {
    /// The thread; ends when every sender of batches is gone.
    pub thread: JoinHandle<io::Result<()>>,
    /// Where the agent is.
    pub status: watch::Receiver<Status>,
    /// Comes when the first turn is over.
    pub first_turn: oneshot::Receiver<()>,
    /// How often the loop went round.
    pub beats: Beats,
}

/// Starts the loop on a thread of its own.
///
/// # Errors
/// When no thread can be made.
pub fn spawn(
    mut agent: Agent,
    batches: mpsc::Receiver<Batch>,
    errands: mpsc::Receiver<Errand>,
) -> io::Result<Running> {
    let (publish, status) = watch::channel(agent.status());
    let (done, first_turn) = oneshot::channel();
    let runtime = Handle::current();
    let beats = Beats::default();
    let ends = Ends { publish, first_turn: done, beats: beats.clone() };
    let thread = std::thread::Builder::new()
        .name("loop".to_owned())
        .spawn(move || run(agent, Inlets { batches, errands }, ends, &runtime))?;
    Ok(Running { thread, status, first_turn, beats })
}

/// What the loop is brought.
struct Inlets {
    batches: mpsc::Receiver<Batch>,
    errands: mpsc::Receiver<Errand>,
}

/// What came first.
enum Brought {
    /// A change; `None` when there will be none any longer.
    Batch(Option<Batch>),
    /// A question.
    Errand(Errand),
}

impl Inlets {
    /// Changes go before questions.
    async fn next(&mut self) -> Brought {
        tokio::select! {
            biased;
            batch = self.batches.recv() => Brought::Batch(batch),
            Some(errand) = self.errands.recv() => Brought::Errand(errand),
        }
    }
}

/// What the loop tells others.
struct Ends {
    publish: watch::Sender<Status>,
    first_turn: oneshot::Sender<()>,
    beats: Beats,
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
            // Whoever waited may have gone; the loop goes on either way.
            let _gone = first_turn.send(());
        }
        // Answered behind the turn, so that what was received before the question is in the kernel.
        if let Some(errand) = errand.take() {
            errand.carry_out(|question| agent.answer(question));
        }
        let deadline = agent.next_turn(Instant::now());
        // The deadline is made inside the runtime, whose clock it needs.
        let received = runtime.block_on(async { timeout_at(deadline.into(), inlets.next()).await });
        match received {
            Ok(Brought::Batch(Some(batch))) => agent.receive(batch, Instant::now()),
            Ok(Brought::Batch(None)) => return agent.stop(),
            Ok(Brought::Errand(brought)) => errand = Some(brought),
            Err(_elapsed) => continue,
        }
        // What has piled up meanwhile takes effect in one pass.
        for _ in 0..BATCHES_WAITING_MAX {
            let Ok(batch) = inlets.batches.try_recv() else { break };
            agent.receive(batch, Instant::now());
        }
    }
}
