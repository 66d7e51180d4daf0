//! Count of what the differential test has checked, which `make test` prints.

use std::{collections::BTreeMap, fs, path::Path};

use model::{kinds::service::Protocol, program::oracle::Fate};

use crate::{
    second_oracle::draw::{DrawnState, Question},
    testbed::judge,
};

/// File in the directory for test output that contains the mix of the last run.
const FILE: &str = "differential-mix.txt";
/// Begin of the line with the counts of one lane.
const PREFIX: &str = "differential mix ";

/// Numbers of connections and states by property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mix(BTreeMap<String, u64>);

impl Mix {
    pub fn count(&mut self, property: &str) {
        *self.0.entry(property.to_owned()).or_default() += 1;
    }

    pub fn of(&self, property: &str) -> u64 {
        self.0.get(property).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Self) {
        for (property, count) in &other.0 {
            *self.0.entry(property.clone()).or_default() += count;
        }
    }

    /// Counts a checked connection.
    pub fn count_connection(&mut self, drawn: &DrawnState, question: &Question, fate: &Fate) {
        self.count("connections");
        let Some(hit) = drawn.estate.hit(&question.connection()) else { return };
        self.count("met a frontend");
        match fate {
            Fate::Forward { targets, .. } => {
                self.count("forwarded");
                let is_own = |(address, _): &(std::net::IpAddr, _)| judge::is_node_address(*address);
                if targets.keys().any(is_own) {
                    self.count("to the node's own network");
                }
            }
            Fate::Drop => self.count("dropped"),
            Fate::Reject => self.count("refused"),
            Fate::Untouched | Fate::Relay(_) => {}
        }
        if question.protocol == Protocol::Sctp {
            self.count("SCTP");
        }
        if hit.service.spec.affinity_seconds().is_some() {
            self.count("with affinity");
        }
        if hit.service.spec.ip_families.len() > 1 {
            self.count("dual-stack");
        }
        if hit.service.spec.scheduler.is_some() {
            self.count("with a scheduler");
        }
        let mut endpoints = hit.service.sets.iter().flat_map(|set| &set.endpoints);
        if endpoints.any(|endpoint| endpoint.drain || endpoint.conditions.terminating) {
            self.count("with draining endpoints");
        }
    }

    /// Returns the line with which a lane reports its counts, also from the guest VM.
    pub fn line(&self) -> String {
        format!("{PREFIX}{}", serde_json::to_string(&self.0).unwrap())
    }

    /// Adds the counts of all lines in the output of a lane.
    pub fn parse(output: &str) -> Self {
        let mut mix = Self::default();
        for line in output.lines().filter_map(|line| line.strip_prefix(PREFIX)) {
            mix.add(&Self(serde_json::from_str(line).expect("the lane reports numbers")));
        }
        mix
    }

    /// Writes the mix as one line for `lab/test.sh`.
    pub fn publish(&self, lanes: usize, seeds: &str) {
        let percent = self.of("met a frontend") * 100 / self.of("connections").max(1);
        let rest = self.0.iter().filter(|(property, _)| *property != "connections");
        let rest: Vec<_> = rest.map(|(property, count)| format!("{count} {property}")).collect();
        let connections = self.of("connections");
        let line = format!(
            "differential test: {connections} connections in {lanes} lanes, {percent} % to a frontend: {}; seeds {seeds}\n",
            rest.join(", ")
        );
        print!("{line}");
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(FILE), line).unwrap();
    }
}

#[test]
fn the_mix_of_a_lane_survives_its_output() {
    let mut mix = Mix::default();
    mix.count("connections");
    mix.count("connections");
    mix.count("forwarded");
    let output = format!("test starts\n{}\nother\n{}\n", mix.line(), mix.line());
    let sum = Mix::parse(&output);
    assert_eq!((sum.of("connections"), sum.of("forwarded"), sum.of("dropped")), (4, 2, 0));
}
