//! Rendering of the page of the agent start benchmark.

use std::fmt::Write;

use super::measured::{ColdPoint, mebibytes};
use crate::{
    pages::{
        page::{self, short},
        plot::{self, PlotRow},
        record::{Record, Report as _},
    },
    statistics::figures::Summary,
};

/// Design target in milliseconds for a cold start at 10,000 Services with two endpoints in nftables mode.
const COLD_TARGET_MS: f64 = 2_000.0;
const COLD_SERVICES: u32 = 10_000;
const COLD_ENDPOINTS: u8 = 2;
/// Design target in MiB for the memory of the agent at 10,000 Services with ten endpoints.
const MEMORY_TARGET_MIB: f64 = 64.0;
const MEMORY_ENDPOINTS: u8 = 10;

const METHOD: &str = "One control server and one node run in network namespaces of one machine. *Cold \
                      start*: the agent is killed, `tidegate-agent cleanup` empties the kernel, and its \
                      saved state is removed. The clock runs from its start until it reports everything \
                      as verified: fetched from control, programmed and read back from the kernel. \
                      *Restart*: the agent is killed and started with its saved state and all rules in \
                      place; the clock runs until it has read them back. *Writes* are the rule changes \
                      observed by `nft monitor` during the restart plus the transactions counted by the \
                      agent. *Tool alone*: the same kernel state, saved as text before, is loaded with \
                      `nft -f` or `iptables-restore` into an empty network; the tool computes nothing, \
                      fetches nothing and reads nothing back. *Memory* is resident memory including \
                      program pages, once it has not fallen for two seconds after the clock has stopped; \
                      *peak* is its maximum up to then. Agent and tool are measured in turn in the same \
                      run. Times have a resolution of 20 ms.\n";

/// Renders the page of the agent start benchmark as Markdown.
pub(super) fn page(record: &Record<ColdPoint>) -> String {
    page::head("Starting an agent", "cold", "One dot per start")
        + &table(record)
        + &verdict(record)
        + &page::place(&record.host, &record.versions, record.load.as_ref())
        + "\n## How\n\n"
        + METHOD
}

/// Renders the SVG plot with one dot per agent start.
pub(super) fn plot(record: &Record<ColdPoint>) -> String {
    let mut rows = Vec::new();
    for point in &record.points {
        let mut row = |what: &str, colour, figures: &[f64]| {
            rows.push(PlotRow {
                label: format!("{}, {}: {what}", point.mode, point.services),
                colour,
                figures: figures.to_vec(),
                median: median(figures),
            });
        };
        row("from nothing", "#0b6e99", &point.cold_ms);
        row("restart", "#0b6e99", &point.restart_ms);
        row("tool alone", "#b3541e", &point.bound_ms);
    }
    plot::dots("Time from the start of the agent to everything verified", "ms", &rows)
}

fn table(record: &Record<ColdPoint>) -> String {
    let mut table = String::from(
        "\n| mode | Services × endpoints | cold start | CPU time | tool alone | ratio | restart | CPU \
         time | writes | memory | peak |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &record.points {
        let shown =
            |figures: &[f64]| median(figures).map_or("–".to_owned(), |ms| format!("{} ms", short(ms)));
        let writes = point.restart_writes.iter().max().copied().unwrap_or(0);
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(
            table,
            "| {} | {} × {} | {} | {} | {} | {} | {} | {} | {writes} | {:.1} MiB | {:.1} MiB |",
            point.mode,
            point.services,
            point.endpoints,
            shown(&point.cold_ms),
            shown(&point.cold_processor_ms),
            shown(&point.bound_ms),
            ratio(point).map_or("–".to_owned(), short),
            shown(&point.restart_ms),
            shown(&point.restart_processor_ms),
            mebibytes(&point.resident_kib),
            mebibytes(&point.peak_kib)
        );
    }
    table
}

fn verdict(record: &Record<ColdPoint>) -> String {
    let mut text = String::from("\n## Verdict\n\n");
    if let Some(why) = record.too_busy() {
        let _ = writeln!(text, "None: the machine was too busy ({why}).\n");
        return text;
    }
    let at = |endpoints: u8| {
        record.points.iter().find(move |point| {
            point.mode == "nftables" && point.services == COLD_SERVICES && point.endpoints == endpoints
        })
    };
    let word = |is_met: bool| if is_met { "met" } else { "missed" };
    if let Some((point, cold)) = at(COLD_ENDPOINTS).and_then(|point| Some((point, median(&point.cold_ms)?))) {
        let judged = word(cold <= COLD_TARGET_MS);
        let _ = writeln!(
            text,
            "- cold start with {COLD_SERVICES} Services × {COLD_ENDPOINTS} within {COLD_TARGET_MS} ms: \
             {judged} ({cold:.0} ms, {} times the tool alone)",
            ratio(point).map_or("–".to_owned(), short)
        );
        let writes = point.restart_writes.iter().max().copied().unwrap_or(0);
        let _ =
            writeln!(text, "- a restart without changes writes nothing: {} ({writes})", word(writes == 0));
    }
    if let Some(point) = at(MEMORY_ENDPOINTS) {
        let memory = mebibytes(&point.resident_kib).max(mebibytes(&point.restart_resident_kib));
        let _ = writeln!(
            text,
            "- memory of the agent at {COLD_SERVICES} Services × {MEMORY_ENDPOINTS} at most \
             {MEMORY_TARGET_MIB} MiB: {} ({memory:.1} MiB)",
            word(memory <= MEMORY_TARGET_MIB)
        );
    }
    text + "\n"
}

fn ratio(point: &ColdPoint) -> Option<f64> {
    Some(median(&point.cold_ms)? / median(&point.bound_ms)?)
}

fn median(figures: &[f64]) -> Option<f64> {
    Summary::of(figures.iter().copied()).map(|summary| summary.median)
}
