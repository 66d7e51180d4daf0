//! The page of a run: tables, the fits, and a plot.

use std::fmt::Write;

use super::measured::{Cost, Point};
use crate::{
    figures::Summary,
    fit::Line,
    page::{self, cells, short},
    plot::{self, Row},
    record::Record,
};

/// What the design demands of the time from a write to the first answer, at so many Services, in nftables mode.
const TARGET_MS: f64 = 20.0;
const TARGET_SERVICES: u32 = 10_000;
/// What it allows a change at 10,000 Services to cost over one at 100.
const TARGET_RATIO: f64 = 1.2;

type Of = fn(&Cost) -> f64;

const QUANTITIES: [(&str, &str, Of); 4] = [
    ("processor time of control", "µs", |cost| cost.control_us),
    ("processor time of the agent", "µs", |cost| cost.agent_us),
    ("bytes of the feed", "bytes", |cost| cost.feed_bytes),
    ("messages to the kernel", "messages", |cost| cost.kernel_messages),
];

const METHOD: &str = "\
One control server (SQLite, a commit is on disk before it is answered) and one node, in network namespaces of one machine. All Services have
one port and the stated number of endpoints, each with an address of its own. *First answer*: a Service without endpoints gets all of its
endpoints by one PATCH; a workload behind the node connects to its virtual address every 0.2 ms and is refused until it reads an answer. The
clock starts before the PATCH is sent.

*Costs*: one endpoint of a Service is taken away or given back, at a steady pace, in groups; the figure of a group is its mean, less what both
processes use in the same time without changes. *Slope*: of a straight line through all groups of all sizes, with its 95 % interval
(Student's t): a cost that follows the change has a slope that cannot be told from zero.
";

/// The page.
pub(super) fn page(record: &Record<Point>) -> String {
    page::head("What a change of endpoints takes and costs", "change", "Every change as a dot")
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
    let rows: Vec<_> = record.points.iter().map(row).collect();
    plot::dots("From the write of endpoints to the first answer through the virtual address", "ms", &rows)
}

fn latencies(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Latency\n\n| mode | Services | endpoints of each | changes | write: median | p99 | first answer: median | p99 |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        // Writing to a String cannot fail; so everywhere here.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} |",
            point.mode,
            point.services,
            point.endpoints,
            point.first_ms.len(),
            cells(&point.write_ms, "ms"),
            cells(&point.first_ms, "ms")
        );
    }
    table
}

fn costs(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Cost of one change\n\n| mode | Services | control | agent | feed | kernel | memory of control | of the agent |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        let _ = write!(table, "| {} | {} |", point.mode, point.services);
        for (_, unit, of) in QUANTITIES {
            let median =
                Summary::of(point.costs.iter().map(of)).map_or("–".to_owned(), |all| short(all.median));
            let _ = write!(table, " {median} {unit} |");
        }
        let mebibytes = |kib: u64| kib as f64 / 1024.0;
        let _ = writeln!(
            table,
            " {:.1} MiB | {:.1} MiB |",
            mebibytes(point.control_kib),
            mebibytes(point.agent_kib)
        );
    }
    table
}

fn slopes(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Does it grow with the Services?\n\n| mode | cost | per 1,000 Services more | 95 % interval | \n|---|---|---|---|\n",
    );
    for mode in modes(record) {
        for (name, unit, of) in QUANTITIES {
            let Some(line) = line(record, mode, of) else { continue };
            let (slope, margin) = (line.slope * 1e3, line.slope_margin * 1e3);
            let word = if line.grows() { "grows" } else { "flat" };
            let _ = writeln!(table, "| {mode} | {name} | {slope:.3} {unit} | ± {margin:.3}: {word} |");
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
        for (name, _, of) in &QUANTITIES[..2] {
            let median = |services: u32| {
                let of_size = |point: &&Point| point.mode == mode && point.services == services;
                let point = record.points.iter().find(of_size)?;
                Summary::of(point.costs.iter().map(of)).map(|summary| summary.median)
            };
            if let (Some(many), Some(few)) = (median(TARGET_SERVICES), median(100)) {
                let judged = if many / few <= TARGET_RATIO { "met" } else { "missed" };
                let _ = writeln!(
                    text,
                    "- {mode}: {name} at {TARGET_SERVICES} over that at 100 Services at most {TARGET_RATIO}: {judged} ({:.2})",
                    many / few
                );
            }
        }
    }
    text + "\n"
}

fn modes(record: &Record<Point>) -> Vec<&'static str> {
    let mut modes: Vec<_> = record.points.iter().map(|point| point.mode).collect();
    modes.dedup();
    modes
}

fn line(record: &Record<Point>, mode: &str, of: Of) -> Option<Line> {
    let of_mode = record.points.iter().filter(|point| point.mode == mode);
    let points =
        of_mode.flat_map(|point| point.costs.iter().map(|cost| (f64::from(point.services), of(cost))));
    Line::through(&points.collect::<Vec<_>>())
}
