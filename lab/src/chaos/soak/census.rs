//! Census for leak detection: lists the kernel state, process resources and files that a soak test may leave
//! behind. Each location, such as a chain of a node, has a list of text lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Result;

use super::{
    processes,
    stage::{MODES, Stage},
};
use crate::{
    host::{kernel, listings, netns::Namespace, wait},
    processes::binaries,
};

/// Kernel objects, process resources and files: text lines by location, such as a chain of a node.
pub(super) type Census = BTreeMap<String, Vec<String>>;

/// Prefix of the locations in a [`Census`] that are processes.
const PROCESS: &str = "process: ";

/// Takes a census: lists the kernel objects and resources of every namespace and process of the cluster.
pub(super) fn of(stage: &Stage) -> Result<Census> {
    let mut census = Census::new();
    for (node, machine) in &stage.cluster.topology.nodes {
        let place = &machine.namespace;
        for (what, lines) in listings::of(place)? {
            census.insert(format!("{node} {what}"), lines);
        }
        census.insert(format!("{node} network"), network(place)?);
        census.insert(format!("{node} ipsets"), sets(place));
        census.insert(format!("{node} remembered clients"), remembered(place));
        census.insert(format!("{node} flows"), flows(place)?);
        let directory = stage.cluster.state_directory(node);
        census.insert(format!("{node} state directory"), files(&directory)?);
    }
    census.insert("files".to_owned(), stage.cluster.files()?);
    look_at_processes(stage, &mut census)?;
    let routes = crate::processes::routers::learned(&stage.router.namespace)?;
    census.insert("router".to_owned(), routes.iter().map(ToString::to_string).collect());
    Ok(census)
}

/// Replaces the entries of the processes in a [`Census`] by their current resources.
pub(super) fn look_at_processes(stage: &Stage, census: &mut Census) -> Result<()> {
    for (process, pid) in processes::running(stage)? {
        census.insert(format!("{PROCESS}{process}"), processes::holdings(pid)?);
    }
    Ok(())
}

/// Waits until a new census equals the census `before`, because idle connections, threads and conntrack
/// entries take some time to end. A process may have fewer resources than before: a restarted one has not yet
/// created everything that is created lazily.
///
/// # Errors
/// Returns the differences on timeout.
pub(super) fn wait_equal(stage: &Stage, before: &Census) -> Result<(), String> {
    let equal = wait::until("everything to be as before the first object", || {
        let mut now = of(stage)?;
        for (place, lines) in &mut now {
            if let (true, Some(then)) = (place.starts_with(PROCESS), before.get(place))
                && processes::holds_no_more(lines, then)
            {
                lines.clone_from(then);
            }
        }
        anyhow::ensure!(*before == now, "{}", difference(before, &now));
        Ok(())
    });
    equal.map_err(|error| format!("{error:#}"))
}

/// Returns the lines that were removed from and added to each location between two censuses.
pub(super) fn difference(before: &Census, after: &Census) -> String {
    let mut text = String::new();
    let places: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for place in places {
        let (old, new) = (before.get(place), after.get(place));
        if old == new {
            continue;
        }
        let none = Vec::new();
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        let lines = |sign: &str, from: &[String], to: &[String]| {
            let beyond =
                to.iter().filter(|line| !from.contains(line)).map(|line| format!("\n  {sign} {line}"));
            beyond.collect::<String>()
        };
        text += &format!("\n{place}:{}{}", lines("-", new, old), lines("+", old, new));
    }
    text
}

/// Terminates the agents and runs the `cleanup` command of each. Returns a description of each difference from the
/// kernel state before the agents started, and of each process that is left.
pub(super) fn clean_up(stage: &mut Stage) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let program = binaries::find("tidegate-agent")?;
    for (number, mode) in (1..).zip(MODES) {
        let node = format!("node{number}");
        if let Some(agent) = stage.cluster.agents.get_mut(&node) {
            agent.terminate()?;
        }
        let place = stage.cluster.place(&node)?.clone();
        let state = format!("--state-dir={}", stage.cluster.state_directory(&node).display());
        place.run(&program.display().to_string(), &["cleanup", &state, "--mode", mode])?;
        let now = [kernel::ruleset(&place)?, kernel::network(&place)?];
        if let Some(before) = stage.before_agents.get(&node) {
            for (before, now) in before.iter().zip(&now).filter(|(before, now)| before != now) {
                left.push(format!("{node} after `cleanup`: before\n{before}\nnow\n{now}"));
            }
        }
        let files = files(&stage.cluster.state_directory(&node))?;
        let processes = crate::host::shell::run("ip", &["netns", "pids", place.name()])?;
        let running: Vec<_> =
            processes.split_whitespace().filter(|pid| *pid != std::process::id().to_string()).collect();
        if !running.is_empty() {
            left.push(format!("{node} after `cleanup`: processes {running:?}; files {files:?}"));
        }
    }
    Ok(left)
}

/// Returns the links, addresses, routes and policy rules of a namespace, sorted. Automatic interface
/// addresses are included, because they do not change during the test.
fn network(place: &Namespace) -> Result<Vec<String>> {
    Ok(listings::sorted(kernel::network(place)?.lines().map(|line| line.trim().to_owned())))
}

fn sets(place: &Namespace) -> Vec<String> {
    // A kernel without ipset support has none.
    let listing = place.run("ipset", &["list", "-n"]).unwrap_or_default();
    listing.lines().map(str::to_owned).collect()
}

/// Returns the names of the address lists that affinity rules of iptables (match `recent`) have created.
fn remembered(place: &Namespace) -> Vec<String> {
    // The directory exists only with such a rule.
    let lists = place.run("ls", &["/proc/net/xt_recent"]).unwrap_or_default();
    lists.lines().map(str::to_owned).collect()
}

/// Returns the conntrack entries that translate addresses. None should remain after objects are removed:
/// agents delete the UDP entries; TCP connections are left to end by default (`removalPolicy`), and the
/// kernel drops their entries soon after.
fn flows(place: &Namespace) -> Result<Vec<String>> {
    let mut flows = kernel::conntrack(place, "udp")?;
    flows.extend(kernel::conntrack(place, "tcp")?);
    flows.retain(|line| is_translated(line));
    Ok(flows)
}

/// Returns true if a conntrack entry translates the destination: the source of its replies differs from the
/// original destination.
fn is_translated(flow: &str) -> bool {
    let values =
        |key: &str| flow.split_whitespace().filter_map(|word| word.strip_prefix(key)).collect::<Vec<_>>();
    match (&values("src=")[..], &values("dst=")[..]) {
        ([_, answering], [wanted, _]) => answering != wanted,
        _ => false,
    }
}

/// Returns the names of the files in a directory.
fn files(directory: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        files.push(entry?.file_name().to_string_lossy().into_owned());
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_whose_answers_come_from_elsewhere_is_translated() {
        let direct = "udp 17 29 src=10.1.1.2 dst=10.1.2.3 sport=1 dport=2 src=10.1.2.3 dst=10.1.1.2 sport=2 dport=1 mark=0 use=1";
        let translated = direct.replacen("dst=10.1.2.3", "dst=10.96.0.9", 1);
        assert!(!is_translated(direct) && is_translated(&translated));
    }

    #[test]
    fn a_difference_names_place_and_lines() {
        let before = Census::from([("a".to_owned(), vec!["one".to_owned()]), ("b".to_owned(), Vec::new())]);
        let after = Census::from([("a".to_owned(), vec!["two".to_owned()]), ("b".to_owned(), Vec::new())]);
        assert_eq!(difference(&before, &after), "\na:\n  - one\n  + two");
        assert_eq!(difference(&before, &before), "");
    }
}
