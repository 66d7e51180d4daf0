//! Description of the measuring machine and its load during a benchmark.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::sys::utsname::uname;
use serde::{Deserialize, Serialize};

/// Machine properties needed to interpret benchmark results.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Kernel release, as printed by `uname -r`.
    pub kernel: String,
    /// Model name of the CPU.
    pub processor: String,
    /// Number of logical CPUs that are online.
    pub processors: usize,
    /// Physical memory in MiB.
    pub memory_mib: u64,
}

impl Host {
    /// Reads the machine properties from the kernel.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub fn ask() -> Result<Self> {
        let kernel =
            uname().context("cannot read the kernel release")?.release().to_string_lossy().into_owned();
        let processor = value_of(&read("/proc/cpuinfo")?, "model name").unwrap_or("unknown").to_owned();
        let memory = value_of(&read("/proc/meminfo")?, "MemTotal").and_then(|text| first_number(text).ok());
        let processors =
            std::thread::available_parallelism().context("cannot read the number of CPUs")?.get();
        Ok(Self { kernel, processor, processors, memory_mib: memory.unwrap_or(0) / 1024 })
    }
}

/// Returns true if this kernel supports IPVS, after an attempt to load the module.
#[must_use]
pub fn has_ipvs() -> bool {
    // `modprobe` fails on a kernel without modules or without this one; the file decides in either case.
    let _not_there = lab::host::shell::run("modprobe", &["-q", "ip_vs"]);
    Path::new("/proc/net/ip_vs").exists()
}

/// Load of the machine during a benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// CPU share used by other processes just before the run and in its pauses, 0–1; `None` in results from before
    /// this field existed.
    pub others: Option<f64>,
    /// Load average of the last minute before the run.
    pub average_before: f64,
    /// Load average of the last minute at the end of the run.
    pub average_after: f64,
    /// Share of CPU time in which the machine was not idle, 0–1, including the benchmark itself.
    pub busy: f64,
    /// Share of time in which a task waited for a CPU, 0–1 (pressure stall information, `some`); `None` if the
    /// kernel does not report it.
    pub pressure: Option<f64>,
}

/// Clock ticks per second in `/proc`, on every supported platform.
const TICKS_PER_SECOND: f64 = 100.0;
/// Duration for which the load of other processes is observed before a run.
const OTHERS_WATCHED: Duration = Duration::from_secs(2);
/// Duration for which the load of other processes is observed in one pause. The few dozen pauses of a run of
/// minutes together give a sufficient sample.
const PAUSE_WATCHED: Duration = Duration::from_millis(250);
/// Maximum CPU share of other processes at which results are considered reliable.
const OTHERS_MAX: f64 = 0.15;

impl Load {
    /// Returns the reason why results of this run are unreliable, or `None` if the machine was idle enough.
    #[must_use]
    pub fn too_busy(&self) -> Option<String> {
        let others = self.others.filter(|others| *others > OTHERS_MAX)?;
        let (percent, allowed) = (others * 100.0, OTHERS_MAX * 100.0);
        Some(format!(
            "other processes used {percent:.0} % of the CPU time while the benchmark was idle, more than \
             {allowed:.0} %"
        ))
    }
}

/// Counters read at the start of a [`Load`] measurement.
#[derive(Debug)]
pub struct LoadMeter {
    others: Others,
    begun: Instant,
    average: f64,
    times: ProcessorTimes,
    waited_us: Option<u64>,
}

/// CPU seconds of all CPUs in the periods in which the benchmark was idle: the total (`all`), and the part
/// used by other processes (`busy`).
#[derive(Debug, Default)]
struct Others {
    all: f64,
    busy: f64,
}

impl Others {
    fn watch(&mut self, span: Duration) -> Result<()> {
        let before = ProcessorTimes::read()?;
        thread::sleep(span);
        let after = ProcessorTimes::read()?;
        self.all += after.seconds_since(&before);
        self.busy += after.busy_seconds_since(&before);
        Ok(())
    }
}

impl LoadMeter {
    /// Observes the load of other processes for two seconds, and starts the measurement.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub fn start() -> Result<Self> {
        let mut others = Others::default();
        others.watch(OTHERS_WATCHED)?;
        Ok(Self {
            others,
            begun: Instant::now(),
            average: load_average()?,
            times: ProcessorTimes::read()?,
            waited_us: waited_us(),
        })
    }

    /// Observes the load of other processes in a short pause of the benchmark. While the benchmark runs, its
    /// own load cannot be separated from that of others.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub fn pause(&mut self) -> Result<()> {
        self.others.watch(PAUSE_WATCHED)
    }

    /// Returns the load since the start.
    ///
    /// # Errors
    /// Returns an error if `/proc` cannot be read.
    pub fn load(&self) -> Result<Load> {
        let times = ProcessorTimes::read()?;
        let elapsed_us = self.begun.elapsed().as_secs_f64() * 1e6;
        let waited = self.waited_us.zip(waited_us()).map(|(before, after)| after.saturating_sub(before));
        Ok(Load {
            others: Some(self.others.busy / self.others.all),
            average_before: self.average,
            average_after: load_average()?,
            busy: times.busy_since(&self.times),
            pressure: waited.map(|waited_us| waited_us as f64 / elapsed_us),
        })
    }
}

/// CPU times summed over all CPUs since boot, in clock ticks.
#[derive(Debug)]
pub(crate) struct ProcessorTimes {
    all: u64,
    idle: u64,
}

impl ProcessorTimes {
    /// Reads the current values from `/proc`.
    pub(crate) fn read() -> Result<Self> {
        Self::parse(&read("/proc/stat")?)
    }

    /// Returns the non-idle seconds of all CPUs since `before`.
    pub(crate) fn busy_seconds_since(&self, before: &Self) -> f64 {
        self.busy_since(before) * self.seconds_since(before)
    }

    /// Returns the total seconds of all CPUs since `before`.
    fn seconds_since(&self, before: &Self) -> f64 {
        self.all.saturating_sub(before.all) as f64 / TICKS_PER_SECOND
    }

    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Result<Self> {
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks = line.split_whitespace().skip(1).take(8).map(str::parse::<u64>);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().context(
            "/proc/stat does not begin with \
                                                                       numbers",
        )?;
        let idle = ticks.iter().skip(3).take(2).sum();
        Ok(Self { all: ticks.iter().sum(), idle })
    }

    fn busy_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        let idle = self.idle.saturating_sub(before.idle).min(all);
        (all - idle) as f64 / all as f64
    }
}

fn load_average() -> Result<f64> {
    let text = read("/proc/loadavg")?;
    let first = text.split_whitespace().next().context("/proc/loadavg is empty")?;
    first.parse().context("/proc/loadavg does not begin with a number")
}

/// Returns the microseconds since boot in which at least one task waited for a CPU; `None` if the kernel does not
/// report them.
fn waited_us() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok()
}

fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn first_number(text: &str) -> Result<u64> {
    let word = text.split_whitespace().next().context("no word")?;
    word.parse().with_context(|| format!("`{word}` is not a number"))
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_disks_and_guests_are_not_work_and_stolen_time_is() {
        let before = ProcessorTimes::parse("cpu 10 0 10 100 0 0 0 0 5 5\ncpu0 …").unwrap();
        let after = ProcessorTimes::parse("cpu 20 0 10 150 30 0 0 10 9 9\ncpu0 …").unwrap();
        assert!((after.busy_since(&before) - 0.2).abs() < 1e-9, "20 of 100 ticks");
    }
}
