//! Outcome of a soak test: counters, memory samples, and problems found.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{processes::Sample, timeline::EpisodeKind, traffic::Fates};

/// Counters, memory samples and problems of a soak test.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SoakOutcome {
    /// Seed of all random choices of the test.
    pub seed: u64,
    /// Store of the control server.
    pub store: String,
    /// Index of the node whose agent was never killed.
    pub survivor: u8,
    /// Total time with writers and faults.
    pub took: Duration,
    /// Part of the test's duration in which the control server was running and not suspended.
    pub control_answered: Duration,
    /// Number of changes written, by kind.
    pub changes: BTreeMap<String, u64>,
    /// Number of successful requests.
    pub requests: u64,
    /// Number of requests sent again because there was no response, by reason.
    pub again: BTreeMap<String, u64>,
    /// Number of faults by kind.
    pub faults: BTreeMap<EpisodeKind, u64>,
    /// Results of client connections.
    pub fates: Fates,
    /// Number of parts, including the warm-up.
    pub parts: usize,
    /// Number of frontends checked in each part, after writers and faults have stopped.
    pub frontends: Vec<usize>,
    /// Number of revisions that the control server committed.
    pub revisions: u64,
    /// Resource samples of the processes over time.
    pub samples: Vec<Sample>,
    /// Size of the files of the control server and the agents at the end of each part, in KiB.
    pub files_kib: Vec<u64>,
    /// End of the warm-up, as time since the start of the test: from then on, lazily allocated memory is
    /// allocated, storage of limited size is full, and no process is killed.
    pub warm_since: Duration,
    /// True if the run was long enough, and its memory had enough time to settle, for a verdict on memory
    /// growth.
    pub is_growth_judged: bool,
    /// Problems found; empty if the test passed.
    pub wrong: Vec<String>,
}

/// Memory of one process in two samples that were taken without load.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Name of the process.
    pub process: String,
    /// True if the process was not restarted between the two samples and both samples are after the warm-up.
    pub is_one_life: bool,
    /// Times of the two samples since the start of the test.
    pub between: [Duration; 2],
    /// Memory in KiB at the two samples: heap in use, or memory allocated from the kernel if the process does
    /// not report its heap.
    pub kib: [u64; 2],
    /// True if [`Self::kib`] is heap in use; false if it is memory allocated from the kernel.
    pub is_in_use: bool,
    /// Resident memory in KiB, including file pages.
    pub resident_kib: [u64; 2],
}

/// Maximum memory growth in percent between two times with the same objects.
pub const GROWTH_MAX_PERCENT: f64 = 5.0;

impl Growth {
    /// Returns the memory growth between the two samples, in percent of the earlier one.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let [before, after] = self.kib.map(|kib| kib as f64);
        (after - before) / before.max(1.0) * 100.0
    }

    /// Returns true if the growth is less than [`GROWTH_MAX_PERCENT`]. Returns `None` if the process was
    /// restarted or does not report its heap, because memory allocated from the kernel depends more on the
    /// allocator than on the program.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        (self.is_one_life && self.is_in_use).then(|| self.percent() < GROWTH_MAX_PERCENT)
    }
}

impl SoakOutcome {
    /// Returns a description of each problem: wrong results, lost connections that no fault explains, and
    /// memory growth.
    #[must_use]
    pub fn faults_found(&self) -> Vec<String> {
        let lost = (self.fates.lost > 0).then(|| {
            format!("{} connections were lost without an excuse: {:#?}", self.fates.lost, self.fates.told)
        });
        let again = self.fates.is_asked_again_too_often().then(|| {
            let (again, told) = (self.fates.again, &self.fates.again_told);
            format!("{again} UDP requests had no reply on the first attempt, without an excuse: {told:#?}")
        });
        let growth = if self.is_growth_judged { self.growth() } else { Vec::new() };
        let grown = growth.iter().filter(|growth| growth.is_met() == Some(false)).map(|growth| {
            let ([before, after], percent) = (growth.kib, growth.percent());
            format!("the memory of {} grew from {before} to {after} KiB ({percent:+.1} %)", growth.process)
        });
        self.wrong.iter().cloned().chain(lost).chain(again).chain(grown).collect()
    }

    /// Returns the memory growth of each process between two samples without load: the first one after the
    /// warm-up (or else the first of all), and of the later ones the one with the most memory.
    #[must_use]
    pub fn growth(&self) -> Vec<Growth> {
        let mut by_process: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.is_settled) {
            by_process.entry(&sample.process).or_default().push(sample);
        }
        let growth = |(process, samples): (&str, Vec<&Sample>)| {
            let last = samples.last()?;
            let is_warm = |sample: &&&Sample| sample.pid == last.pid && sample.at >= self.warm_since;
            let first = samples.iter().find(is_warm).filter(|first| first.at < last.at);
            let is_one_life = first.is_some();
            let first = first.or_else(|| samples.first().filter(|first| first.at < last.at))?;
            let is_later = |sample: &&&Sample| sample.pid == last.pid && sample.at > first.at;
            let memory = |sample: &&&Sample| sample.in_use_kib.unwrap_or(sample.anonymous_kib);
            let most = samples.iter().filter(is_later).max_by_key(memory)?;
            let both = [*first, *most];
            let in_use = first.in_use_kib.zip(most.in_use_kib);
            Some(Growth {
                process: process.to_owned(),
                is_one_life,
                between: both.map(|sample| sample.at),
                kib: in_use.map_or(both.map(|sample| sample.anonymous_kib), |(first, last)| [first, last]),
                is_in_use: in_use.is_some(),
                resident_kib: both.map(|sample| sample.resident_kib),
            })
        };
        by_process.into_iter().filter_map(growth).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_judged_after_the_warm_up_and_within_one_life() {
        let sample = |process: &str, minute: u64, pid, is_settled, anonymous_kib| Sample {
            at: Duration::from_secs(60 * minute),
            process: process.to_owned(),
            pid,
            is_settled,
            resident_kib: 0,
            anonymous_kib,
            in_use_kib: (process == "control").then_some(anonymous_kib * 2),
            files: 0,
            threads: 0,
        };
        let samples = vec![
            sample("control", 3, 1, true, 50),
            sample("control", 12, 2, true, 100),
            sample("control", 20, 2, false, 900),
            sample("control", 21, 2, true, 103),
            sample("control", 25, 2, true, 109),
            sample("control", 30, 2, true, 104),
            sample("agent", 12, 9, true, 100),
            sample("agent", 30, 9, true, 104),
            sample("relay", 3, 5, true, 200),
            sample("relay", 30, 6, true, 100),
        ];
        let warm_since = Duration::from_secs(60 * 20);
        let mut outcome = SoakOutcome { samples, warm_since, ..SoakOutcome::default() };
        let growth = outcome.growth();
        let told: Vec<_> = growth.iter().map(|one| (one.is_one_life, one.kib, one.is_met())).collect();
        let of_control = (true, [206, 218], Some(false));
        assert_eq!(told, [(false, [100, 104], None), of_control, (false, [200, 100], None)]);
        assert_eq!(outcome.faults_found(), [""; 0], "it was too short to say anything");
        outcome.is_growth_judged = true;
        assert_eq!(outcome.faults_found(), ["the memory of control grew from 206 to 218 KiB (+5.8 %)"]);
    }
}
