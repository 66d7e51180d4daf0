//! Outage measurement: a client connects to an address repeatedly during an event, and the times without a
//! successful connection are recorded.

use std::{
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::host::{netns::Namespace, wait};

/// Timeout of one connection attempt, which limits the resolution of the measured outage.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(50);
/// Pause between two connection attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of consecutive successful attempts required before and after the event.
const STEADY: usize = 20;

/// Results of a client during an event: numbers of successful and failed connections, and the longest time
/// without a success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outage {
    /// Longest time between the starts of two consecutive successful attempts.
    pub longest_gap: Duration,
    /// Number of successful attempts.
    pub answered: usize,
    /// Number of failed attempts.
    pub failed: usize,
}

/// Connects repeatedly from the namespace `from` to the address `to` while `event` runs. The event starts
/// after connections have succeeded for a while, and the measurement ends after they have succeeded for a
/// while again.
///
/// # Errors
/// Returns an error if the address does not respond before or after, or if `event` fails.
pub fn during(from: &Namespace, to: SocketAddr, event: impl FnOnce() -> Result<()>) -> Result<Outage> {
    let (ended, in_a_row) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let client = scope.spawn(|| from.inside(|| connect_until(to, &ended, &in_a_row)));
        let steady = |when: &str| {
            in_a_row.store(0, Ordering::Relaxed);
            wait::until(&format!("{to} to answer steadily {when}"), || {
                let seen = in_a_row.load(Ordering::Relaxed);
                ensure!(seen >= STEADY, "{seen} consecutive successful attempts");
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
