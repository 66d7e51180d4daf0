//! What is odd on the machine: what `preflight` sees, and what else stands in the way of traffic.

use std::{fs, process::Command};

use model::{
    ask::{FINDINGS_MAX, Finding, FindingState},
    node::ProxyMode,
};

use super::surroundings::{Surroundings, judge};
use crate::{
    desired::limit_message,
    preflight::{self, State},
};

/// Looks at what a mode needs; loads no module and changes nothing.
pub(super) fn findings(mode: ProxyMode) -> Vec<Finding> {
    let report = preflight::run(mode, false);
    let surroundings = judge(&look()).into_iter().map(limited);
    report.findings.into_iter().map(finding).chain(surroundings).take(FINDINGS_MAX).collect()
}

/// Reads what is judged. A tool that is not there says nothing.
fn look() -> Surroundings {
    let number = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let legacy_tables = |names| fs::read_to_string(format!("/proc/net/{names}")).ok();
    let iptables_version = output("iptables", &["--version"]);
    // Where the tables are legacy, asking for one that is not there makes it.
    let is_nft = iptables_version.as_ref().is_some_and(|version| version.contains("nf_tables"));
    let has_filter = |names| {
        legacy_tables(names).is_some_and(|tables| tables.lines().any(|table| table.trim() == "filter"))
    };
    // Somebody who holds the lock for longer is busy with the very rules.
    let forward = |(tool, names)| {
        (is_nft || has_filter(names)).then(|| output(tool, &["-w", "2", "-S", "FORWARD"])).flatten()
    };
    Surroundings {
        conntrack_count: number("nf_conntrack_count"),
        conntrack_max: number("nf_conntrack_max"),
        forward: [("iptables", "ip_tables_names"), ("ip6tables", "ip6_tables_names")].map(forward),
        legacy_tables: legacy_tables("ip_tables_names"),
        iptables_version,
    }
}

/// What a tool prints when it succeeds.
fn output(tool: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(tool).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn limited(found: Finding) -> Finding {
    let Finding { check, state, message, fix } = found;
    Finding { check, state, message: limit_message(message), fix: fix.map(limit_message) }
}

fn finding(found: preflight::Finding) -> Finding {
    let preflight::Finding { need, kind: _, state, required, purpose, detail, remedy } = found;
    let how = match (state, required) {
        (State::Present | State::BuiltIn | State::Loadable, _) => FindingState::Fine,
        (State::Missing, false) => FindingState::Warning,
        (State::Missing, true) => FindingState::Broken,
    };
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    Finding {
        check: need.chars().take(CHECK_LENGTH_MAX).collect(),
        state: how,
        message: limit_message(format!("{}: {purpose}{detail}", state.as_str())),
        fix: remedy.map(limit_message),
    }
}

/// Characters of the name of a check (`model::ask::Finding`).
const CHECK_LENGTH_MAX: usize = 64;
