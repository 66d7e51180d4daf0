//! Rendering of the connection benchmark's page and plot from the recorded results.

use std::{collections::BTreeSet, fmt::Write};

use super::measured::{ConnectionResults, ConnectionSeries, Round};
use crate::{
    pages::{
        page::{self, short},
        plot::{self, PlotRow},
        record::Report as _,
    },
    statistics::figures::Summary,
};

/// Design target for the modes in `TARGETED`: minimum ratio of the connection rate with the largest number of
/// Services to that with the smallest.
const TARGET_RATIO: f64 = 0.95;
const TARGETED: [&str; 2] = ["tidegate-nftables", "tidegate-ipvs"];
/// Names of the paths without Tidegate, with which the page compares each proxy mode.
const RIVALS: [&str; 3] = ["direct", "haproxy", "nginx"];

const METHOD: &str = "A client machine and a backend machine are connected to a node by separate links, \
                      in network namespaces of one machine; each contestant has its own network. \
                      Contestants are measured in turn; the first one differs from round to round. A \
                      turn has three parts of equal length.\n\nA connection is opened, sends a byte, \
                      receives one from the backend, and waits for the close of the backend before it \
                      closes. *Latency* is the time from the connect call to that byte, for a single \
                      client in a closed loop, over all connections of all rounds. *Connections per \
                      second* are those of many concurrent clients; medians are over the rounds. *CPU \
                      time* is the total of clients, node and backend per connection: as they share the \
                      same CPUs, it bounds the rate. *Long stream* is the throughput of one connection \
                      on which the backend sends continuously.\n\nThe measured Service has one endpoint; \
                      the endpoints of all others receive no traffic. The client is a workload behind \
                      the node, so its traffic is not masqueraded; relays connect from the address of \
                      the node. Nodes forget finished connections after a second, and clients and relays \
                      use all source ports above 1023, so that no table is full from earlier turns. \
                      `direct` has no rules, so its node does not track connections.\n\n*Guest*: if the \
                      kernel of the machine has no IPVS, that mode is measured on User Mode Linux, \
                      together with the same peers. The guest has one CPU and slow system calls, so its \
                      ratios are meaningful and its rates are not.\n";

/// Renders the page of the connection benchmark as Markdown.
pub(super) fn page(measured: &ConnectionResults) -> String {
    let mut text = page::head(
        "Connections through a virtual address",
        "connections",
        "Connections per second, one dot per round",
    );
    let _ = write!(text, "\n{}\n## Verdict\n\n{}\n", table(measured), verdict(measured));
    text += &page::place(&measured.host, &measured.versions, measured.load.as_ref());
    // Writing to a String cannot fail; the same applies below.
    let _ = writeln!(text, "- {} concurrent clients; parts of {} ms", measured.clients, measured.slice_ms);
    let mut told = BTreeSet::new();
    for series in &measured.series {
        if told.insert(&series.contestant) {
            let _ = writeln!(text, "- `{}`: {}", series.contestant, series.settings);
        }
    }
    text + "\n## How\n\n" + METHOD
}

/// Renders the SVG plot of the connection rates, with one dot per round.
pub(super) fn plot(measured: &ConnectionResults) -> String {
    let row = |series: &ConnectionSeries| PlotRow {
        label: label(series),
        colour: if series.contestant.starts_with("tidegate") { "#0b6e99" } else { "#b3541e" },
        figures: series.figures(|round| round.per_second),
        median: series.median(|round| round.per_second),
    };
    let rows: Vec<_> = measured.series.iter().map(row).collect();
    plot::dots("New connections per second", "", &rows)
}

fn label(series: &ConnectionSeries) -> String {
    let place = if series.is_guest { ", guest" } else { "" };
    match series.services {
        0 => format!("{}{place}", series.contestant),
        services => format!("{}, {services} Services{place}", series.contestant),
    }
}

fn table(measured: &ConnectionResults) -> String {
    let mut table = String::from(
        "| contestant | rounds | latency: median | p99 | connections/s: median | CPU time each | long \
         stream | failed |\n|---|---|---|---|---|---|---|---|\n",
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

fn verdict(measured: &ConnectionResults) -> String {
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
                " (target at least 0.95: met)"
            } else {
                " (target at least 0.95: missed)"
            };
            let _ = writeln!(
                lines,
                "- {}: {ratio:.2} times the connections per second with {} Services as with {}{target}",
                few.contestant, many.services, few.services
            );
        }
        for rival in RIVALS.iter().filter_map(|rival| measured.beside(many, rival)) {
            if let Some(ratio) = ratio(many, rival) {
                let name = &rival.contestant;
                let _ = writeln!(
                    lines,
                    "- {}: {ratio:.2} times the connections per second of {name}",
                    label(many)
                );
            }
        }
    }
    if lines.is_empty() { "None: no mode was measured.\n".to_owned() } else { lines }
}

/// Returns the median over all rounds of the ratio between the connection rates of `one` and `other` in the
/// same round; `None` without rounds.
fn ratio(one: &ConnectionSeries, other: &ConnectionSeries) -> Option<f64> {
    let pairs = one.rounds.iter().zip(&other.rounds);
    Summary::of(pairs.map(|(one, other)| one.per_second / other.per_second)).map(|summary| summary.median)
}
