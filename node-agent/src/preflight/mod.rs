//! Requirements check for a proxy mode: `tidegate-agent preflight`.
//!
//! The requirements of the mode are listed in [`needs`]. Each requirement is looked up among the kernel's
//! modules and, if possible, tested in a temporary network namespace. The test takes precedence: a kernel
//! without module lists may have everything built in, and a loaded module may still fail. The machine is not
//! changed, except that missing modules are loaded unless `--no-load` is given.

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
    probes::{ProbeResult, Prober},
};

/// Result of checking all requirements of a proxy mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Proxy mode whose requirements were checked.
    pub mode: ProxyMode,
    /// Release of the running kernel.
    pub kernel: String,
    /// True if all required items are present or can be loaded.
    pub usable: bool,
    /// Result for each requirement, most important first.
    pub findings: Vec<Finding>,
}

/// Result for one requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Name of the required item, such as a module, a program or a setting.
    pub need: String,
    /// Kind of the item: capability, module, program, setting or interface.
    pub kind: needs::Kind,
    /// State of the item, as found by the test or in the module lists.
    pub state: RequirementState,
    /// True if the proxy mode does not work without the item.
    pub required: bool,
    /// Purpose of the item in the proxy mode.
    pub purpose: String,
    /// Details that the test observed.
    pub detail: String,
    /// Remedy if the item is missing; `None` in all other states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// State of a required item on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequirementState {
    /// The item is present: its test succeeded, or it could not be tested and its module is loaded.
    Present,
    /// The item is built into the kernel.
    BuiltIn,
    /// The item is available as a module that is not loaded.
    Loadable,
    /// The item is missing, or its test failed.
    Missing,
    /// This process may not test the item, and the lists of modules do not show it.
    Unknown,
}

impl RequirementState {
    /// Returns the state as a word for the output table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::BuiltIn => "built-in",
            Self::Loadable => "loadable",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

impl Report {
    /// Returns the required items that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_fatal())
    }
}

impl Finding {
    /// Returns true for a required item whose module is not loaded yet.
    #[must_use]
    pub fn is_to_load(&self) -> bool {
        self.required && self.state == RequirementState::Loadable
    }

    /// Returns true if the item is present or built in, so no action is needed.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match self.state {
            RequirementState::Present | RequirementState::BuiltIn => true,
            RequirementState::Loadable | RequirementState::Missing | RequirementState::Unknown => false,
        }
    }

    fn is_fatal(&self) -> bool {
        self.required && self.state == RequirementState::Missing
    }
}

/// Checks all requirements of a mode; loads missing modules if `load` is true.
#[must_use]
pub fn run(mode: ProxyMode, load: bool) -> Report {
    // A network namespace belongs to a thread, and everything in it is removed with the thread.
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
    // A test can make the kernel load the module, so a module that must not be loaded is not tested.
    let answer = if state == ModuleState::Loadable {
        ProbeResult::Untested(String::new())
    } else {
        prober.test(need.test)
    };
    let (state, seen) = judge(answer, state);
    let detail = join(&detail, &seen);
    if name.is_empty() {
        name = need.name;
    }
    let remedy = (state == RequirementState::Missing).then(|| need.remedy.to_owned());
    Finding {
        need: if need.modules.len() > 1 && state != RequirementState::Missing { name } else { need.name }
            .to_owned(),
        kind: need.kind,
        state,
        required: need.required,
        purpose: need.purpose.to_owned(),
        detail,
        remedy,
    }
}

/// Returns the state of an item, and the details that its test observed.
fn judge(answer: ProbeResult, module: ModuleState) -> (RequirementState, String) {
    match (answer, module) {
        (ProbeResult::Works(seen), ModuleState::BuiltIn) => (RequirementState::BuiltIn, seen),
        (ProbeResult::Works(seen), _) => (RequirementState::Present, seen),
        (ProbeResult::Fails(why), _) => (RequirementState::Missing, why),
        (ProbeResult::Unable(why), ModuleState::Missing) => (RequirementState::Unknown, why),
        (ProbeResult::Untested(why), ModuleState::Missing) => (RequirementState::Missing, why),
        (ProbeResult::Untested(why) | ProbeResult::Unable(why), ModuleState::Loaded) => {
            (RequirementState::Present, why)
        }
        (ProbeResult::Untested(why) | ProbeResult::Unable(why), ModuleState::BuiltIn) => {
            (RequirementState::BuiltIn, why)
        }
        (ProbeResult::Untested(why) | ProbeResult::Unable(why), ModuleState::Loadable) => {
            (RequirementState::Loadable, why)
        }
    }
}

fn join(first: &str, second: &str) -> String {
    match (first, second) {
        ("", text) | (text, "") => text.to_owned(),
        (first, second) => format!("{first}; {second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that may not create network namespaces cannot test its kernel; this is no fault of the machine.
    #[test]
    fn an_item_that_this_process_may_not_test_is_unknown_and_not_missing() {
        let judged = |answer: fn(String) -> ProbeResult, module| judge(answer("why".to_owned()), module).0;
        assert_eq!(judged(ProbeResult::Unable, ModuleState::Missing), RequirementState::Unknown);
        assert_eq!(judged(ProbeResult::Unable, ModuleState::Loaded), RequirementState::Present);
        assert_eq!(judged(ProbeResult::Untested, ModuleState::Missing), RequirementState::Missing);
        assert_eq!(judged(ProbeResult::Fails, ModuleState::Loaded), RequirementState::Missing);
    }
}
