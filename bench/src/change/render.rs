//! Rendering of the change benchmark's page: tables, fits and a plot.

use std::fmt::Write;

use super::measured::{ChangePoint, Cost};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, PlotRow},
        record::{Record, Report as _},
    },
    statistics::{figures::Summary, fit::Line},
};

/// Design target in milliseconds for the time from a write to the first reply, with `TARGET_SERVICES` Services in
/// nftables mode.
const TARGET_MS: f64 = 20.0;
const TARGET_SERVICES: u32 = 10_000;
/// Design target for the cost of a change at 10,000 Services as a multiple of that at 100.
const TARGET_RATIO: f64 = 1.2;

/// Component of the cost of a change, as a row of the page.
struct ChangeCost {
    name: &'static str,
    unit: &'static str,
    /// True if the component is a time, which is not meaningful in the guest VM.
    is_time: bool,
    of: fn(&Cost) -> f64,
}

const QUANTITIES: [ChangeCost; 6] = [
    ChangeCost { name: "CPU time of control", unit: "µs", is_time: true, of: |cost| cost.control_us },
    ChangeCost { name: "CPU time of the agent", unit: "µs", is_time: true, of: |cost| cost.agent_us },
    ChangeCost { name: "feed bytes", unit: "bytes", is_time: false, of: |cost| cost.feed_bytes },
    ChangeCost { name: "kernel messages", unit: "messages", is_time: false, of: |cost| cost.kernel_messages },
    ChangeCost { name: "kernel message bytes", unit: "bytes", is_time: false, of: |cost| cost.kernel_bytes },
    ChangeCost { name: "transactions", unit: "", is_time: false, of: |cost| cost.kernel_transactions },
];

/// Kind of change that the benchmark measures.
struct Sort {
    /// Name of the kind, as used in the middle of a sentence.
    name: &'static str,
    costs: fn(&ChangePoint) -> &[Cost],
}

const SORTS: [Sort; 2] = [
    Sort { name: "an endpoint change", costs: |point| &point.costs },
    Sort { name: "deleting and recreating a Service", costs: |point| &point.service_costs },
];

const METHOD: &str = "One control server (SQLite; commits are on disk before the response) and one node \
                      run in network namespaces of one machine. Each Service has one port and the stated \
                      number of endpoints with unique addresses. *First reply*: a Service without \
                      endpoints gets all of its endpoints in one PATCH; a workload behind the node \
                      connects to its virtual address every 0.2 ms and is refused until it receives a \
                      reply. The clock starts before the PATCH is sent. *New Service*: the endpoints \
                      exist, and the Service is created with one POST; nodes with fewer Services run \
                      idle meanwhile.\n\n*Costs*: endpoints are removed and restored, or a Service is \
                      deleted and recreated, at a constant rate, in groups. The value of a group is its \
                      mean (for a Service, of both writes together), net of the resources both processes \
                      use over the same time with a single change; periodic work after any change, such \
                      as the check of all Services every ten seconds ([notes](notes.md)), is therefore \
                      not included. CPU time of the agent includes kernel work on its behalf. A node and \
                      a control server per number of Services run at the same time and are measured in \
                      turn, one group each, so that varying machine speed affects all of them. *Slope*: \
                      slope of a straight line through all groups of all sizes, with its 95 % interval \
                      (Student's t). *Not shown* means that zero is in the interval, which is no \
                      proof of a constant cost: the last column has the upper end of the interval for \
                      50,000 Services, relative to the cost without other Services.\n\n*Guest*: if the kernel of the machine has no IPVS, \
                      that mode is measured on User Mode Linux, with one CPU, slow system calls and \
                      fewer endpoints. Every change is waited for, so that no two are coalesced and all \
                      subsequent work is counted. Messages, bytes and transactions are the same there as \
                      elsewhere; times are not, and are omitted. Idle feed traffic is subtracted in \
                      proportion to time, although the feed sends less of it while changes arrive, so \
                      the longer a change takes there, the fewer bytes are attributed to it.\n";

/// Renders the page of the change benchmark as Markdown.
pub(super) fn page(record: &Record<ChangePoint>) -> String {
    page::head("Latency and cost of a change", "change", "One dot per change")
        + &latencies(record)
        + &costs(record)
        + &slopes(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Renders the SVG plot with one dot per change.
pub(super) fn plot(record: &Record<ChangePoint>) -> String {
    let row = |point: &ChangePoint| PlotRow {
        label: format!("{}, {} Services", point.mode, point.services),
        colour: "#0b6e99",
        figures: point.first_ms.clone(),
        median: point.typical_ms(),
    };
    let rows: Vec<_> = record.points.iter().filter(|point| !point.is_guest).map(row).collect();
    plot::dots("Time from an endpoint write to the first reply through the virtual address", "ms", &rows)
}

fn latencies(record: &Record<ChangePoint>) -> String {
    let mut table = String::from(
        "\n## Latency\n\n| mode | Services | endpoints per Service | changes | write: median | p99 | \
         first reply: median | p99 | new Service: median | p99 \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in record.points.iter().filter(|point| !point.is_guest) {
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} |",
            point.mode,
            point.services,
            point.endpoints,
            point.first_ms.len(),
            cells(&point.write_ms, "ms"),
            cells(&point.first_ms, "ms"),
            cells(&point.service_first_ms, "ms")
        );
    }
    table
}

fn costs(record: &Record<ChangePoint>) -> String {
    let mut text = String::new();
    for Sort { name, costs } in SORTS {
        let _ = writeln!(
            text,
            "\n## Cost of {name}\n\n| mode | Services × endpoints | control | agent | feed | kernel \
             messages | bytes | transactions | memory of control | of the agent \
             |\n|---|---|---|---|---|---|---|---|---|---|"
        );
        for point in &record.points {
            let place = if point.is_guest { ", guest" } else { "" };
            let _ = write!(text, "| {}{place} | {} × {} |", point.mode, point.services, point.endpoints);
            for ChangeCost { unit, is_time, of, .. } in QUANTITIES {
                let shown = median(costs(point), of).filter(|_| !(is_time && point.is_guest));
                let shown = shown.map_or("–".to_owned(), |median| format!("{} {unit}", short(median)));
                let _ = write!(text, " {} |", shown.trim_end());
            }
            let mebibytes = |kib: u64| kib as f64 / 1024.0;
            let _ = writeln!(
                text,
                " {:.1} MiB | {:.1} MiB |",
                mebibytes(point.control_kib),
                mebibytes(point.agent_kib)
            );
        }
    }
    text
}

fn slopes(record: &Record<ChangePoint>) -> String {
    let mut table = String::from(
        "\n## Growth with the number of Services\n\n| mode | component | cost | per additional 1,000 \
         Services | 95 % interval: growth | at 50,000 Services at most |\n|---|---|---|---|---|---|\n",
    );
    for mode in modes(record) {
        for sort in &SORTS {
            for ChangeCost { name, unit, is_time, of } in QUANTITIES {
                let Some(line) = line(record, mode, sort, is_time, of) else { continue };
                let (slope, margin) = (line.slope * 1e3, line.slope_margin * 1e3);
                let word = line.trend();
                let _ = writeln!(
                    table,
                    "| {mode} | {} | {name} | {} | ± {margin:.3}: {word} | {:+.1} % |",
                    sort.name,
                    format!("{slope:.3} {unit}").trim_end(),
                    line.growth_at_most(50_000.0) * 100.0
                );
            }
        }
    }
    table
}

fn verdict(record: &Record<ChangePoint>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    let at_target = |point: &&ChangePoint| point.mode == "nftables" && point.services == TARGET_SERVICES;
    let first =
        record.points.iter().find(at_target).and_then(|point| Summary::of(point.first_ms.iter().copied()));
    if let Some(first) = first {
        let judged = if first.p99 <= TARGET_MS { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "- first reply at {TARGET_SERVICES} Services within {TARGET_MS} ms: {judged} (p99 {:.1} ms)",
            first.p99
        );
    }
    for mode in modes(record) {
        for sort in &SORTS {
            for ChangeCost { name, is_time, of, .. } in QUANTITIES {
                let at = |services: u32| {
                    let is_it =
                        |point: &&ChangePoint| point.services == services && counts(point, mode, is_time);
                    median((sort.costs)(record.points.iter().find(is_it)?), of).filter(|cost| *cost > 0.0)
                };
                let (Some(many), Some(few)) = (at(TARGET_SERVICES), at(100)) else { continue };
                let judged = if many / few <= TARGET_RATIO { "met" } else { "missed" };
                let _ = writeln!(
                    text,
                    "- {mode}, {}: {name} at {TARGET_SERVICES} Services at most {TARGET_RATIO} times \
                     that at 100: {judged} ({:.2})",
                    sort.name,
                    many / few
                );
            }
        }
    }
    text + "\n"
}

fn modes(record: &Record<ChangePoint>) -> Vec<&str> {
    let mut modes: Vec<_> = record.points.iter().map(|point| point.mode.as_str()).collect();
    modes.dedup();
    modes
}

fn median(costs: &[Cost], of: fn(&Cost) -> f64) -> Option<f64> {
    Summary::of(costs.iter().map(of)).map(|summary| summary.median)
}

/// Returns true if a point belongs to a mode and its value is meaningful: times (`is_time`) measured in the
/// guest VM are not.
fn counts(point: &ChangePoint, mode: &str, is_time: bool) -> bool {
    point.mode == mode && !(is_time && point.is_guest)
}

fn line(
    record: &Record<ChangePoint>,
    mode: &str,
    sort: &Sort,
    is_time: bool,
    of: fn(&Cost) -> f64,
) -> Option<Line> {
    let of_mode = record.points.iter().filter(|point| counts(point, mode, is_time));
    let points = of_mode
        .flat_map(|point| (sort.costs)(point).iter().map(|cost| (f64::from(point.services), of(cost))));
    Line::through(&points.collect::<Vec<_>>())
}
