//! Resource usage of Tidegate's processes in a soak test: memory, open files, threads and child processes.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::stage::{self, Stage};

/// Resource usage of one process at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the start of the run.
    pub at: Duration,
    /// Process name: `control`, `agent of node1`, `relay of node3`.
    pub process: String,
    /// Process id; a different one means a restart.
    pub pid: u32,
    /// True if the sample was taken without client requests, with the same objects as every other such
    /// sample.
    pub is_settled: bool,
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Anonymous memory in KiB, which the process has allocated from the kernel.
    pub anonymous_kib: u64,
    /// Heap in use in KiB, as reported by the process, or by the agent for its relay. `None` if it is not
    /// reported or the sample is not [`Self::is_settled`].
    pub in_use_kib: Option<u64>,
    /// Number of open file descriptors.
    pub files: u64,
    /// Number of threads of the process.
    pub threads: u64,
}

/// Process name of the control server.
const CONTROL: &str = "control";

/// Returns the process ID of each running process, by process name.
pub(super) fn running(stage: &Stage) -> Result<BTreeMap<String, u32>> {
    let mut all: BTreeMap<String, u32> =
        stage.cluster.server.pid().map(|pid| (CONTROL.to_owned(), pid)).into_iter().collect();
    for (node, agent) in &stage.cluster.agents {
        all.extend(agent.pid().map(|pid| (format!("agent of {node}"), pid)));
    }
    all.extend(stage::relay(stage.cluster.place("node3")?)?.map(|pid| ("relay of node3".to_owned(), pid)));
    Ok(all)
}

/// Samples the resource usage of all processes at the time `at`. A process that ends meanwhile is omitted.
pub(super) fn sample(stage: &Stage, at: Duration, is_settled: bool) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for (process, pid) in running(stage)? {
        let Ok(mut sample) = look(process, pid, at, is_settled) else { continue };
        if is_settled {
            // Otherwise the process may be suspended and unable to respond.
            sample.in_use_kib = in_use_kib(stage, &sample.process)?;
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Returns the heap in use of a process in KiB, read from the metrics of the process or, for a relay, from
/// those of its agent. Returns `None` if it is not reported.
fn in_use_kib(stage: &Stage, process: &str) -> Result<Option<u64>> {
    let (server, series) = if process == CONTROL {
        (stage.cluster.api.clone(), "tidegate_heap_in_use_bytes")
    } else if let Some(node) = process.strip_prefix("agent of ") {
        (stage.cluster.agent(node)?, "tidegate_agent_heap_in_use_bytes")
    } else if let Some(node) = process.strip_prefix("relay of ") {
        (stage.cluster.agent(node)?, "tidegate_agent_relay_heap_in_use_bytes")
    } else {
        return Ok(None);
    };
    Ok(figure(&server.get("/metrics")?.success()?.text, series).map(|bytes| bytes / 1024))
}

fn figure(metrics: &str, series: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn look(process: String, pid: u32, at: Duration, is_settled: bool) -> Result<Sample> {
    let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name: &str| -> Result<u64> {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let number =
            line.and_then(|line| line.split_whitespace().next()).with_context(|| format!("no {name}"))?;
        Ok(number.parse()?)
    };
    Ok(Sample {
        at,
        process,
        pid,
        is_settled,
        resident_kib: field("Rss:")?,
        anonymous_kib: field("Anonymous:")?,
        in_use_kib: None,
        files: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
        threads: fs::read_dir(format!("/proc/{pid}/task"))?.count() as u64,
    })
}

/// Counts the open files, threads and child processes of a process. Returns one line `count × kind` per kind,
/// such as `3 × file socket:[]`.
pub(super) fn holdings(pid: u32) -> Result<Vec<String>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // The file may have been closed meanwhile.
        let Ok(target) = fs::read_link(file?.path()) else { continue };
        *counts.entry(format!("file {}", without_numbers(&target.to_string_lossy()))).or_default() += 1;
    }
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        *counts.entry(format!("thread {}", without_numbers(name.trim()))).or_default() += 1;
        let children = fs::read_to_string(task.join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
            let state = status.lines().find_map(|line| line.strip_prefix("State:\t")).unwrap_or("gone");
            *counts.entry(format!("child {state}")).or_default() += 1;
        }
    }
    Ok(counts.into_iter().map(|(what, count)| format!("{count} × {what}")).collect())
}

/// Kind, as listed by [`holdings`], of the Tokio threads that run blocking file and name lookups. Concurrent
/// lookups may start several of them. A thread ends after ten idle seconds, which periodic work may prevent.
const WAITING: &str = "thread tokio-rt-worker";
/// Maximum increase of the number of [`WAITING`] threads between two censuses.
const WAITING_MAX: usize = 4;

/// Returns true if no count in `now` is greater than the count of the same kind in `then`; [`WAITING`]
/// threads may increase by [`WAITING_MAX`]. Both are results of [`holdings`].
pub(super) fn holds_no_more(now: &[String], then: &[String]) -> bool {
    let counts = |lines: &[String]| -> BTreeMap<String, usize> {
        let parts = lines.iter().filter_map(|line| line.split_once(" × "));
        parts.map(|(count, what)| (what.to_owned(), count.parse().unwrap_or(0))).collect()
    };
    let then = counts(then);
    counts(now).into_iter().all(|(what, count)| {
        let spare = if what == WAITING { WAITING_MAX } else { 0 };
        then.get(&what).is_some_and(|allowed| count <= *allowed + spare)
    })
}

/// Removes the digits from a name, so that names of one kind become equal.
fn without_numbers(name: &str) -> String {
    name.chars().filter(|character| !character.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_read_from_what_a_process_shows() {
        let metrics = "# TYPE x_in_use_bytes gauge\nx_in_use_bytes_more 1\nx_in_use_bytes 2048\n# EOF\n";
        assert_eq!((figure(metrics, "x_in_use_bytes"), figure(metrics, "in_use_bytes")), (Some(2048), None));
    }

    #[test]
    fn more_of_anything_is_more() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let then = lines(&["3 × file socket:[]", "1 × thread main"]);
        assert!(holds_no_more(&lines(&["2 × file socket:[]", "1 × thread main"]), &then));
        assert!(!holds_no_more(&lines(&["4 × file socket:[]"]), &then));
        assert!(!holds_no_more(&lines(&["1 × child Z (zombie)"]), &then));
        let pool = |count| lines(&[&format!("{count} × {WAITING}")]);
        assert!(holds_no_more(&pool(7), &pool(3)) && !holds_no_more(&pool(8), &pool(3)));
    }
}
