//! The page of a run: tables, the fits, and a plot.

use std::fmt::Write;

use super::measured::{Cost, Point};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, Row},
        record::{Record, Report as _},
    },
    statistics::{figures::Summary, fit::Line},
};

/// What the design demands of the time from a write to the first answer, at so many Services, in nftables mode.
const TARGET_MS: f64 = 20.0;
const TARGET_SERVICES: u32 = 10_000;
/// What it allows a change at 10,000 Services to cost over one at 100.
const TARGET_RATIO: f64 = 1.2;

/// A quantity of a cost.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// Whether it is a time, which says little on the second kernel.
    is_time: bool,
    of: fn(&Cost) -> f64,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { name: "processor time of control", unit: "µs", is_time: true, of: |cost| cost.control_us },
    Quantity { name: "processor time of the agent", unit: "µs", is_time: true, of: |cost| cost.agent_us },
    Quantity { name: "bytes of the feed", unit: "bytes", is_time: false, of: |cost| cost.feed_bytes },
    Quantity {
        name: "messages to the kernel",
        unit: "messages",
        is_time: false,
        of: |cost| cost.kernel_messages,
    },
    Quantity { name: "bytes to the kernel", unit: "bytes", is_time: false, of: |cost| cost.kernel_bytes },
    Quantity { name: "transactions", unit: "", is_time: false, of: |cost| cost.kernel_transactions },
];

/// What is changed.
struct Sort {
    /// As a sentence begins.
    name: &'static str,
    costs: fn(&Point) -> &[Cost],
}

const SORTS: [Sort; 2] = [
    Sort { name: "a change of endpoints", costs: |point| &point.costs },
    Sort { name: "a Service that comes and goes", costs: |point| &point.service_costs },
];

const METHOD: &str = "\
One control server (SQLite, a commit is on disk before it is answered) and one node, in network namespaces of one machine. All Services have
one port and the stated number of endpoints, each with an address of its own. *First answer*: a Service without endpoints gets all of its
endpoints by one PATCH; a workload behind the node connects to its virtual address every 0.2 ms and is refused until it reads an answer. The
clock starts before the PATCH is sent. *Of a new Service*: its endpoints are there, and it is created by one POST. That is measured while
nodes with fewer Services are there and idle.

*Costs*: one endpoint of a Service is taken away or given back, or a Service is deleted and created again, at a steady pace, in groups; the
figure of a group is its mean (of the two writes together, of a Service), less what both processes use in the same time with a single one:
what comes by time when anything has changed, such as the look at all Services every ten seconds ([notes](notes.md)), is no part of it. The
time of the agent has in it what the kernel does for it. A node and a control server for each number of Services are there at the same time,
and have a group each by turns, so that a machine that is slower for a while is so for all. *Slope*: of a straight line through all groups of all sizes, with its 95 % interval
(Student's t): a cost that follows the change has a slope that cannot be told from zero.

*In the guest*: on a machine whose kernel has no IPVS, that mode is measured on User Mode Linux, with one processor, slow system calls and
fewer endpoints. Every change is waited for, so that no two are carried out as one and all that follows is counted. Messages, bytes and
transactions are the same there as anywhere; times are not, and are left out. What the feed says when nothing happens is taken off by time,
although it says less while something happens: the longer a change takes there, the fewer bytes it seems to have.
";

/// The page.
pub(super) fn page(record: &Record<Point>) -> String {
    page::head("What a change takes and costs", "change", "Every change as a dot")
        + &latencies(record)
        + &costs(record)
        + &slopes(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Every change as a dot.
pub(super) fn plot(record: &Record<Point>) -> String {
    let row = |point: &Point| Row {
        label: format!("{}, {} Services", point.mode, point.services),
        colour: "#0b6e99",
        figures: point.first_ms.clone(),
        median: point.typical_ms(),
    };
    let rows: Vec<_> = record.points.iter().filter(|point| !point.is_guest).map(row).collect();
    plot::dots("From the write of endpoints to the first answer through the virtual address", "ms", &rows)
}

fn latencies(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Latency\n\n| mode | Services | endpoints of each | changes | write: median | p99 | first answer: median | p99 \
         | of a new Service: median | p99 |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in record.points.iter().filter(|point| !point.is_guest) {
        // Writing to a String cannot fail; so everywhere here.
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

fn costs(record: &Record<Point>) -> String {
    let mut text = String::new();
    for Sort { name, costs } in SORTS {
        let _ = writeln!(
            text,
            "\n## Cost of {name}\n\n| mode | Services × endpoints | control | agent | feed | messages to the kernel | bytes | transactions \
             | memory of control | of the agent |\n|---|---|---|---|---|---|---|---|---|---|"
        );
        for point in &record.points {
            let place = if point.is_guest { ", in the guest" } else { "" };
            let _ = write!(text, "| {}{place} | {} × {} |", point.mode, point.services, point.endpoints);
            for Quantity { unit, is_time, of, .. } in QUANTITIES {
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

fn slopes(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Does it grow with the Services?\n\n| mode | what | cost | per 1,000 Services more | 95 % interval | \n|---|---|---|---|---|\n",
    );
    for mode in modes(record) {
        for sort in &SORTS {
            for Quantity { name, unit, is_time, of } in QUANTITIES {
                let Some(line) = line(record, mode, sort, is_time, of) else { continue };
                let (slope, margin) = (line.slope * 1e3, line.slope_margin * 1e3);
                let word = line.trend();
                let _ = writeln!(
                    table,
                    "| {mode} | {} | {name} | {} | ± {margin:.3}: {word} |",
                    sort.name,
                    format!("{slope:.3} {unit}").trim_end()
                );
            }
        }
    }
    table
}

fn verdict(record: &Record<Point>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    let at_target = |point: &&Point| point.mode == "nftables" && point.services == TARGET_SERVICES;
    let first =
        record.points.iter().find(at_target).and_then(|point| Summary::of(point.first_ms.iter().copied()));
    if let Some(first) = first {
        let judged = if first.p99 <= TARGET_MS { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "- first answer at {TARGET_SERVICES} Services within {TARGET_MS} ms: {judged} (p99 {:.1} ms)",
            first.p99
        );
    }
    for mode in modes(record) {
        for sort in &SORTS {
            for Quantity { name, is_time, of, .. } in QUANTITIES {
                let at = |services: u32| {
                    let is_it = |point: &&Point| point.services == services && counts(point, mode, is_time);
                    median((sort.costs)(record.points.iter().find(is_it)?), of).filter(|cost| *cost > 0.0)
                };
                let (Some(many), Some(few)) = (at(TARGET_SERVICES), at(100)) else { continue };
                let judged = if many / few <= TARGET_RATIO { "met" } else { "missed" };
                let _ = writeln!(
                    text,
                    "- {mode}, {}: {name} at {TARGET_SERVICES} over that at 100 Services at most {TARGET_RATIO}: {judged} ({:.2})",
                    sort.name,
                    many / few
                );
            }
        }
    }
    text + "\n"
}

fn modes(record: &Record<Point>) -> Vec<&str> {
    let mut modes: Vec<_> = record.points.iter().map(|point| point.mode.as_str()).collect();
    modes.dedup();
    modes
}

fn median(costs: &[Cost], of: fn(&Cost) -> f64) -> Option<f64> {
    Summary::of(costs.iter().map(of)).map(|summary| summary.median)
}

/// Whether a quantity of a point says something about a mode.
fn counts(point: &Point, mode: &str, is_time: bool) -> bool {
    point.mode == mode && !(is_time && point.is_guest)
}

fn line(
    record: &Record<Point>,
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
