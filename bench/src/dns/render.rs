//! Rendering of the DNS benchmark's page and plot from the recorded results.

use std::{collections::BTreeSet, fmt::Write};

use super::{
    contestant::NameServer,
    data::NameKind,
    measured::{DnsResults, DnsRound, DnsSeries},
};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, PlotRow},
        record::Report as _,
    },
    statistics::figures::Summary,
};

const METHOD: &str = "`dnsperf` with eight clients asks for IPv4 addresses over UDP in a shuffled order, all on the \
                      loopback interface of one network namespace. Servers are measured in turn; the first one \
                      differs from round to round. A turn has two parts of equal length: in the first, the clients \
                      have at most 200 unanswered questions and ask as fast as they get answers; in the second, they \
                      ask at a fixed rate, for the latency.\n\nThe load generator shares the CPUs with the server, so \
                      *CPU time per answer* (of the server process, user and kernel) compares servers better than the \
                      rate.\n\n*Service* names have one address. *Headless* names have the address of each endpoint. Each tenth \
                      Service is headless. Peers have the same records in a zone file or a hosts file, so they are not \
                      changed by a control server. *Cached* names belong to another zone; every name is asked once \
                      before the first round, so that all answers come from the cache.\n\n*Change* is the time from the \
                      start of the write of an EndpointSet at the control server until `tidegate-dns` has the new address \
                      in an answer, for a client that asks every 0.2 ms. *Memory* is the resident memory of `tidegate-dns` \
                      with all Services, before the first question.\n";

/// Renders the page of the DNS benchmark as Markdown.
pub(super) fn page(measured: &DnsResults) -> String {
    let mut text = page::head("Answers of name servers", "dns", "CPU time per answer, one dot per round");
    let names = &measured.names;
    let _ = write!(text, "\n{}\n", table(measured));
    // Writing to a String cannot fail; the same applies below.
    let _ = writeln!(
        text,
        "| | median | p99 |\n|---|---|---|\n| change until answered, {} changes | {} |\n",
        measured.changes_ms.len(),
        cells(&measured.changes_ms, "ms")
    );
    let _ = writeln!(
        text,
        "Memory of `tidegate-dns` with {} Services × {} endpoints: {} MiB.\n",
        names.services,
        names.endpoints,
        short(measured.resident_kib as f64 / 1024.0)
    );
    let _ = writeln!(text, "## Verdict\n\n{}", verdict(measured));
    text += &page::place(&measured.host, &measured.versions, measured.load.as_ref());
    let _ = writeln!(
        text,
        "- {} Services, {} names of the other zone; parts of {} ms; latency at {} questions per second",
        names.services, names.cached, measured.slice_ms, measured.per_second
    );
    let mut told = BTreeSet::new();
    for series in &measured.series {
        if told.insert(&series.contestant) {
            let _ = writeln!(text, "- `{}`: {}", series.contestant, series.settings);
        }
    }
    text + "\n## How\n\n" + METHOD
}

/// Renders the SVG plot of the CPU times, with one dot per round.
pub(super) fn plot(measured: &DnsResults) -> String {
    let row = |series: &DnsSeries| PlotRow {
        label: format!("{}, {}", series.contestant, series.kind.as_str()),
        colour: if series.contestant == NameServer::Tidegate.as_str() { "#0b6e99" } else { "#b3541e" },
        figures: series.figures(|round| round.processor_us),
        median: series.median(|round| round.processor_us),
    };
    let rows: Vec<_> = measured.series.iter().map(row).collect();
    plot::dots("CPU time of the server per answer", "µs", &rows)
}

fn table(measured: &DnsResults) -> String {
    let mut table = String::from(
        "| server | names | rounds | CPU time per answer | answers/s | latency: median | p99 | lost | memory at the \
         end |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for series in &measured.series {
        let lost: u64 = series.rounds.iter().map(|round| round.lost).sum();
        let median = |of: fn(&DnsRound) -> f64| series.median(of).map_or("–".to_owned(), short);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} µs | {} | {} µs | {} µs | {lost} | {} MiB |",
            series.contestant,
            series.kind.as_str(),
            series.rounds.len(),
            median(|round| round.processor_us),
            median(|round| round.per_second),
            median(|round| round.latency_us.median),
            median(|round| round.latency_us.p99),
            short(series.resident_kib as f64 / 1024.0),
        );
    }
    table
}

fn verdict(measured: &DnsResults) -> String {
    let mut lines = String::new();
    if let Some(why) = measured.too_busy() {
        let _ = writeln!(lines, "The ratios are uncertain: {why}.\n");
    }
    for kind in NameKind::ALL {
        let Some(own) = measured.find(NameServer::Tidegate, kind) else { continue };
        for peer in [NameServer::Knot, NameServer::Unbound, NameServer::Dnsmasq] {
            let Some(ratio) = measured.find(peer, kind).and_then(|peer| ratio(own, peer)) else { continue };
            let _ = writeln!(
                lines,
                "- {} names: {} times the CPU time per answer of {}",
                kind.as_str(),
                short(ratio),
                peer.as_str()
            );
        }
    }
    lines
}

/// Returns the median over all rounds of the ratio between the CPU times of two servers in the same round.
fn ratio(one: &DnsSeries, other: &DnsSeries) -> Option<f64> {
    let pairs = one.rounds.iter().zip(&other.rounds);
    Summary::of(pairs.map(|(one, other)| one.processor_us / other.processor_us)).map(|summary| summary.median)
}
