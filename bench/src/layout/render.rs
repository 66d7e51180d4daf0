//! The page of a run.

use std::fmt::Write;

use super::{
    Layout,
    measured::{CHANGES, Point, median},
};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, Row},
        record::{Record, Report as _},
    },
    statistics::fit::Line,
};

const METHOD: &str = "\
A control server and a node, in network namespaces of this machine, have the Services. What the node's agent has put into the kernel is
saved by `nft list table`; so is what it makes of a Service that comes, of one endpoint that becomes another one, and of the Service that
goes: the difference of two listings, as `add element` and `delete element`. *Service-chains* and *endpoint-chains* are written for this
benchmark, with the same Services, addresses and endpoints, in the layout of kube-proxy's nftables mode: a map from addresses to a chain for
each Service, in which a random number is looked up in an anonymous map; of endpoints in service-chains, of a chain for each endpoint in
endpoint-chains, which older versions of kube-proxy have. They have the chains through which every packet passes there, and leave out what
would only cost more: no second address family, no Service with more than one address, shorter names. No endpoint is on the node, in all of
them: one that is, or that could be, takes one element more. Ours counts the connections of every endpoint, by a counter in its element;
theirs counts nothing.

Every layout is loaded on a node of its own, by turns, with `nft -f` for all of them; the agent itself speaks with the kernel directly,
without that tool, so that only the kernel's part of the processor time is also the agent's. *Load* is the whole ruleset in one transaction
into an empty kernel; before each load the last one is removed and the kernel has freed it. *Processor time* is that of the process, in the
tool and in the kernel; what the kernel does afterwards by itself, such as freeing, is not in it. *Nothing* is a run of `nft` with an empty
text: the least that any change can take. Before a transaction the tool asks the kernel for the chains and sets that there are, which is
part of what a change takes, as it is for whoever uses that tool. *Messages* and *bytes* are those of the transaction. Chains that a change
leaves empty are removed in a later transaction, as kube-proxy does; that one is not counted. *Memory* is what the kernel charges to the
process that loads, a moment after its end (kernel memory of a control group); what the kernel does not charge to anyone is not in it.

A new connection is made by a workload behind the node, sends a byte, and gets one from the backend, which has the addresses of all
endpoints. *Latency* is from the call that connects to that byte, one connection after the other: the median of the rounds' medians, and of
their 99th percentiles. *Connections per second* are those of many clients at once; clients, node and backend share the processors. That
changes do what they are for is proven at every size: the added Service answers before and after its change, and at small sizes the listing
in the end is the one in the beginning.
";

/// The page.
pub(super) fn page(record: &Record<Point>) -> String {
    page::head("The layout of the ruleset", "layout", "Every load and every change as a dot")
        + &loads(record)
        + &changes(record)
        + &slopes(record)
        + &connections(record)
        + &ratios(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + &left_out(record)
        + "\n## How\n\n"
        + METHOD
}

/// Processor time of every load and of every Service that was added, as dots.
pub(super) fn plot(record: &Record<Point>) -> String {
    let mut rows = Vec::new();
    for point in &record.points {
        let colour = match point.layout {
            Layout::Tidegate => "#0b6e99",
            Layout::ServiceChains => "#b3541e",
            Layout::EndpointChains => "#7a7a7a",
        };
        for (what, costs) in [("load", &point.load), ("add", &point.add.costs)] {
            rows.push(Row {
                label: format!("{}, {}: {what}", point.layout.name(), point.services),
                colour,
                figures: costs.processor_ms.clone(),
                median: median(&costs.processor_ms),
            });
        }
    }
    plot::dots("Processor time of loading the whole, and of adding a Service", "ms", &rows)
}

fn loads(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Loading the whole\n\n| Services × endpoints | layout | loads | time | processor time | of it in the kernel | kernel memory | text |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        // Writing to a String cannot fail; so everywhere here.
        let _ = writeln!(
            table,
            "| {} × {} | {} | {} | {} | {} | {} | {} | {} MiB |",
            point.services,
            point.endpoints,
            point.layout.name(),
            point.load.wall_ms.len(),
            with_unit(median(&point.load.wall_ms), "ms"),
            with_unit(median(&point.load.processor_ms), "ms"),
            with_unit(median(&point.load.system_ms), "ms"),
            with_unit(median(&memory_mib(point)), "MiB"),
            short(point.text_bytes as f64 / 1024.0 / 1024.0)
        );
    }
    table
}

fn changes(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Changing a Service\n\n| Services | layout | change | time | p99 | processor time | p99 | messages | bytes |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        let _ = writeln!(
            table,
            "| {} | {} | nothing | {} | {} | – | – |",
            point.services,
            point.layout.name(),
            cells(&point.nothing.wall_ms, "ms"),
            cells(&point.nothing.processor_ms, "ms")
        );
        for (name, change) in point.changes() {
            let _ = writeln!(
                table,
                "| {} | {} | {name} | {} | {} | {} | {} |",
                point.services,
                point.layout.name(),
                cells(&change.costs.wall_ms, "ms"),
                cells(&change.costs.processor_ms, "ms"),
                change.messages,
                change.bytes
            );
        }
    }
    table
}

fn slopes(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## Does a change grow with the Services?\n\n| layout | processor time to | per 1,000 Services more | 95 % interval |\n|---|---|---|---|\n",
    );
    for layout in Layout::ALL {
        let points: Vec<_> = record.points.iter().filter(|point| point.layout == layout).collect();
        for name in CHANGES {
            let of_point = |point: &&Point| {
                let named = point.changes().into_iter().filter(|(change, _)| *change == name);
                let figures = named.flat_map(|(_, change)| change.costs.processor_ms.clone());
                let services = f64::from(point.services);
                figures.map(|ms| (services, ms)).collect::<Vec<_>>()
            };
            let figures: Vec<_> = points.iter().flat_map(of_point).collect();
            let Some(line) = Line::through(&figures) else { continue };
            let (slope, margin) = (line.slope * 1e3, line.slope_margin * 1e3);
            let word = line.trend();
            let _ = writeln!(table, "| {} | {name} | {slope:.3} ms | ± {margin:.3}: {word} |", layout.name());
        }
    }
    table
}

fn connections(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n## A new connection\n\n| Services | layout | first Service | p99 | middle | p99 | last | p99 | connections/s | failed |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        let _ = write!(table, "| {} | {} |", point.services, point.layout.name());
        for place in &point.connect_us {
            let of = |of: fn(&crate::statistics::figures::Summary) -> f64| {
                place.iter().map(of).collect::<Vec<_>>()
            };
            let (medians, p99s) = (of(|summary| summary.median), of(|summary| summary.p99));
            let _ = write!(
                table,
                " {} | {} |",
                with_unit(median(&medians), "µs"),
                with_unit(median(&p99s), "µs")
            );
        }
        let per_second = median(&point.per_second).map_or("–".to_owned(), short);
        let _ = writeln!(table, " {per_second} | {} |", point.failed);
    }
    table
}

/// What is compared: its name, and the figures of a point, by round; less is better in all of them.
type Quantity = (&'static str, fn(&Point) -> Vec<f64>);

const QUANTITIES: [Quantity; 10] = [
    ("load, time", |point| point.load.wall_ms.clone()),
    ("load, processor", |point| point.load.processor_ms.clone()),
    ("load, kernel", |point| point.load.system_ms.clone()),
    ("memory", memory_mib),
    ("add, time", |point| point.add.costs.wall_ms.clone()),
    ("add, processor", |point| point.add.costs.processor_ms.clone()),
    ("add, bytes", |point| vec![point.add.bytes as f64]),
    ("replace, processor", |point| point.replace.costs.processor_ms.clone()),
    ("replace, bytes", |point| vec![point.replace.bytes as f64]),
    ("time for a connection", |point| point.per_second.iter().map(|rate| 1.0 / rate).collect()),
];

fn ratios(record: &Record<Point>) -> String {
    let names = QUANTITIES.map(|(name, _)| name).join(" | ");
    let mut table = format!(
        "\n## Ours over theirs\n\nWithin a round, the median of the rounds; below 1 is where ours costs less.\n\n| Services | beside | {names} |\n|---|---|{}\n",
        "---|".repeat(QUANTITIES.len())
    );
    for (ours, theirs) in pairs(record) {
        let _ = write!(table, "| {} | {} |", theirs.services, theirs.layout.name());
        for (_, of) in QUANTITIES {
            let ratio = ratio(&of(ours), &of(theirs)).map_or("–".to_owned(), |ratio| format!("{ratio:.3}"));
            let _ = write!(table, " {ratio} |");
        }
        table.push('\n');
    }
    table
}

fn verdict(record: &Record<Point>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    let mut lines = String::new();
    for (ours, theirs) in pairs(record) {
        for (name, of) in QUANTITIES {
            let Some(ratio) = ratio(&of(ours), &of(theirs)).filter(|&ratio| ratio > TOLD_FROM) else {
                continue;
            };
            let (services, peer) = (theirs.services, theirs.layout.name());
            let _ = writeln!(lines, "- {name}, at {services} Services: {ratio:.2} times {peer}");
        }
    }
    let said = if lines.is_empty() { "Ours costs more nowhere.\n" } else { "Ours costs more in these:\n\n" };
    text + said + &lines + "\n"
}

/// Ratios nearer to 1 are no difference.
const TOLD_FROM: f64 = 1.05;

/// Ours and another layout at the same size.
fn pairs(record: &Record<Point>) -> impl Iterator<Item = (&Point, &Point)> {
    let points = &record.points;
    let peers = points.iter().filter(|point| point.layout != Layout::Tidegate);
    peers.filter_map(|peer| {
        let is_ours = |point: &&Point| point.layout == Layout::Tidegate && point.services == peer.services;
        Some((points.iter().find(is_ours)?, peer))
    })
}

/// The median of the ratios within rounds; of the medians, where one had more rounds than the other.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    if ours.len() == theirs.len() {
        return median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>());
    }
    Some(median(ours)? / median(theirs)?)
}

fn left_out(record: &Record<Point>) -> String {
    let mut text = String::new();
    for point in &record.points {
        if let Some(why) = &point.gave_up {
            let _ = writeln!(text, "- {} is left out at larger sizes: {why}", point.layout.name());
        }
    }
    if record.points.iter().all(|point| point.kernel_kib.is_empty()) {
        text += "- kernel memory is left out: there is no control group that counts it\n";
    }
    text
}

fn memory_mib(point: &Point) -> Vec<f64> {
    point.kernel_kib.iter().map(|&kib| kib as f64 / 1024.0).collect()
}

fn with_unit(figure: Option<f64>, unit: &str) -> String {
    figure.map_or("–".to_owned(), |figure| format!("{} {unit}", short(figure)))
}
