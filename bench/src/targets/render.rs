//! Rendering of the index page: a row per target.

use std::fmt::Write;

use serde_json::Value;

use super::{
    BENCHMARKS, BenchmarkPage, StoredResults, discovery,
    found::{self, TargetResult},
    requests, slope,
};

/// Performance target with its result, as a row of the page.
struct TargetRow {
    demanded: &'static str,
    benchmark: &'static str,
    found: Option<TargetResult>,
}

const HEAD: &str = "# Benchmarks\n\nEvery value below comes from the files in this directory, which \
                    benchmarks write (`make bench`; a single one with `cargo run --release -p bench -- \
                    NAME`, as root); `bench pages` regenerates this page and the others from them. Times \
                    depend on the machine: each page names its machine, the load, and the contestants \
                    measured in the same run. No test asserts a time: `make test` runs small variants of \
                    all benchmarks to keep them working, without judging times. [notes.md](notes.md) \
                    describes the findings of profiling and the resulting changes.\n\n## Targets\n\n| \
                    target | measured | comparison in the same run | met | measured by \
                    |\n|---|---|---|---|---|\n";

/// Renders the page from the stored results.
pub(super) fn page(written: &StoredResults) -> String {
    let mut text = HEAD.to_owned();
    for TargetRow { demanded, benchmark, found } in rows(written) {
        let page = match written.of(benchmark) {
            Some(_) => format!("[{benchmark}]({benchmark}.md)"),
            None => benchmark.to_owned(),
        };
        let (measured, beside, met) = match found {
            Some(TargetResult { measured, beside, is_met }) => {
                (measured, beside, if is_met { "yes" } else { "**no**" })
            }
            None => ("not yet".to_owned(), "–".to_owned(), "–"),
        };
        // Writing to a String cannot fail; the same applies below.
        let _ = writeln!(text, "| {demanded} | {measured} | {beside} | {met} | {page} |");
    }
    text += "\n## Benchmarks\n\n";
    for BenchmarkPage { name, command, question } in BENCHMARKS {
        let place = match written.of(name) {
            Some(figures) => format!("[{name}]({name}.md), {}", machine(figures)),
            None => format!("{name}, not yet run"),
        };
        let _ = writeln!(text, "- `bench {command}`: {question} ({place})");
    }
    for name in BENCHMARKS.map(|asked| asked.name).into_iter().filter(|name| written.of(name).is_some()) {
        let _ = writeln!(text, "\n### {name}\n\n[![{name}]({name}.svg)]({name}.md)");
    }
    text
}

fn machine(figures: &Value) -> String {
    let text =
        |pointer: &str| figures.pointer(pointer).and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let processors = figures.pointer("/host/processors").and_then(Value::as_u64).unwrap_or(0);
    format!("kernel {}, {processors} × {}", text("/host/kernel"), text("/host/processor"))
}

fn rows(written: &StoredResults) -> Vec<TargetRow> {
    let row = |demanded, benchmark, of: fn(&Value) -> Option<TargetResult>| TargetRow {
        demanded,
        benchmark,
        found: written.of(benchmark).and_then(of),
    };
    vec![
        row(
            "endpoint write → first connection through the address, 10,000 Services × 10 endpoints, nftables: p99 ≤ 20 ms",
            "change",
            found::first,
        ),
        row("cold start of an agent, 10,000 Services × 2 endpoints, nftables: ≤ 2 s", "cold", found::cold),
        row("restart of an agent without changes: 0 kernel writes", "cold", found::restart),
        row("memory of the agent at 10,000 Services × 10 endpoints: ≤ 64 MiB", "cold", found::memory),
        row(
            "CPU time of an endpoint change at 10,000 Services relative to 100, nftables: ≤ 1.2",
            "change",
            found::ratio,
        ),
        row("the same for deleting and recreating a Service: ≤ 1.2", "change", found::service_ratio),
        row(
            "kernel messages of a change at the most Services relative to the fewest, ipvs: ≤ 1.2",
            "change",
            found::ipvs_ratio,
        ),
        row(
            "growth of the cost of a change from few to 50,000 Services × 10 endpoints, nftables: upper end \
             of the 95 % interval ≤ 5 %",
            "change",
            slope::nftables,
        ),
        row("the same in ipvs mode, in a guest, by kernel messages", "change", slope::ipvs),
        row(
            "new connections per second at 10,000 Services relative to 10, nftables: ≥ 0.95",
            "connections",
            found::nftables_rate,
        ),
        row("the same in ipvs mode: ≥ 0.95", "connections", found::ipvs_rate),
        row(
            "CPU time of `tidegate-dns` per answer for Services relative to Knot DNS: ≤ 1.0",
            "dns",
            discovery::services,
        ),
        row("the same for cached names, relative to Unbound: < 1.0", "dns", discovery::cached),
        row(
            "endpoint write → new address in an answer, 10,000 Services × 10 endpoints: p99 ≤ 20 ms",
            "dns",
            discovery::change,
        ),
        row("memory of `tidegate-dns` at 10,000 Services × 10 endpoints: ≤ 48 MiB", "dns", discovery::memory),
        row(
            "CPU time of `tidegate-gateway` per HTTP/1.1 request relative to the lower of HAProxy and nginx: ≤ 1.1",
            "http",
            requests::http1,
        ),
        row("the same for HTTP/2 with TLS: ≤ 1.1", "http", requests::http2),
        row("requests per second with 10,000 routes relative to 10: ≥ 0.95", "http", requests::routes),
        row(
            "route write → request decided by the new route, 10,000 routes: p99 ≤ 50 ms",
            "http",
            requests::change,
        ),
        row(
            "1,000 agents, 10,000 Services, 100 changes per second: p99 until the last agent has it ≤ 1 s",
            "fanout",
            found::fanout,
        ),
        row(
            "memory of the control server during this, including a mass reconnect: ≤ 512 MiB",
            "fanout",
            found::fanout_memory,
        ),
        row(
            "durable endpoint writes per second on SQLite, batching clients: ≥ 5,000",
            "writes",
            found::sqlite,
        ),
        row("the same on three members of etcd: ≥ 2,000", "writes", found::etcd),
        row(
            "announcing node vanishes, L2, defaults: traffic restored within 1 s (p99)",
            "failover",
            found::layer2,
        ),
        row("the same, tuned: within 250 ms (p99)", "failover", found::layer2_tuned),
        row("announcing node disconnected, BGP with BFD: route removed within 1 s (p99)", "bgp", found::bgp),
        row(
            "half an hour of 50 changes per second and faults: every node verified, no leftovers, no \
             connection lost without an excuse, memory of each process grows by less than 5 %",
            "soak",
            found::soak,
        ),
        row(
            "the same with three members of etcd, one of which is killed now and then",
            "soak-etcd",
            found::soak,
        ),
    ]
}
