//! Rendering of the HTTP benchmark's page and plot from the recorded results.

use std::{collections::BTreeSet, fmt::Write};

use super::{
    contestant::HttpProxy,
    data::HttpLoad,
    measured::{HttpResults, HttpRound, HttpSeries},
};
use crate::{
    pages::{
        page::{self, cells, short},
        plot::{self, PlotRow},
        record::Report as _,
    },
    statistics::figures::Summary,
};

const METHOD: &str = "Clients send requests to ten paths of one host name, each of which has a route, all on the loopback \
                      interface of one network namespace. Proxies are measured in turn; the first one differs from \
                      round to round. The backend is nginx with a page of 65 bytes.\n\nOpen connections: `h2load`, with \
                      HTTP/2 eight requests at a time on each. A turn has two parts of equal length: in the first, clients \
                      send the next request as soon as they have a response; in the second, they send half of the \
                      requests per second that the proxy reached in the first, for the latency.\n\nHandshakes: eight \
                      clients open a connection with TLS 1.3 (P-256) for each request. *Resumed sessions* use a ticket of \
                      the connection before. The latency is that of connection, handshake and request together.\n\nClients \
                      and backend share the CPUs with the proxy, so *CPU time per request* (of all processes of the proxy, \
                      user and kernel) compares proxies better than the rate.\n\n*Change* is the time from the start of \
                      the write of an HttpRoute at the control server until `tidegate-gateway` with many routes redirects a \
                      request to the new address, for a client that asks every 0.2 ms. *Memory* counts shared pages once; \
                      each idle connection has sent one request.\n";

/// Renders the page of the HTTP benchmark as Markdown.
pub(super) fn page(measured: &HttpResults) -> String {
    let mut text =
        page::head("Requests through reverse proxies", "http", "CPU time per request, one dot per round");
    let _ = write!(text, "\n{}\n{}\n", table(measured), idle(measured));
    // Writing to a String cannot fail; the same applies below.
    let _ = writeln!(
        text,
        "| | median | p99 |\n|---|---|---|\n| change until effective, {} routes, {} changes | {} |\n",
        measured.routes.many,
        measured.changes_ms.len(),
        cells(&measured.changes_ms, "ms")
    );
    let _ = writeln!(text, "## Verdict\n\n{}", verdict(measured));
    text += &page::place(&measured.host, &measured.versions, measured.load.as_ref());
    let _ = writeln!(
        text,
        "- {} and {} routes; {} open connections of clients; parts of {} ms",
        measured.routes.few, measured.routes.many, measured.clients, measured.slice_ms
    );
    let mut printed = BTreeSet::new();
    for series in &measured.series {
        if printed.insert(series.contestant.as_str()) {
            let _ = writeln!(text, "- `{}`: {}", series.contestant.as_str(), series.settings);
        }
    }
    text + "\n## How\n\n" + METHOD
}

/// Renders the SVG plot of the CPU times, with one dot per round.
pub(super) fn plot(measured: &HttpResults) -> String {
    let row = |series: &HttpSeries| PlotRow {
        label: format!("{}, {}", series.contestant.as_str(), series.load.as_str()),
        colour: match series.contestant {
            HttpProxy::Tidegate | HttpProxy::TidegateMany => "#0b6e99",
            HttpProxy::Haproxy | HttpProxy::Nginx | HttpProxy::Caddy => "#b3541e",
        },
        figures: series.figures(|round| round.processor_us),
        median: series.median(|round| round.processor_us),
    };
    let rows: Vec<_> = measured.series.iter().map(row).collect();
    plot::dots("CPU time of the proxy per request", "µs", &rows)
}

fn table(measured: &HttpResults) -> String {
    let mut table = String::from(
        "| proxy | requests | rounds | CPU time per request | requests/s | latency: median | p99 | failed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for series in &measured.series {
        let failed: u64 = series.rounds.iter().map(|round| round.failed).sum();
        let median = |of: fn(&HttpRound) -> f64| series.median(of).map_or("–".to_owned(), short);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} µs | {} | {} µs | {} µs | {failed} |",
            series.contestant.as_str(),
            series.load.as_str(),
            series.rounds.len(),
            median(|round| round.processor_us),
            median(|round| round.per_second),
            median(|round| round.latency_us.median),
            median(|round| round.latency_us.p99),
        );
    }
    table
}

fn idle(measured: &HttpResults) -> String {
    let mut table = String::from(
        "| proxy | idle connections | memory without them | with them | per connection |\n|---|---|---|---|---|\n",
    );
    for memory in &measured.idle {
        let mib = |kib: u64| short(kib as f64 / 1024.0);
        let _ = writeln!(
            table,
            "| {} | {} | {} MiB | {} MiB | {} KiB |",
            memory.proxy.as_str(),
            memory.connections,
            mib(memory.before_kib),
            mib(memory.after_kib),
            short(memory.connection_kib())
        );
    }
    table
}

fn verdict(measured: &HttpResults) -> String {
    let mut lines = String::new();
    if let Some(why) = measured.too_busy() {
        let _ = writeln!(lines, "The ratios are uncertain: {why}.\n");
    }
    for load in HttpLoad::ALL {
        let Some(own) = measured.find(HttpProxy::Tidegate, load) else { continue };
        for peer in [HttpProxy::Haproxy, HttpProxy::Nginx, HttpProxy::Caddy] {
            let found = measured.find(peer, load);
            let Some(ratio) = found.and_then(|peer| ratio(own, peer, |round| round.processor_us)) else {
                continue;
            };
            let _ = writeln!(
                lines,
                "- {}: {} times the CPU time per request of {}",
                load.as_str(),
                short(ratio),
                peer.as_str()
            );
        }
    }
    let few = measured.find(HttpProxy::Tidegate, HttpLoad::Http1);
    let many = measured.find(HttpProxy::TidegateMany, HttpLoad::Http1);
    let ratio = many.zip(few).and_then(|(many, few)| ratio(many, few, |round| round.per_second));
    if let Some(ratio) = ratio {
        let _ = writeln!(
            lines,
            "- {} times the requests per second with {} routes as with {}",
            short(ratio),
            measured.routes.many,
            measured.routes.few
        );
    }
    lines
}

/// Returns the median over all rounds of the ratio between the values of two proxies in the same round.
fn ratio(one: &HttpSeries, other: &HttpSeries, of: fn(&HttpRound) -> f64) -> Option<f64> {
    let pairs = one.rounds.iter().zip(&other.rounds);
    Summary::of(pairs.map(|(one, other)| of(one) / of(other))).map(|summary| summary.median)
}
