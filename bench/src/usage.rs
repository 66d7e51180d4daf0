//! Resource usage of a process: CPU time and memory.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lab::processes::process::Process;
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use serde::Serialize;

/// Time without a decrease after which memory counts as settled; jemalloc returns freed memory within about a
/// second.
const REST: Duration = Duration::from_secs(2);
/// Timeout for memory to settle; after it, the current value is used.
const REST_PATIENCE: Duration = Duration::from_secs(15);
/// Interval at which resident memory is read while it settles.
const REST_POLL: Duration = Duration::from_millis(100);

/// CPU time and memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// CPU time in nanoseconds of all threads, including those that have ended.
    pub processor_ns: u64,
    /// Resident memory (`VmRSS`) in KiB.
    pub resident_kib: u64,
    /// Peak resident memory (`VmHWM`) in KiB.
    pub resident_peak_kib: u64,
}

impl Usage {
    /// Reads the resource usage of a process from the kernel.
    ///
    /// # Errors
    /// Returns an error if the process does not run.
    pub fn of(process: &Process) -> Result<Self> {
        let pid = process.pid().context("the process is not running")?;
        let status = read(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .with_context(|| format!("no {name}"))?;
            let word = line.split_whitespace().next().with_context(|| format!("{name} is empty"))?;
            word.parse::<u64>().with_context(|| format!("{name} is not a number: {word}"))
        };
        Ok(Self {
            processor_ns: processor_ns(pid)?,
            resident_kib: field("VmRSS:")?,
            resident_peak_kib: field("VmHWM:")?,
        })
    }

    /// Waits until the resident memory of a process no longer falls, and returns it in KiB.
    ///
    /// # Errors
    /// Returns an error if the process does not run.
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

/// CPU time and memory of a process with its child processes, such as the workers of nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeUsage {
    /// CPU time in nanoseconds of all threads, including those that have ended.
    pub(crate) processor_ns: u64,
    /// Resident memory in KiB. Pages that several processes share count in proportion.
    pub(crate) memory_kib: u64,
}

impl TreeUsage {
    /// Reads the resource usage of a process and its children from the kernel.
    ///
    /// # Errors
    /// Returns an error if the process does not run.
    pub(crate) fn of(process: &Process) -> Result<Self> {
        let pid = process.pid().context("the process is not running")?;
        let children = read(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_whitespace().map(|word| word.parse().context("a process id"));
        let children: Vec<u32> = children.collect::<Result<_>>()?;
        let mut usage = Self { processor_ns: 0, memory_kib: 0 };
        for pid in children.into_iter().chain([pid]) {
            usage.processor_ns += processor_ns(pid)?;
            let rollup = read(format!("/proc/{pid}/smaps_rollup"))?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
            let word = line.and_then(|line| line.split_whitespace().next()).context("no Pss")?;
            usage.memory_kib +=
                word.parse::<u64>().with_context(|| format!("Pss is not a number: {word}"))?;
        }
        Ok(usage)
    }
}

/// Reads the CPU-time clock of the process in nanoseconds, including threads that have ended;
/// `/proc/PID/stat` only has a resolution of 10 ms.
fn processor_ns(pid: u32) -> Result<u64> {
    let pid = Pid::from_raw(i32::try_from(pid).context("a process id")?);
    let clock = clock_getcpuclockid(pid).context("the process has no clock")?;
    let time = Duration::from(clock_gettime(clock).context("cannot read the CPU clock of the process")?);
    u64::try_from(time.as_nanos()).context("the CPU time exceeds the range of u64 nanoseconds")
}

fn read(path: String) -> Result<String> {
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ended_thread_has_used_stays_in_the_time_of_its_process() {
        let own = std::process::id();
        let before = processor_ns(own).unwrap();
        let work = || (0..5_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        let _sum = thread::spawn(work).join().unwrap();
        let between = processor_ns(own).unwrap();
        assert!(before < between, "{before} {between}");
        assert!(between <= processor_ns(own).unwrap());
    }
}
