//! What a scenario is, and how one is run on a bench.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
};

use model::primitives::net::IpFamily;

use crate::bench::{Bench, Lane, node::Unsupported};

/// One claim about what a node does, and the code that checks it.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The claim.
    pub name: &'static str,
    /// The rows of the feature table that it belongs to.
    pub rows: &'static str,
    /// The upstream tests that it stands for, by the keys of `upstream.rs`.
    pub upstream: &'static str,
    /// The lanes that refuse it, and why.
    refused: Lanes,
    /// The lanes whose nature it is not to do it, and why.
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

    /// A lane in which the backend must refuse the Service, and why.
    pub const fn refused_in(self, lane: &'static str, reason: &'static str) -> Self {
        Self { refused: add(self.refused, lane, reason), ..self }
    }

    /// A lane in which it is not run, because the mode is not made for it.
    pub const fn not_in(self, lane: &'static str, reason: &'static str) -> Self {
        Self { beside: add(self.beside, lane, reason), ..self }
    }

    pub fn refusal(&self, lane: Lane) -> Option<&'static str> {
        find(self.refused, lane)
    }

    /// Runs it on a bench.
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

/// What came of a scenario in one lane and family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Everything as the packet program says.
    Pass,
    /// Everything as the mode's own reading of the program says; how that differs.
    Differs(String),
    /// The backend refuses it, and says why.
    Unsupported(String),
    Failed(String),
    /// The mode is not made for it; the reason.
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
