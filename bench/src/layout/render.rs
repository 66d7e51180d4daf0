//! Rendering of the page of the layout benchmark.

use std::fmt::Write;

use super::{
    Layout,
    measured::{CHANGES, LayoutPoint, median},
};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, PlotRow},
        record::{Record, Report as _},
    },
    statistics::fit::Line,
};

const METHOD: &str = "A control server and a node, in network namespaces of this machine, have the \
                      Services. The rules that the agent of the node has put into the kernel are saved \
                      with `nft list table`, as are those after a Service is added, after one of its \
                      endpoints is replaced, and after the Service is removed; the changes are the \
                      differences of two listings as `add element` and `delete element`. \
                      *Service-chains* and *endpoint-chains* are written for this benchmark, with the \
                      same Services, addresses and endpoints, in the layout of kube-proxy's nftables \
                      mode: a map from addresses to a chain per Service, in which a random number is \
                      looked up in an anonymous map; of endpoints in service-chains, of a chain per \
                      endpoint in endpoint-chains, as in older versions of kube-proxy. They have the \
                      chains that every packet passes there, and omit everything that would only add \
                      cost: no second address family, no Service with more than one address, shorter \
                      names. No endpoint is on the node in any layout; one that is, or could be, needs \
                      one more element. Our layout counts the connections of each endpoint with a \
                      counter in its element; theirs count nothing.\n\nEach layout is loaded on a \
                      separate node, in turn, always with `nft -f`. The agent itself uses netlink \
                      directly instead of that tool, so only the kernel share of the CPU time also \
                      applies to the agent. *Load* is the full ruleset in one transaction into an empty \
                      kernel; before each load, the previous ruleset is removed and its kernel memory \
                      has been freed. *CPU time* is that of the process, in the tool and in the kernel; \
                      asynchronous kernel work such as freeing memory is not included. *Nothing* is a \
                      run of `nft` with an empty input: the minimum of any change. Before a transaction \
                      the tool reads the existing chains and sets from the kernel, which is part of the \
                      cost of a change with that tool. *Messages* and *bytes* are those of the \
                      transaction. Chains left empty by a change are removed in a later transaction, as \
                      in kube-proxy, which is not counted. *Memory* is the kernel memory charged to the \
                      loading process shortly after its end (kernel memory of a control group); \
                      uncharged memory is not included.\n\nA new connection is opened by a workload \
                      behind the node, sends a byte, and receives one from the backend, which has the \
                      addresses of all endpoints. *Latency* is the time from the connect call to that \
                      byte, in a closed loop: the median of the rounds' medians and of their 99th \
                      percentiles. *Connections per second* are those of many concurrent clients; \
                      clients, node and backend share the CPUs. The effect of the changes is checked at \
                      every size: the added Service responds before and after its change, and at small \
                      sizes the final listing equals the initial one.\n";

/// Renders the page of the layout benchmark as Markdown.
pub(super) fn page(record: &Record<LayoutPoint>) -> String {
    page::head("Layout of the ruleset", "layout", "One dot per load and per change")
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

/// Renders the SVG plot of CPU times, with one dot per load and per added Service.
pub(super) fn plot(record: &Record<LayoutPoint>) -> String {
    let mut rows = Vec::new();
    for point in &record.points {
        let colour = match point.layout {
            Layout::Tidegate => "#0b6e99",
            Layout::ServiceChains => "#b3541e",
            Layout::EndpointChains => "#7a7a7a",
        };
        for (what, costs) in [("load", &point.load), ("add", &point.add.costs)] {
            rows.push(PlotRow {
                label: format!("{}, {}: {what}", point.layout.name(), point.services),
                colour,
                figures: costs.processor_ms.clone(),
                median: median(&costs.processor_ms),
            });
        }
    }
    plot::dots("CPU time of loading the full ruleset, and of adding a Service", "ms", &rows)
}

fn loads(record: &Record<LayoutPoint>) -> String {
    let mut table = String::from(
        "\n## Loading the full ruleset\n\n| Services × endpoints | layout | loads | time | CPU time | of \
         which kernel | kernel memory | text |\n|---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        // Writing to a String cannot fail; the same applies below.
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

fn changes(record: &Record<LayoutPoint>) -> String {
    let mut table = String::from(
        "\n## Changing a Service\n\n| Services | layout | change | time | p99 | CPU time | p99 | \
         messages | bytes |\n|---|---|---|---|---|---|---|---|---|\n",
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

fn slopes(record: &Record<LayoutPoint>) -> String {
    let mut table = String::from(
        "\n## Growth of a change with the number of Services\n\n| layout | CPU time to | per additional \
         1,000 Services | 95 % interval |\n|---|---|---|---|\n",
    );
    for layout in Layout::ALL {
        let points: Vec<_> = record.points.iter().filter(|point| point.layout == layout).collect();
        for name in CHANGES {
            let of_point = |point: &&LayoutPoint| {
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

fn connections(record: &Record<LayoutPoint>) -> String {
    let mut table = String::from(
        "\n## New connections\n\n| Services | layout | first Service | p99 | middle | p99 | last | p99 | \
         connections/s | failed |\n|---|---|---|---|---|---|---|---|---|---|\n",
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

/// Compared cost: name, and values by round. Lower values are better.
type LayoutCost = (&'static str, fn(&LayoutPoint) -> Vec<f64>);

const QUANTITIES: [LayoutCost; 10] = [
    ("load, time", |point| point.load.wall_ms.clone()),
    ("load, processor", |point| point.load.processor_ms.clone()),
    ("load, kernel", |point| point.load.system_ms.clone()),
    ("memory", memory_mib),
    ("add, time", |point| point.add.costs.wall_ms.clone()),
    ("add, processor", |point| point.add.costs.processor_ms.clone()),
    ("add, bytes", |point| vec![point.add.bytes as f64]),
    ("replace, processor", |point| point.replace.costs.processor_ms.clone()),
    ("replace, bytes", |point| vec![point.replace.bytes as f64]),
    ("time per connection", |point| point.per_second.iter().map(|rate| 1.0 / rate).collect()),
];

fn ratios(record: &Record<LayoutPoint>) -> String {
    let names = QUANTITIES.map(|(name, _)| name).join(" | ");
    let mut table = format!(
        "\n## Ratio of our layout to the others\n\nMedian over the rounds of the ratios within a round; \
         below 1, our layout costs less.\n\n| Services | compared with | {names} |\n|---|---|{}\n",
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

fn verdict(record: &Record<LayoutPoint>) -> String {
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
    let said = if lines.is_empty() {
        "Our layout costs more in no quantity.\n"
    } else {
        "Our layout costs more in \
                                                                            these quantities:\n\n"
    };
    text + said + &lines + "\n"
}

/// Minimum ratio of two medians that the page reports as a difference.
const TOLD_FROM: f64 = 1.05;

/// Pairs Tidegate's layout with each other layout at the same size.
fn pairs(record: &Record<LayoutPoint>) -> impl Iterator<Item = (&LayoutPoint, &LayoutPoint)> {
    let points = &record.points;
    let peers = points.iter().filter(|point| point.layout != Layout::Tidegate);
    peers.filter_map(|peer| {
        let is_ours =
            |point: &&LayoutPoint| point.layout == Layout::Tidegate && point.services == peer.services;
        Some((points.iter().find(is_ours)?, peer))
    })
}

/// Returns the median of `ours / theirs` over the rounds, or the ratio of the medians if the numbers of
/// rounds differ; `None` without values.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<f64> {
    if ours.len() == theirs.len() {
        return median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>());
    }
    Some(median(ours)? / median(theirs)?)
}

fn left_out(record: &Record<LayoutPoint>) -> String {
    let mut text = String::new();
    for point in &record.points {
        if let Some(why) = &point.gave_up {
            let _ = writeln!(text, "- {} is not measured at larger sizes: {why}", point.layout.name());
        }
    }
    if record.points.iter().all(|point| point.kernel_kib.is_empty()) {
        text += "- kernel memory is not available: no control group accounts for it\n";
    }
    text
}

fn memory_mib(point: &LayoutPoint) -> Vec<f64> {
    point.kernel_kib.iter().map(|&kib| kib as f64 / 1024.0).collect()
}

fn with_unit(figure: Option<f64>, unit: &str) -> String {
    figure.map_or("–".to_owned(), |figure| format!("{} {unit}", short(figure)))
}
