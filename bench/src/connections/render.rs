//! The page and the plot of the connections benchmark, from its figures alone.

use std::{collections::BTreeSet, fmt::Write};

use super::measured::{Measured, Round, Series};
use crate::{
    pages::{
        page::{self, short},
        plot::{self, Row},
        record::Report as _,
    },
    statistics::figures::Summary,
};

/// What the design demands of connections per second with many Services over those with few, in these modes.
const TARGET_RATIO: f64 = 0.95;
const TARGETED: [&str; 2] = ["tidegate-nftables", "tidegate-ipvs"];
/// Whom each mode is compared with.
const RIVALS: [&str; 3] = ["direct", "haproxy", "nginx"];

const METHOD: &str = "\
A machine that asks and one that answers hang on a node by links of their own, in network namespaces of one machine; every contestant has
such a network of its own. They have turns: in a round each of them has one, and whoever begins differs from round to round. A turn has
three parts of the same length.

A connection is made, sends a byte, gets one from the backend, and sees the backend's end before it closes. *Latency* is from the call
that connects to that byte, of one client that makes one connection after the other: over all connections of all rounds. *Connections per
second* are those of many clients at once; medians are over the rounds. *Processor time* is that of all processors, of clients, node and
backend together, for one of those connections: with clients, node and backend on the same processors, the rate is bounded by it. *Long
flow* is what one connection carries when the backend sends all the time.

The Service that is measured has one endpoint; all others have endpoints that nobody asks. The client is a workload behind the node, so
nobody masquerades it; relays connect from the node's address. Nodes forget finished connections after a second, and clients and relays
connect from all ports above 1023, so that no table is full of what a contestant did before. `direct` has no rules, so its node does not
track connections.

*In the guest*: on a machine whose kernel has no IPVS, that mode is measured on User Mode Linux, beside the same peers there. It has one
processor and slow system calls, so that its ratios say something and its rates do not.
";

/// The page.
pub(super) fn page(measured: &Measured) -> String {
    let mut text = page::head(
        "Connections through a virtual address",
        "connections",
        "Connections per second, every round as a dot",
    );
    let _ = write!(text, "\n{}\n## Verdict\n\n{}\n", table(measured), verdict(measured));
    text += &page::place(&measured.host, &measured.versions, measured.load.as_ref());
    // Writing to a String cannot fail; so everywhere here.
    let _ = writeln!(text, "- {} clients at once; parts of {} ms", measured.clients, measured.slice_ms);
    let mut told = BTreeSet::new();
    for series in &measured.series {
        if told.insert(&series.contestant) {
            let _ = writeln!(text, "- `{}`: {}", series.contestant, series.settings);
        }
    }
    text + "\n## How\n\n" + METHOD
}

/// The rate of every round as a dot.
pub(super) fn plot(measured: &Measured) -> String {
    let row = |series: &Series| Row {
        label: label(series),
        colour: if series.contestant.starts_with("tidegate") { "#0b6e99" } else { "#b3541e" },
        figures: series.figures(|round| round.per_second),
        median: series.median(|round| round.per_second),
    };
    let rows: Vec<_> = measured.series.iter().map(row).collect();
    plot::dots("New connections per second", "", &rows)
}

fn label(series: &Series) -> String {
    let place = if series.is_guest { ", in the guest" } else { "" };
    match series.services {
        0 => format!("{}{place}", series.contestant),
        services => format!("{}, {services} Services{place}", series.contestant),
    }
}

fn table(measured: &Measured) -> String {
    let mut table = String::from(
        "| contestant | rounds | latency: median | p99 | connections/s: median | processor time each | long flow | failed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for series in &measured.series {
        let failed: u64 = series.rounds.iter().map(|round| round.failed).sum();
        let latency = |of: fn(&Summary) -> f64| {
            series.latency_us.as_ref().map_or("–".to_owned(), |all| short(of(all)))
        };
        let median = |of: fn(&Round) -> f64| series.median(of).map_or("–".to_owned(), short);
        let _ = writeln!(
            table,
            "| {} | {} | {} µs | {} µs | {} | {} µs | {} Gbit/s | {failed} |",
            label(series),
            series.rounds.len(),
            latency(|all| all.median),
            latency(|all| all.p99),
            median(|round| round.per_second),
            median(|round| round.processor_us),
            median(|round| round.flow_gbit_per_second),
        );
    }
    table
}

fn verdict(measured: &Measured) -> String {
    if let Some(why) = measured.too_busy() {
        return format!("None: {why}.\n");
    }
    let mut lines = String::new();
    let mut modes: Vec<_> = measured.series.iter().filter(|series| series.services > 0).collect();
    modes.dedup_by_key(|series| &series.contestant);
    for few in modes {
        let sizes = measured.series.iter().filter(|series| series.contestant == few.contestant);
        let Some(many) = sizes.max_by_key(|series| series.services) else { continue };
        if many.services > few.services
            && let Some(ratio) = ratio(many, few)
        {
            let target = if !TARGETED.contains(&&*few.contestant) {
                ""
            } else if ratio >= TARGET_RATIO {
                " (at least 0.95 is demanded: met)"
            } else {
                " (at least 0.95 is demanded: missed)"
            };
            let _ = writeln!(
                lines,
                "- {}: with {} Services {ratio:.2} times as many connections per second as with {}{target}",
                few.contestant, many.services, few.services
            );
        }
        for rival in RIVALS.iter().filter_map(|rival| measured.beside(many, rival)) {
            if let Some(ratio) = ratio(many, rival) {
                let name = &rival.contestant;
                let _ = writeln!(lines, "- {}: {ratio:.2} times as many as {name}", label(many));
            }
        }
    }
    if lines.is_empty() { "None: no mode was measured.\n".to_owned() } else { lines }
}

/// The median, over the rounds, of one's rate over another's in the same round.
fn ratio(one: &Series, other: &Series) -> Option<f64> {
    let pairs = one.rounds.iter().zip(&other.rounds);
    Summary::of(pairs.map(|(one, other)| one.per_second / other.per_second)).map(|summary| summary.median)
}
