//! What a process has used so far: processor time, memory, context switches.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lab::process::Process;
use serde::Serialize;

/// Memory is at rest when it has not fallen for so long; an allocator gives back what was freed within about a second.
const REST: Duration = Duration::from_secs(2);
/// How long that is waited for: what still falls then is taken as it is.
const REST_PATIENCE: Duration = Duration::from_secs(15);
/// Time between two looks.
const REST_POLL: Duration = Duration::from_millis(100);

/// Counters and gauges of a process, of all its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Time on a processor, in nanoseconds, of the threads that live.
    pub processor_ns: u64,
    /// Resident memory, in KiB.
    pub resident_kib: u64,
    /// The most that was resident ever, in KiB.
    pub resident_peak_kib: u64,
}

impl Usage {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The process does not run.
    pub fn of(process: &Process) -> Result<Self> {
        let pid = process.pid().context("the process does not run")?;
        let status = read(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .with_context(|| format!("no {name}"))?;
            let word = line.split_whitespace().next().with_context(|| format!("{name} is empty"))?;
            word.parse::<u64>().with_context(|| format!("{name} is no number: {word}"))
        };
        Ok(Self {
            processor_ns: processor_ns(pid)?,
            resident_kib: field("VmRSS:")?,
            resident_peak_kib: field("VmHWM:")?,
        })
    }

    /// Waits until the resident memory of a process falls no more; answers it, in KiB.
    ///
    /// # Errors
    /// The process does not run.
    pub fn resident_kib_at_rest(process: &Process) -> Result<u64> {
        let begun = Instant::now();
        let (mut least, mut since) = (Self::of(process)?.resident_kib, begun);
        while since.elapsed() < REST && begun.elapsed() < REST_PATIENCE {
            thread::sleep(REST_POLL);
            let resident = Self::of(process)?.resident_kib;
            if resident < least {
                (least, since) = (resident, Instant::now());
            }
        }
        Ok(Self::of(process)?.resident_kib)
    }
}

/// The sum of `schedstat` over the threads: nanoseconds, where `stat` has hundredths of a second.
fn processor_ns(pid: u32) -> Result<u64> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0;
    for task in fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))? {
        let path = task.with_context(|| format!("cannot read {directory}"))?.path().join("schedstat");
        // A thread may have ended meanwhile.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        sum += parse_schedstat(&text)?;
    }
    Ok(sum)
}

/// The first of: time on a processor, time waiting for one, time slices.
fn parse_schedstat(text: &str) -> Result<u64> {
    let word = text.split_whitespace().next().context("an empty schedstat")?;
    word.parse().with_context(|| format!("no number in schedstat: {word}"))
}

fn read(path: String) -> Result<String> {
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_a_processor_is_the_first_number() {
        assert_eq!(parse_schedstat("123456789 42 7\n").unwrap(), 123_456_789);
        assert!(parse_schedstat("").is_err());
        assert!(processor_ns(std::process::id()).unwrap() > 0);
    }
}
