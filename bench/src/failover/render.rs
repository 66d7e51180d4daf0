//! The page and the plot of the failover benchmark, from its figures alone.

use std::fmt::Write;

use super::{
    contestant::Failure,
    measured::{Measured, Series},
};
use crate::{
    pages::{
        plot::{self, Row},
        record::Report as _,
    },
    statistics::figures::Summary,
};

/// What the design demands of the time without replies, by contestant, in milliseconds.
const TARGETS_MS: [(&str, f64); 2] = [("tidegate-default", 1000.0), ("tidegate-tuned", 250.0)];
/// Whom each setting is compared with.
const RIVALS: [(&str, &str); 2] =
    [("tidegate-default", "keepalived-default"), ("tidegate-tuned", "keepalived-fast")];
/// The failures in which traffic has to stop until another node takes over.
const OUTAGES: [Failure; 2] = [Failure::NodeVanishes, Failure::LinkCut];

const METHOD: &str = "\
Three nodes and a client on one bridge, in network namespaces of one machine; every contestant has such a network of its own, and they
fail by turns. The client sends a UDP datagram to the address every 5 ms from one socket; the node that owns the address forwards it,
masqueraded, to a backend on a machine that never fails, which answers with the address it saw. So a reply proves the whole way, and says
which node carried it. keepalived's nodes forward by static nftables rules to the same backend.

*Without replies*: the longest time between two replies around the failure; 5 ms is as fine as it gets. *Moved after*: from the failure to
the first reply through another node. *Return*: the longest time without replies from the repair until everything is as before.
With fewer than 100 runs, the 99th percentile is the largest figure.

- `node-vanishes`: what announces is killed (SIGKILL) and the node's link is cut.
- `link-cut`: the node's link loses its carrier at both ends; what announces goes on.
- `agent-killed`: what announces is killed (SIGKILL); the node's kernel goes on and forwards what still reaches it.
";

/// The page.
pub(super) fn page(measured: &Measured) -> String {
    let mut page = format!(
        "# Failover of a load balancer address\n\nWritten by `make bench` (`cargo run --release -p bench -- failover`); every figure is in \
         [failover.json](failover.json).\n\n{}\n![Every run as a dot](failover.svg)\n\n## Verdict\n\n{}\n## Where\n\n",
        table(measured),
        verdict(measured)
    );
    let host = &measured.host;
    let mut line = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "- {text}");
    };
    line(format!(
        "kernel {}, {} × {}, {} MiB",
        host.kernel, host.processors, host.processor, host.memory_mib
    ));
    line(measured.versions.join("; "));
    line(load(measured));
    for (name, settings) in contestants(measured) {
        line(format!("`{name}`: {settings}"));
    }
    page + "\n## How\n\n" + METHOD
}

/// Every run as a dot.
pub(super) fn plot(measured: &Measured) -> String {
    let row = |series: &Series| Row {
        label: format!("{}, {}", series.contestant, series.failure.name()),
        colour: if series.contestant.starts_with("tidegate") { "#0b6e99" } else { "#b3541e" },
        figures: series.runs.iter().map(|run| run.silence_ms).collect(),
        median: silence(series).map(|summary| summary.median),
    };
    let rows: Vec<_> = ordered(measured).into_iter().map(row).collect();
    plot::dots("Time without replies when the owner of an address fails", "ms", &rows)
}

fn table(measured: &Measured) -> String {
    let mut table = String::from(
        "| failure | contestant | runs | without replies: median | p99 | max | moved after: median | p99 | return: max |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for series in ordered(measured) {
        let (Some(silence), Some(moved), Some(back)) = (
            silence(series),
            series.summary(|run| run.moved_ms),
            series.summary(|run| run.return_silence_ms),
        ) else {
            continue;
        };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms |",
            series.failure.name(),
            series.contestant,
            series.runs.len(),
            silence.median,
            silence.p99,
            silence.max,
            moved.median,
            moved.p99,
            back.max
        );
    }
    table
}

fn verdict(measured: &Measured) -> String {
    if let Some(why) = measured.too_busy() {
        return format!("None: the machine was too busy ({why}). {}.\n", load(measured));
    }
    let mut lines = String::new();
    for failure in OUTAGES {
        for (contestant, target) in TARGETS_MS {
            if let Some(silence) = measured.find(contestant, failure).and_then(silence) {
                let judged = if silence.p99 <= target { "met" } else { "missed" };
                let _ = writeln!(
                    lines,
                    "- {}, {contestant}: traffic back within {target} ms: {judged} (p99 {:.0} ms)",
                    failure.name(),
                    silence.p99
                );
            }
        }
        for (own, rival) in RIVALS {
            let median = |name| measured.find(name, failure).and_then(silence).map(|summary| summary.median);
            if let (Some(own_ms), Some(rival_ms)) = (median(own), median(rival)) {
                let _ = writeln!(
                    lines,
                    "- {}, {own} against {rival}: the median is {:.2} times as long",
                    failure.name(),
                    own_ms / rival_ms
                );
            }
        }
    }
    if lines.is_empty() { "None: no contestant with a target was measured.\n".to_owned() } else { lines }
}

fn load(measured: &Measured) -> String {
    let Some(load) = &measured.load else { return "load unknown".to_owned() };
    let pressure = load.pressure.map_or("unknown".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let late = measured.lateness_ms.map_or("unknown".to_owned(), |late| format!("{:.2} ms", late.p99));
    format!(
        "load average {:.2} before and {:.2} after, processors busy {:.0} %, somebody waited for one {pressure} of the time, probes sent late by \
         {late} in the 99th percentile",
        load.average_before,
        load.average_after,
        load.busy * 100.0
    )
}

fn contestants(measured: &Measured) -> Vec<(&str, &str)> {
    let mut all: Vec<_> =
        measured.series.iter().map(|series| (&*series.contestant, &*series.settings)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// By failure first, so that what is compared stands together.
fn ordered(measured: &Measured) -> Vec<&Series> {
    let mut all: Vec<_> = measured.series.iter().collect();
    all.sort_by_key(|series| (series.failure, &*series.contestant));
    all
}

fn silence(series: &Series) -> Option<Summary> {
    series.summary(|run| run.silence_ms)
}
