//! Rendering of the page of the fan-out benchmark.

use std::fmt::Write;

use super::measured::{FanoutPoint, ReceiverKind};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, PlotRow},
        record::{Record, Report as _},
    },
    statistics::figures::Summary,
};

/// Number of agents in the design targets. `TARGET_SERVICES` and `TARGET_PER_SECOND` are the numbers of Services
/// and of changes per second.
const TARGET_AGENTS: u16 = 1_000;
const TARGET_SERVICES: u32 = 10_000;
const TARGET_PER_SECOND: u32 = 100;
/// Design target for the 99th percentile of the time in milliseconds from a change until the server has
/// accepted the report of the last agent.
const TARGET_MS: f64 = 1_000.0;
/// Design target: maximum memory of the control server in MiB.
const TARGET_MIB: f64 = 512.0;

const METHOD: &str = "One control server on SQLite (on disk) and all clients run in one network \
                      namespace of one machine, without TLS. Changes are PATCHes of the endpoints of one \
                      Service after another, each sent at its scheduled time, independent of earlier \
                      responses; the clock of a change starts with its request. *Agents* are simulated, \
                      500 per process. Each has a connection for its compressed feed and one for its \
                      reports, applies a batch as soon as its `synced` arrives, and reports at once, one \
                      report at a time, so that a delayed report covers everything since; it also \
                      reports every five seconds. They program no kernel, check no endpoints and count \
                      no traffic. A change has reached an agent when control has responded to a report \
                      of it. *Watchers* follow `GET /v1/watch?kinds=EndpointSet`. *Deliveries* are \
                      reports or events with progress. *The baseline sender* writes, for each change, as \
                      many bytes as the feed has for it to the same number of sockets, without any \
                      processing; its time ends when the last socket has received them. CPU time is that \
                      of the server with all threads. *Mass reconnect*: all connections are closed at \
                      once, a change is made, and all clients reconnect after 100 to 200 ms; the time \
                      ends when the last one has the change.\n";

/// Renders the page of the fan-out benchmark as Markdown.
pub(super) fn page(record: &Record<FanoutPoint>) -> String {
    page::head("Fan-out of a change", "fanout", "One dot per change")
        + &times(record)
        + &costs(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Renders the SVG plot with one dot per change.
pub(super) fn plot(record: &Record<FanoutPoint>) -> String {
    let row = |point: &FanoutPoint| PlotRow {
        label: format!("{} {}", point.count, point.told.word()),
        colour: if point.told == ReceiverKind::Sockets { "#b3541e" } else { "#0b6e99" },
        figures: point.last_ms.clone(),
        median: Summary::of(point.last_ms.iter().copied()).map(|summary| summary.median),
    };
    plot::dots(
        "Time from a change until the last receiver has it",
        "ms",
        &record.points.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Formats the progress line of one point.
pub(super) fn line(point: &FanoutPoint) -> String {
    let of = |figures: &[f64]| median(figures).map_or("–".to_owned(), short);
    let (last, p99) = summary_of(&point.last_ms);
    format!(
        "{:>5} {:<26} last {last} ms (p99 {p99}), server {} µs per change and {} µs per delivery, peak \
         {} MiB, mass reconnect {} ms",
        point.count,
        point.told.word(),
        of(&point.server_us_per_change),
        of(&point.server_us_per_delivery),
        mebibytes(&point.peak_kib),
        of(&point.herd_ms)
    )
}

fn times(record: &Record<FanoutPoint>) -> String {
    let mut table = String::from(
        "\n| receivers | count | Services | changes/s | changes | until the last has it: median | p99 | \
         until each has it: median | p99 | response to the request: median \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        let each = |of: fn(&Summary) -> f64| {
            median(&point.each_ms.iter().map(of).collect::<Vec<_>>()).map_or("–".to_owned(), short)
        };
        let answer = median(&point.answer_ms.iter().map(|one| one.median).collect::<Vec<_>>());
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} ms | {} ms | {} |",
            point.told.word(),
            point.count,
            point.services,
            point.per_second,
            point.last_ms.len(),
            cells(&point.last_ms, "ms"),
            each(|one| one.median),
            each(|one| one.p99),
            answer
                .filter(|_| point.told != ReceiverKind::Sockets)
                .map_or("–".to_owned(), |ms| format!("{} ms", short(ms)))
        );
    }
    table
}

fn costs(record: &Record<FanoutPoint>) -> String {
    let mut table = String::from(
        "\n| receivers | count | deliveries per second | server: µs per change | µs per delivery | bytes \
         per change and receiver | memory | peak | mass reconnect | peak during it \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in record.points.iter().filter(|point| point.told != ReceiverKind::Sockets) {
        let of = |figures: &[f64]| median(figures).map_or("–".to_owned(), short);
        let rounds = point.deliveries.len().max(1) as f64;
        let seconds = point.last_ms.len() as f64 / rounds / f64::from(point.per_second);
        let per_second: Vec<f64> = point.deliveries.iter().map(|count| *count as f64 / seconds).collect();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} MiB | {} MiB | {} ms | {} MiB |",
            point.told.word(),
            point.count,
            of(&per_second),
            of(&point.server_us_per_change),
            of(&point.server_us_per_delivery),
            of(&point.bytes_per_change),
            mebibytes(&point.resident_kib),
            mebibytes(&point.peak_kib),
            of(&point.herd_ms),
            mebibytes(&point.herd_peak_kib)
        );
    }
    table
}

fn verdict(record: &Record<FanoutPoint>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    let is_asked = |point: &&FanoutPoint| {
        point.told == ReceiverKind::Agents
            && (point.count, point.services, point.per_second)
                == (TARGET_AGENTS, TARGET_SERVICES, TARGET_PER_SECOND)
    };
    let Some(point) = record.points.iter().find(is_asked) else {
        return text + "None: not measured at the size of the target.\n\n";
    };
    let judged = |is_met: bool| if is_met { "met" } else { "missed" };
    if let Some(summary) = Summary::of(point.last_ms.iter().copied()) {
        let _ = writeln!(
            text,
            "- {TARGET_AGENTS} agents, {TARGET_SERVICES} Services, {TARGET_PER_SECOND} changes per \
             second, until the last agent has it: 99 of 100 within {TARGET_MS} ms: {} ({} ms)",
            judged(summary.p99 <= TARGET_MS && point.lost == 0),
            short(summary.p99)
        );
    }
    let peaks = point.peak_kib.iter().chain(&point.herd_peak_kib).map(|kib| *kib as f64 / 1024.0);
    if let Some(summary) = Summary::of(peaks) {
        let _ = writeln!(
            text,
            "- memory of the control server, including a mass reconnect: at most {TARGET_MIB} MiB: {} \
             ({} MiB)",
            judged(summary.max <= TARGET_MIB),
            short(summary.max)
        );
    }
    text + "\n"
}

fn median(figures: &[f64]) -> Option<f64> {
    Summary::of(figures.iter().copied()).map(|summary| summary.median)
}

fn summary_of(figures: &[f64]) -> (String, String) {
    match Summary::of(figures.iter().copied()) {
        Some(summary) => (short(summary.median), short(summary.p99)),
        None => ("–".to_owned(), "–".to_owned()),
    }
}

fn mebibytes(kib: &[u64]) -> String {
    let largest = kib.iter().max().map(|kib| *kib as f64 / 1024.0);
    largest.map_or("–".to_owned(), short)
}
