//! The first page: a row for each target.

use std::fmt::Write;

use serde_json::Value;

use super::{
    Asked, BENCHMARKS, Written,
    found::{self, Found},
    slope,
};

/// What is demanded, and what was found.
struct Row {
    demanded: &'static str,
    benchmark: &'static str,
    found: Option<Found>,
}

const HEAD: &str = "\
# What Tidegate costs, and what it promises

Every figure below is out of the files beside this page, which benchmarks write (`make bench`; one of them with `cargo run --release -p bench --
NAME`, as root); `bench pages` makes this page and the others of them. A time says little without the machine that it was taken on: each page names
its own, how busy it was, and what stood beside Tidegate in the same run. Nothing here is asserted by a test: small variants of all benchmarks run
in `make test` so that they work, and judge no time. What profiles showed, and what was done about it, is in [notes.md](notes.md).

## Targets

| demanded | measured | beside it, in the same run | met | measured by |
|---|---|---|---|---|
";

/// The page, from the figures.
pub(super) fn page(written: &Written) -> String {
    let mut text = HEAD.to_owned();
    for Row { demanded, benchmark, found } in rows(written) {
        let page = match written.of(benchmark) {
            Some(_) => format!("[{benchmark}]({benchmark}.md)"),
            None => benchmark.to_owned(),
        };
        let (measured, beside, met) = match found {
            Some(Found { measured, beside, is_met }) => {
                (measured, beside, if is_met { "yes" } else { "**no**" })
            }
            None => ("not yet".to_owned(), "–".to_owned(), "–"),
        };
        // Writing to a String cannot fail; so everywhere here.
        let _ = writeln!(text, "| {demanded} | {measured} | {beside} | {met} | {page} |");
    }
    text += "\n## Benchmarks\n\n";
    for Asked { name, command, question } in BENCHMARKS {
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

fn rows(written: &Written) -> Vec<Row> {
    let row = |demanded, benchmark, of: fn(&Value) -> Option<Found>| Row {
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
        row("agent from nothing, 10,000 Services × 2 endpoints, nftables: ≤ 2 s", "cold", found::cold),
        row("agent started again with nothing to do: 0 kernel writes", "cold", found::restart),
        row("agent's memory at 10,000 Services × 10 endpoints: ≤ 64 MiB", "cold", found::memory),
        row(
            "processor time of a change of endpoints at 10,000 over that at 100 Services, nftables: ≤ 1.2",
            "change",
            found::ratio,
        ),
        row("the same of a Service that comes and goes: ≤ 1.2", "change", found::service_ratio),
        row(
            "messages to the kernel for a change at most over those at fewest Services, ipvs: ≤ 1.2",
            "change",
            found::ipvs_ratio,
        ),
        row(
            "what 1,000 Services more add to the cost of a change, 100 to 50,000 Services × 10 endpoints, nftables: nothing that can be told from zero",
            "change",
            slope::nftables,
        ),
        row("the same in ipvs mode, in a guest, by messages to the kernel", "change", slope::ipvs),
        row(
            "new connections a second at 10,000 over those at 10 Services, nftables: ≥ 0.95",
            "connections",
            found::nftables_rate,
        ),
        row("the same in ipvs mode: ≥ 0.95", "connections", found::ipvs_rate),
        row(
            "1,000 agents, 10,000 Services, 100 changes a second: p99 until the last agent has it ≤ 1 s",
            "fanout",
            found::fanout,
        ),
        row(
            "the control server's memory meanwhile, also when all come back at once: ≤ 512 MiB",
            "fanout",
            found::fanout_memory,
        ),
        row(
            "durable endpoint writes a second on SQLite, clients that batch: ≥ 5,000",
            "writes",
            found::sqlite,
        ),
        row("the same on three members of etcd: ≥ 2,000", "writes", found::etcd),
        row(
            "announcing node vanishes, L2, defaults: traffic back within 1 s (p99)",
            "failover",
            found::layer2,
        ),
        row("the same, tuned: within 250 ms (p99)", "failover", found::layer2_tuned),
        row("announcing node cut off, BGP with BFD: route gone within 1 s (p99)", "bgp", found::bgp),
        row(
            "half an hour of 50 changes a second and faults: every node verified, nothing left behind, nothing lost without a reason, memory of each process grows by less than 5 %",
            "soak",
            found::soak,
        ),
        row(
            "the same with three members of etcd, of which one is killed now and then",
            "soak-etcd",
            found::soak,
        ),
    ]
}
