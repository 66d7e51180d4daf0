//! The page of a run.

use std::fmt::Write;

use super::measured::{Point, Store};
use crate::{
    pages::{
        page::{self, short},
        plot::{self, Row},
        record::{Record, Report as _},
    },
    statistics::figures::Summary,
};

/// What the design demands of clients that batch: objects per second.
const TARGETS: [(Store, f64); 2] = [(Store::Sqlite, 5_000.0), (Store::Etcd, 2_000.0)];

const METHOD: &str = "\
A control server for each store, on one machine in network namespaces of their own, with 500 Services of ten endpoints; no agents. Clients
replace the ten endpoints of an EndpointSet by others, each client one request after the other over a connection of its own. Several objects in
a request are one POST to `/v1/apply`; one is a PATCH. A request is answered when what it wrote is on disk. The disk alone: 4 KiB are
written and `fdatasync` is called, again and again, by one who does nothing else. Everybody has turns in the same run.
";

/// The page.
pub(super) fn page(record: &Record<Point>) -> String {
    page::head("Durable writes of endpoints", "writes", "Every turn as a dot")
        + &table(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Every turn as a dot.
pub(super) fn plot(record: &Record<Point>) -> String {
    let row = |point: &Point| Row {
        label: format!("{}, {} clients, {} a request", point.store.name(), point.clients, point.objects),
        colour: if point.store == Store::Disk { "#b3541e" } else { "#0b6e99" },
        figures: point.per_second.clone(),
        median: point.typical_per_second(),
    };
    plot::dots("Objects written durably", "/s", &record.points.iter().map(row).collect::<Vec<_>>())
}

fn table(record: &Record<Point>) -> String {
    let mut table = String::from(
        "\n| store | clients | objects a request | turns | objects per second | over the disk alone | request: median | p99 |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let disk = typical(record, Store::Disk);
    for point in &record.points {
        let median = |figures: &[f64]| {
            Summary::of(figures.iter().copied())
                .map_or("–".to_owned(), |summary| format!("{} ms", short(summary.median)))
        };
        let per_second = point.typical_per_second();
        let ratio = per_second.zip(disk).map(|(own, disk)| own / disk);
        // Writing to a String cannot fail; so everywhere here.
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

fn verdict(record: &Record<Point>) -> String {
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
                "- {}: at least {target} durable writes of endpoints per second: {judged} ({})",
                store.name(),
                short(best)
            );
        }
    }
    text + "\n"
}

/// The best that a store does with any clients.
fn typical(record: &Record<Point>, store: Store) -> Option<f64> {
    let of_store = record.points.iter().filter(|point| point.store == store);
    of_store.filter_map(Point::typical_per_second).max_by(f64::total_cmp)
}
