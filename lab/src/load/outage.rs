//! How long an address did not answer: a client that connects again and again while something happens.

use std::{
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::host::{netns::Namespace, wait};

/// How long one attempt may take; what a gap is measured in.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(50);
/// Pause after an attempt.
const PAUSE: Duration = Duration::from_millis(10);
/// Answers in a row that are seen before and after what happens.
const STEADY: usize = 20;

/// What a client saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outage {
    /// The longest time from the start of an attempt that was answered to the next such.
    pub longest_gap: Duration,
    /// Attempts that were answered.
    pub answered: usize,
    /// Attempts that were not.
    pub failed: usize,
}

/// Connects from a namespace to an address all the time while `event` runs, begins it when the address answers, and ends when
/// it answers steadily again.
///
/// # Errors
/// The address does not answer before or after, or `event` fails.
pub fn during(from: &Namespace, to: SocketAddr, event: impl FnOnce() -> Result<()>) -> Result<Outage> {
    let (ended, in_a_row) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let client = scope.spawn(|| from.inside(|| connect_until(to, &ended, &in_a_row)));
        let steady = |when: &str| {
            in_a_row.store(0, Ordering::Relaxed);
            wait::until(&format!("{to} to answer steadily {when}"), || {
                let seen = in_a_row.load(Ordering::Relaxed);
                ensure!(seen >= STEADY, "{seen} answers in a row");
                Ok(())
            })
        };
        let outcome = steady("before").and_then(|()| event()).and_then(|()| steady("after"));
        ended.store(true, Ordering::Relaxed);
        let outage = client.join().unwrap_or_default();
        outcome.map(|()| outage)
    })
}

fn connect_until(to: SocketAddr, ended: &AtomicBool, in_a_row: &AtomicUsize) -> Outage {
    let mut outage = Outage::default();
    let mut last_answered = None::<Instant>;
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        if TcpStream::connect_timeout(&to, ATTEMPT_TIMEOUT).is_ok() {
            let gap = last_answered.map_or(Duration::ZERO, |last| begun - last);
            outage.longest_gap = outage.longest_gap.max(gap);
            last_answered = Some(begun);
            outage.answered += 1;
            in_a_row.fetch_add(1, Ordering::Relaxed);
        } else {
            outage.failed += 1;
            in_a_row.store(0, Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
    outage
}
