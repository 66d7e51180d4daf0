//! Definition of a conformance scenario, and its execution on a test bed.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
};

use model::primitives::net::IpFamily;

use crate::testbed::{Bench, Lane, node::Unsupported};

/// Conformance scenario: a claim about the behavior of a node, with the code that checks it.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Claim as text, which is also the name of the scenario in the published table of results.
    pub name: &'static str,
    /// Ids of the features in `docs/reference/features.md` that the scenario covers, such as `F021`,
    /// separated by spaces.
    pub rows: &'static str,
    /// Keys (in `upstream.rs`) of the equivalent Kubernetes tests, separated by spaces.
    pub upstream: &'static str,
    /// Lanes (proxy mode variants) whose backend must reject the Service, with the reason.
    refused: Lanes,
    /// Lanes (proxy mode variants) to which the scenario does not apply, with the reason.
    beside: Lanes,
    run: fn(&mut Bench),
}

type Lanes = [Option<(&'static str, &'static str)>; 3];

pub const fn scenario(name: &'static str, rows: &'static str, run: fn(&mut Bench)) -> Scenario {
    Scenario { name, rows, upstream: "", refused: [None; 3], beside: [None; 3], run }
}

impl Scenario {
    pub const fn stands_for(self, upstream: &'static str) -> Self {
        Self { upstream, ..self }
    }

    /// Returns the scenario, changed to expect that the backend of the lane (proxy mode variant) rejects the
    /// Service. `reason` is the reason for this expectation.
    pub const fn refused_in(self, lane: &'static str, reason: &'static str) -> Self {
        Self { refused: add(self.refused, lane, reason), ..self }
    }

    /// Returns the scenario, marked as not applicable to the lane (proxy mode variant). `reason` explains
    /// this.
    pub const fn not_in(self, lane: &'static str, reason: &'static str) -> Self {
        Self { beside: add(self.beside, lane, reason), ..self }
    }

    pub fn refusal(&self, lane: Lane) -> Option<&'static str> {
        find(self.refused, lane)
    }

    /// Runs the scenario on a test bed and returns its outcome. `serial` makes its addresses different from
    /// those of other scenarios.
    pub fn run(&self, bench: &mut Bench, serial: u8) -> Outcome {
        if let Some(reason) = find(self.beside, bench.lane) {
            return Outcome::NotMeant(reason.to_owned());
        }
        let ran = panic::catch_unwind(AssertUnwindSafe(|| {
            bench.begin(serial);
            (self.run)(bench);
        }));
        match ran {
            Ok(()) if bench.differences.is_empty() => Outcome::Pass,
            Ok(()) => Outcome::Differs(bench.differences.iter().copied().collect::<Vec<_>>().join(", ")),
            Err(payload) => match payload.downcast::<Unsupported>() {
                Ok(unsupported) => Outcome::Unsupported(unsupported.0),
                Err(payload) => Outcome::Failed(message(&*payload)),
            },
        }
    }
}

const fn add(mut lanes: Lanes, lane: &'static str, reason: &'static str) -> Lanes {
    let mut index = 0;
    while lanes[index].is_some() {
        index += 1;
    }
    lanes[index] = Some((lane, reason));
    lanes
}

fn find(lanes: Lanes, lane: Lane) -> Option<&'static str> {
    lanes.into_iter().flatten().find(|(name, _)| *name == lane.name()).map(|(_, reason)| reason)
}

/// Result of a scenario in one lane (proxy mode variant) and address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The results match the packet program, which defines the correct behavior.
    Pass,
    /// The results match the packet program except for deliberate deviations of the mode. Contains the
    /// descriptions of these deviations.
    Differs(String),
    /// The backend rejects the Service. Contains the reason.
    Unsupported(String),
    Failed(String),
    /// The scenario does not apply to the mode. Contains the reason.
    NotMeant(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Differs(how) => write!(f, "pass, differently\t{how}"),
            Self::Unsupported(why) => write!(f, "unsupported\t{}", one_line(why)),
            Self::NotMeant(why) => write!(f, "no\t{why}"),
            Self::Failed(why) => write!(f, "FAILED\t{}", one_line(why)),
        }
    }
}

impl Outcome {
    pub fn parse(text: &str) -> Self {
        let (word, more) = text.split_once('\t').unwrap_or((text, ""));
        match word {
            "pass" => Self::Pass,
            "pass, differently" => Self::Differs(more.to_owned()),
            "unsupported" => Self::Unsupported(more.to_owned()),
            "no" => Self::NotMeant(more.to_owned()),
            "FAILED" => Self::Failed(more.to_owned()),
            other => panic!("{other:?} is no outcome"),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

pub const fn other(family: IpFamily) -> IpFamily {
    match family {
        IpFamily::V4 => IpFamily::V6,
        IpFamily::V6 => IpFamily::V4,
    }
}
