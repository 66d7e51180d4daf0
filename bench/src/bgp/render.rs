//! The page and the plot of the BGP benchmark, from its figures alone.

use std::fmt::Write;

use super::{
    measured::{Measured, Series},
    routers::Both,
};
use crate::{
    pages::plot::{self, Row},
    statistics::figures::Summary,
};

const METHOD: &str = "\
Every contestant announces to an FRR and a BIRD of its own, over a bridge, in network namespaces of one machine; the routers are set alike. A
route counts as there, and as gone, when the kernel of the router says so (`ip monitor route`); the clock starts before the write. What the
routers themselves need is in the figures of all contestants. Addresses are announced and withdrawn one by one, by turns.

*Write*: until the control server, or the command, has answered. For Tidegate the route comes after the write was stored, compiled, sent to
the node, programmed into its kernel and read back; for GoBGP the time that the command takes to start is included.

*Node cut off*: the cable of the announcing machine is pulled at the switch, so the routers see no loss of carrier.

*Many prefixes*: they are ready while the sessions are down; the clock starts before the sessions are allowed. Memory is resident memory of
the announcing process: Tidegate's agent holds the Services, their packet programs and a mirror of the kernel's rules besides.
";

/// The page.
pub(super) fn page(measured: &Measured) -> String {
    let mut page = format!(
        "# Announcing by BGP\n\nWritten by `make bench` (`cargo run --release -p bench -- bgp`); every figure is in [bgp.json](bgp.json).\n\n\
         {}\n![Every announcement as a dot](bgp.svg)\n\n{}\n## Where\n\n",
        table(measured),
        bulk(measured)
    );
    let host = &measured.host;
    // Writing to a String cannot fail; so everywhere here.
    let _ = writeln!(
        page,
        "- kernel {}, {} × {}, {} MiB",
        host.kernel, host.processors, host.processor, host.memory_mib
    );
    let _ = writeln!(page, "- {}", measured.versions.join("; "));
    if let Some(load) = &measured.load {
        let _ = writeln!(
            page,
            "- load average {:.1} before, {:.1} after; {:.0} % of the processors' time in use",
            load.average_before,
            load.average_after,
            load.busy * 100.0
        );
    }
    for series in &measured.series {
        let _ = writeln!(page, "- `{}`: {}", series.contestant, series.settings);
    }
    page + "\n## How\n\n" + METHOD
}

/// Every announcement as a dot.
pub(super) fn plot(measured: &Measured) -> String {
    let rows = measured.series.iter().flat_map(|series| {
        let colour = if series.contestant == "tidegate" { "#0b6e99" } else { "#b3541e" };
        let row = |router: &str, of: fn(&Both<f64>) -> f64| {
            let figures: Vec<f64> = series.announced_ms.iter().map(of).collect();
            let median = Summary::of(figures.iter().copied()).map(|summary| summary.median);
            Row { label: format!("{}, {router}", series.contestant), colour, figures, median }
        };
        [row("FRR", |both| both.frr), row("BIRD", |both| both.bird)]
    });
    plot::dots("From the write to the route in the router's kernel", "ms", &rows.collect::<Vec<_>>())
}

fn table(measured: &Measured) -> String {
    let mut table = String::from(
        "| what | contestant | router | runs | median | p99 | max |\n|---|---|---|---|---|---|---|\n",
    );
    let mut row = |what: &str, series: &Series, router: &str, figures: Vec<f64>| {
        let Some(summary) = Summary::of(figures.iter().copied()) else { return };
        let _ = writeln!(
            table,
            "| {what} | {} | {router} | {} | {:.1} ms | {:.1} ms | {:.1} ms |",
            series.contestant,
            figures.len(),
            summary.median,
            summary.p99,
            summary.max
        );
    };
    type Of = fn(&Series) -> &Vec<Both<f64>>;
    let kinds: [(&str, Of); 3] = [
        ("announced", |series| &series.announced_ms),
        ("withdrawn", |series| &series.withdrawn_ms),
        ("node cut off", |series| &series.failed_ms),
    ];
    for (what, of) in kinds {
        for series in &measured.series {
            row(what, series, "FRR", of(series).iter().map(|both| both.frr).collect());
            row(what, series, "BIRD", of(series).iter().map(|both| both.bird).collect());
        }
    }
    for series in &measured.series {
        row("write", series, "–", series.command_ms.clone());
    }
    table
}

fn bulk(measured: &Measured) -> String {
    let mut table = format!(
        "| contestant | {} prefixes in FRR | in BIRD | memory before | memory with them |\n|---|---|---|---|---|\n",
        measured.bulk
    );
    for series in &measured.series {
        let (Some(bulk), Some(memory)) = (series.bulk_ms, series.bulk_memory_kib) else { continue };
        let _ = writeln!(
            table,
            "| {} | {:.0} ms | {:.0} ms | {:.1} MiB | {:.1} MiB |",
            series.contestant,
            bulk.frr,
            bulk.bird,
            series.memory_kib as f64 / 1024.0,
            memory as f64 / 1024.0
        );
    }
    table
}
