//! Whether this machine can carry out a proxy mode: `tidegate-agent preflight`.
//!
//! What the mode needs is listed in [`needs`]; each need is looked up among the kernel's modules and, where there is one,
//! put to a real test in a network namespace made for it and gone after it. The test has the last word: a kernel without
//! module lists may have everything built in, and a module that is loaded may still refuse. Nothing of the machine is
//! changed but the modules that are loaded, and those only when asked.

mod announcing;
pub mod modules;
pub mod needs;
mod probes;
pub mod show;

use std::fs;

use model::kinds::node::ProxyMode;
use serde::Serialize;

use self::{
    modules::{ModuleState, Modules},
    needs::Need,
    probes::{Answer, Prober},
};

/// What an operator is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The mode asked about.
    pub mode: ProxyMode,
    /// The kernel's release.
    pub kernel: String,
    /// Whether everything that the mode cannot do without is there or can be loaded.
    pub usable: bool,
    /// What was found, in the order of importance.
    pub findings: Vec<Finding>,
}

/// How one need stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What is needed.
    pub need: String,
    /// What kind of thing that is.
    pub kind: needs::Kind,
    /// How it stands.
    pub state: State,
    /// Whether the mode cannot do without.
    pub required: bool,
    /// What it is needed for.
    pub purpose: String,
    /// What was seen.
    pub detail: String,
    /// What helps, when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How a need stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there.
    Present,
    /// It is part of the kernel.
    BuiltIn,
    /// It is a module that can be loaded.
    Loadable,
    /// It is not there.
    Missing,
}

impl State {
    /// The word of the listing.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::BuiltIn => "built-in",
            Self::Loadable => "loadable",
            Self::Missing => "missing",
        }
    }
}

impl Report {
    /// What the mode cannot do without and is not there.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_fatal())
    }
}

impl Finding {
    /// Whether it is a module that the mode cannot do without, and that is not loaded yet.
    #[must_use]
    pub fn is_to_load(&self) -> bool {
        self.required && self.state == State::Loadable
    }

    /// Whether nothing has to be done for it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match self.state {
            State::Present | State::BuiltIn => true,
            State::Loadable | State::Missing => false,
        }
    }

    fn is_fatal(&self) -> bool {
        self.required && self.state == State::Missing
    }
}

/// Looks at everything that a mode needs; loads modules that are not loaded if `load`.
#[must_use]
pub fn run(mode: ProxyMode, load: bool) -> Report {
    // A namespace belongs to a thread; what this one makes goes with it.
    let look = move || {
        let (modules, mut prober) = (Modules::of_this_kernel(), Prober::new());
        needs::of(mode).into_iter().map(|need| examine(&need, &modules, &mut prober, load)).collect()
    };
    let mut findings: Vec<Finding> = match std::thread::spawn(look).join() {
        Ok(findings) => findings,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    findings.extend(announcing::findings());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let usable = !findings.iter().any(Finding::is_fatal);
    Report { mode, kernel, usable, findings }
}

fn examine(need: &Need, modules: &Modules, prober: &mut Prober, load: bool) -> Finding {
    let (mut name, mut state) = modules.best_of(need.modules);
    let mut detail = String::new();
    if load && state == ModuleState::Loadable {
        match modules.load(name) {
            Ok(()) => (state, detail) = (ModuleState::Loaded, "loaded by this command".to_owned()),
            Err(error) => (state, detail) = (ModuleState::Missing, error),
        }
    }
    // A test can make the kernel load the module by itself, so that one which may not be loaded is not tested.
    let answer =
        if state == ModuleState::Loadable { Answer::Untested(String::new()) } else { prober.test(need.test) };
    let state = match (answer, state) {
        (Answer::Works(seen), state) => {
            detail = join(&detail, &seen);
            if state == ModuleState::BuiltIn { State::BuiltIn } else { State::Present }
        }
        (Answer::Fails(why), _) => {
            detail = join(&detail, &why);
            State::Missing
        }
        (Answer::Untested(why), state) => {
            detail = join(&detail, &why);
            match state {
                ModuleState::Loaded => State::Present,
                ModuleState::BuiltIn => State::BuiltIn,
                ModuleState::Loadable => State::Loadable,
                ModuleState::Missing => State::Missing,
            }
        }
    };
    if name.is_empty() {
        name = need.name;
    }
    let remedy = (state == State::Missing).then(|| need.remedy.to_owned());
    Finding {
        need: if need.modules.len() > 1 && state != State::Missing { name } else { need.name }.to_owned(),
        kind: need.kind,
        state,
        required: need.required,
        purpose: need.purpose.to_owned(),
        detail,
        remedy,
    }
}

fn join(first: &str, second: &str) -> String {
    match (first, second) {
        ("", text) | (text, "") => text.to_owned(),
        (first, second) => format!("{first}; {second}"),
    }
}
