//! Rendering of the page of the write benchmark.

use std::fmt::Write;

use super::measured::{WritesPoint, WritesStore};
use crate::{
    pages::{
        page::{self, short},
        plot::{self, PlotRow},
        record::{Record, Report as _},
    },
    statistics::figures::Summary,
};

/// Design targets by store, in objects per second of clients that batch writes.
const TARGETS: [(WritesStore, f64); 2] = [(WritesStore::Sqlite, 5_000.0), (WritesStore::Etcd, 2_000.0)];

const METHOD: &str = "A control server per store runs on one machine in separate network namespaces, \
                      with 500 Services of ten endpoints and no agents. Clients replace the ten \
                      endpoints of an EndpointSet, each in a closed loop over its own connection. A \
                      request with several objects is one POST to `/v1/apply`; a single object is a \
                      PATCH. The response implies that the write is on disk. *Disk alone*: a single \
                      process writes 4 KiB and calls `fdatasync` in a loop. All contestants are measured \
                      in turn in the same run.\n";

/// Renders the page of the write benchmark as Markdown.
pub(super) fn page(record: &Record<WritesPoint>) -> String {
    page::head("Durable endpoint writes", "writes", "One dot per turn")
        + &table(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Renders the SVG plot with one dot per round.
pub(super) fn plot(record: &Record<WritesPoint>) -> String {
    let row = |point: &WritesPoint| PlotRow {
        label: format!("{}, {} clients, {} a request", point.store.name(), point.clients, point.objects),
        colour: if point.store == WritesStore::Disk { "#b3541e" } else { "#0b6e99" },
        figures: point.per_second.clone(),
        median: point.typical_per_second(),
    };
    plot::dots("Objects written durably", "/s", &record.points.iter().map(row).collect::<Vec<_>>())
}

fn table(record: &Record<WritesPoint>) -> String {
    let mut table = String::from(
        "\n| store | clients | objects per request | turns | objects per second | relative to the disk \
         alone | request: median | p99 |\n|---|---|---|---|---|---|---|---|\n",
    );
    let disk = typical(record, WritesStore::Disk);
    for point in &record.points {
        let median = |figures: &[f64]| {
            Summary::of(figures.iter().copied())
                .map_or("–".to_owned(), |summary| format!("{} ms", short(summary.median)))
        };
        let per_second = point.typical_per_second();
        let ratio = per_second.zip(disk).map(|(own, disk)| own / disk);
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            point.store.name(),
            point.clients,
            point.objects,
            point.per_second.len(),
            per_second.map_or("–".to_owned(), short),
            ratio.map_or("–".to_owned(), short),
            median(&point.median_ms),
            median(&point.p99_ms)
        );
    }
    table
}

fn verdict(record: &Record<WritesPoint>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    for (store, target) in TARGETS {
        if let Some(best) = typical(record, store) {
            let judged = if best >= target { "met" } else { "missed" };
            let _ = writeln!(
                text,
                "- {}: at least {target} durable endpoint writes per second: {judged} ({})",
                store.name(),
                short(best)
            );
        }
    }
    text + "\n"
}

/// Returns the best median rate of a store over all numbers of clients and request sizes.
fn typical(record: &Record<WritesPoint>, store: WritesStore) -> Option<f64> {
    let of_store = record.points.iter().filter(|point| point.store == store);
    of_store.filter_map(WritesPoint::typical_per_second).max_by(f64::total_cmp)
}
