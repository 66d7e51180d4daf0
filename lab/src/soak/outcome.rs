//! What a soak has found.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{processes::Sample, timeline::Kind, traffic::Fates};

/// What a soak has found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// What decided.
    pub seed: u64,
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
    /// What was wrong.
    pub wrong: Vec<String>,
}

/// What a process held at two settled times of one life, or of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Which.
    pub process: String,
    /// Whether it was one life.
    pub is_one_life: bool,
    /// Between which times.
    pub between: [Duration; 2],
    /// What it had allocated at these, in KiB.
    pub anonymous_kib: [u64; 2],
}

impl Growth {
    /// In percent of what there was first.
    #[must_use]
    pub fn percent(&self) -> f64 {
        let [before, after] = self.anonymous_kib.map(|kib| kib as f64);
        (after - before) / before.max(1.0) * 100.0
    }
}

impl Outcome {
    /// Everything that was wrong, connections that should not have been lost included.
    #[must_use]
    pub fn faults_found(&self) -> Vec<String> {
        let lost = (self.fates.lost > 0).then(|| {
            format!("{} connections were lost without a reason: {:#?}", self.fates.lost, self.fates.told)
        });
        self.wrong.iter().cloned().chain(lost).collect()
    }

    /// How the memory of each process has grown until the last settled time: since the second of its last life, because until then what
    /// has a bound may still have been filling; since the first, when there is no third; since an earlier life, when there is no second.
    #[must_use]
    pub fn growth(&self) -> Vec<Growth> {
        let mut by_process: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.is_settled) {
            by_process.entry(&sample.process).or_default().push(sample);
        }
        let growth = |(process, samples): (&str, Vec<&Sample>)| {
            let last = samples.last()?;
            let own: Vec<_> = samples.iter().filter(|sample| sample.pid == last.pid).collect();
            let first = match own[..] {
                [_, second, _, ..] => second,
                [first, _] => first,
                _ => samples.first().filter(|first| first.at < last.at)?,
            };
            Some(Growth {
                process: process.to_owned(),
                is_one_life: first.pid == last.pid,
                between: [first.at, last.at],
                anonymous_kib: [first.anonymous_kib, last.anonymous_kib],
            })
        };
        by_process.into_iter().filter_map(growth).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_life_or_of_the_kind() {
        let sample = |process: &str, minute: u64, pid, is_settled, anonymous_kib| Sample {
            at: Duration::from_secs(60 * minute),
            process: process.to_owned(),
            pid,
            is_settled,
            resident_kib: 0,
            anonymous_kib,
            files: 0,
            threads: 0,
        };
        let samples = vec![
            sample("control", 3, 1, true, 50),
            sample("control", 12, 2, true, 100),
            sample("control", 20, 2, false, 900),
            sample("control", 21, 2, true, 103),
            sample("control", 30, 2, true, 103),
            sample("agent", 12, 9, true, 100),
            sample("agent", 30, 9, true, 104),
            sample("relay", 3, 5, true, 200),
            sample("relay", 30, 6, true, 100),
        ];
        let growth = Outcome { samples, ..Outcome::default() }.growth();
        let told: Vec<_> =
            growth.iter().map(|one| (one.is_one_life, one.anonymous_kib, one.percent())).collect();
        assert_eq!(told, [(true, [100, 104], 4.0), (true, [103, 103], 0.0), (false, [200, 100], -50.0)]);
    }
}
