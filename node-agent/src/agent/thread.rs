//! The one thread that owns the kernel: kernel calls block, so they are kept away from the runtime.

use std::{io, thread::JoinHandle, time::Instant};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    time::timeout_at,
};

use super::Agent;
use crate::{entropy, feed::machine::Batch, status::Status};

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
}

/// Starts the loop on a thread of its own.
///
/// # Errors
/// When no thread can be made.
pub fn spawn(mut agent: Agent, batches: mpsc::Receiver<Batch>) -> io::Result<Running> {
    let (publish, status) = watch::channel(agent.status());
    let (done, first_turn) = oneshot::channel();
    let runtime = Handle::current();
    let thread = std::thread::Builder::new()
        .name("loop".to_owned())
        .spawn(move || run(agent, batches, &publish, done, &runtime))?;
    Ok(Running { thread, status, first_turn })
}

fn run(
    mut agent: Agent,
    mut batches: mpsc::Receiver<Batch>,
    publish: &watch::Sender<Status>,
    first_turn: oneshot::Sender<()>,
    runtime: &Handle,
) -> io::Result<()> {
    let mut first_turn = Some(first_turn);
    loop {
        agent.turn(Instant::now(), entropy());
        let status = agent.status();
        publish.send_if_modified(|shown| std::mem::replace(shown, status.clone()) != status);
        if let Some(first_turn) = first_turn.take() {
            // Whoever waited may have gone; the loop goes on either way.
            let _gone = first_turn.send(());
        }
        let deadline = agent.next_turn(Instant::now());
        // The deadline is made inside the runtime, whose clock it needs.
        let received = runtime.block_on(async { timeout_at(deadline.into(), batches.recv()).await });
        match received {
            Ok(Some(batch)) => {
                agent.receive(batch, Instant::now());
                // What has piled up meanwhile takes effect in one pass.
                for _ in 0..BATCHES_WAITING_MAX {
                    let Ok(batch) = batches.try_recv() else { break };
                    agent.receive(batch, Instant::now());
                }
            }
            Ok(None) => return agent.stop(),
            Err(_elapsed) => {}
        }
    }
}
