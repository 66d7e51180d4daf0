//! What a soak has found.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{processes::Sample, timeline::Kind, traffic::Fates};

/// What a soak has found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What decided.
    pub seed: u64,
    /// Where control kept its objects.
    pub store: String,
    /// The number of the node whose agent was never killed.
    pub survivor: u8,
    /// The time with writers and faults.
    pub took: Duration,
    /// Of that, the time in which control was alive and not stopped.
    pub control_answered: Duration,
    /// Changes by kind.
    pub changes: BTreeMap<String, u64>,
    /// Requests that were answered with success.
    pub requests: u64,
    /// Requests that were asked for again, because there was no answer, by reason.
    pub again: BTreeMap<String, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<Kind, u64>,
    /// What became of connections.
    pub fates: Fates,
    /// Parts.
    pub parts: usize,
    /// Frontends that were asked when everything was calm, of each part.
    pub frontends: Vec<usize>,
    /// Revisions that control has made.
    pub revisions: u64,
    /// What processes held, over time.
    pub samples: Vec<Sample>,
    /// The size of the files of control and of the agents at the end of each part, in KiB.
    pub files_kib: Vec<u64>,
    /// Since when everything has been made once, and what has a bound is full; since then no process was killed.
    pub warm_since: Duration,
    /// Whether it took long enough, and rested often enough, that growth of memory says something.
    pub is_growth_judged: bool,
    /// What was wrong.
    pub wrong: Vec<String>,
}

/// What a process held at two settled times of one life, or of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Which.
    pub process: String,
    /// Whether it was one life, all of it after the warm-up.
    pub is_one_life: bool,
    /// Between which times.
    pub between: [Duration; 2],
    /// What it had in use at these, in KiB, or had taken from the kernel, where it does not say what it uses.
    pub kib: [u64; 2],
    /// Whether it says so.
    pub is_in_use: bool,
    /// What was resident at these, in KiB, pages of its files included.
    pub resident_kib: [u64; 2],
}

/// Memory may grow by less than this, in percent, between two times at which the estate is the same.
pub const GROWTH_MAX_PERCENT: f64 = 5.0;

impl Growth {
    /// In percent of what there was first.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let [before, after] = self.kib.map(|kib| kib as f64);
        (after - before) / before.max(1.0) * 100.0
    }

    /// Whether it is within bounds; `None` where it cannot be told: of a process that was started again, and of one that does not say
    /// what it uses. What an allocator has taken from the kernel says more of the allocator than of the program.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        (self.is_one_life && self.is_in_use).then(|| self.percent() < GROWTH_MAX_PERCENT)
    }
}

impl Outcome {
    /// Everything that was wrong, connections that should not have been lost included.
    #[must_use]
    pub fn faults_found(&self) -> Vec<String> {
        let lost = (self.fates.lost > 0).then(|| {
            format!("{} connections were lost without a reason: {:#?}", self.fates.lost, self.fates.told)
        });
        let again = self.fates.is_asked_again_too_often().then(|| {
            let (again, told) = (self.fates.again, &self.fates.again_told);
            format!("{again} questions by UDP had no answer at first, without a reason: {told:#?}")
        });
        let growth = if self.is_growth_judged { self.growth() } else { Vec::new() };
        let grown = growth.iter().filter(|growth| growth.is_met() == Some(false)).map(|growth| {
            let ([before, after], percent) = (growth.kib, growth.percent());
            format!("the memory of {} grew from {before} to {after} KiB ({percent:+.1} %)", growth.process)
        });
        self.wrong.iter().cloned().chain(lost).chain(again).chain(grown).collect()
    }

    /// How the memory of each process has grown until the last settled time: since the first one after the warm-up, or, when there is
    /// none, since the first of all.
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
            let both = [*first, *last];
            let in_use = first.in_use_kib.zip(last.in_use_kib);
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
            sample("control", 30, 2, true, 109),
            sample("agent", 12, 9, true, 100),
            sample("agent", 30, 9, true, 104),
            sample("relay", 3, 5, true, 200),
            sample("relay", 30, 6, true, 100),
        ];
        let warm_since = Duration::from_secs(60 * 20);
        let mut outcome = Outcome { samples, warm_since, ..Outcome::default() };
        let growth = outcome.growth();
        let told: Vec<_> = growth.iter().map(|one| (one.is_one_life, one.kib, one.is_met())).collect();
        let of_control = (true, [206, 218], Some(false));
        assert_eq!(told, [(false, [100, 104], None), of_control, (false, [200, 100], None)]);
        assert_eq!(outcome.faults_found(), [""; 0], "it was too short to say anything");
        outcome.is_growth_judged = true;
        assert_eq!(outcome.faults_found(), ["the memory of control grew from 206 to 218 KiB (+5.8 %)"]);
    }
}
