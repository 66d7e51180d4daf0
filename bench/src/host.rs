//! The machine that measures: what it is, and how busy it was meanwhile.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::sys::utsname::uname;
use serde::{Deserialize, Serialize};

/// What has to be known of a machine to read figures measured on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Logical processors.
    pub processors: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Host {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn ask() -> Result<Self> {
        let kernel =
            uname().context("the kernel does not say its release")?.release().to_string_lossy().into_owned();
        let processor = value_of(&read("/proc/cpuinfo")?, "model name").unwrap_or("unknown").to_owned();
        let memory = value_of(&read("/proc/meminfo")?, "MemTotal").and_then(|text| first_number(text).ok());
        let processors = std::thread::available_parallelism().context("the number of processors")?.get();
        Ok(Self { kernel, processor, processors, memory_mib: memory.unwrap_or(0) / 1024 })
    }
}

/// Whether this kernel has IPVS, or has it after it was asked for.
#[must_use]
pub fn has_ipvs() -> bool {
    // A kernel without modules, or without this one, says so; the file tells either way.
    let _not_there = lab::host::shell::run("modprobe", &["-q", "ip_vs"]);
    Path::new("/proc/net/ip_vs").exists()
}

/// How busy the machine was during a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// The share of the processors' time that others used just before the run, and in its pauses if it had any, 0–1; none when nobody
    /// looked, as before there was this figure.
    pub others: Option<f64>,
    /// The load average of the last minute before the run.
    pub average_before: f64,
    /// The same after it.
    pub average_after: f64,
    /// The share of the processors' time that was not idle, 0–1, the benchmark included.
    pub busy: f64,
    /// The share of the time in which somebody waited for a processor, 0–1 (pressure stall information, `some`); none when
    /// the kernel does not tell.
    pub pressure: Option<f64>,
}

/// Clock ticks in a second of `/proc`, on every machine on which this builds.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long it is watched before a run what others do.
const OTHERS_WATCHED: Duration = Duration::from_secs(2);
/// The same in a pause: with a few dozen of them, as long as a run of minutes deserves.
const PAUSE_WATCHED: Duration = Duration::from_millis(250);
/// Others may use so much of the processors' time while something is measured.
const OTHERS_MAX: f64 = 0.15;

impl Load {
    /// Why figures of this run say little; none when the machine had been quiet.
    #[must_use]
    pub fn too_busy(&self) -> Option<String> {
        let others = self.others.filter(|others| *others > OTHERS_MAX)?;
        let (percent, allowed) = (others * 100.0, OTHERS_MAX * 100.0);
        Some(format!(
            "others used {percent:.0} % of the processors' time while the benchmark did nothing, more than {allowed:.0} %"
        ))
    }
}

/// The counters from which a [`Load`] is the difference.
#[derive(Debug)]
pub struct LoadMeter {
    others: Others,
    begun: Instant,
    average: f64,
    times: ProcessorTimes,
    waited_us: Option<u64>,
}

/// Seconds of processors, all and those in use, of the times in which the benchmark did nothing.
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
    /// Watches for two seconds what others do, and begins to measure.
    ///
    /// # Errors
    /// `/proc` cannot be read.
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

    /// Watches for a moment what others do, in a pause of the benchmark: one that uses all processors cannot be told from
    /// others otherwise.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn pause(&mut self) -> Result<()> {
        self.others.watch(PAUSE_WATCHED)
    }

    /// The load since the start.
    ///
    /// # Errors
    /// `/proc` cannot be read.
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

/// Clock ticks of all processors since the machine's start.
#[derive(Debug)]
pub(crate) struct ProcessorTimes {
    all: u64,
    idle: u64,
}

impl ProcessorTimes {
    /// What the kernel says.
    pub(crate) fn read() -> Result<Self> {
        Self::parse(&read("/proc/stat")?)
    }

    /// Seconds of all processors together in which they were not idle.
    pub(crate) fn busy_seconds_since(&self, before: &Self) -> f64 {
        self.busy_since(before) * self.seconds_since(before)
    }

    /// Seconds of all processors together.
    fn seconds_since(&self, before: &Self) -> f64 {
        self.all.saturating_sub(before.all) as f64 / TICKS_PER_SECOND
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Result<Self> {
        let line = stat.lines().next().context("/proc/stat is empty")?;
        let ticks = line.split_whitespace().skip(1).take(8).map(str::parse::<u64>);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().context("/proc/stat begins with no numbers")?;
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
    first.parse().context("/proc/loadavg begins with no number")
}

/// Microseconds in which somebody waited for a processor.
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
    word.parse().with_context(|| format!("`{word}` is no number"))
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
