//! The first page: a row for each target.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    BENCHMARKS, Written,
    figures::{point, sum, summary},
};
use crate::page::short;

/// What is demanded, and what was found.
struct Row {
    demanded: &'static str,
    benchmark: &'static str,
    found: Option<Found>,
}

struct Found {
    measured: String,
    /// What it stands beside in the same run, and how many times that it is.
    beside: String,
    is_met: bool,
}

const HEAD: &str = "\
# What Tidegate costs, and what it promises

Every figure below is out of the files beside this page, which benchmarks write (`make bench`; one of them with `cargo run --release -p bench --
NAME`, as root); this page is written by `bench targets`. A time says little without the machine that it was taken on: each page names its own, how
busy it was, and what stood beside Tidegate in the same run. Nothing here is asserted by a test: small variants of all benchmarks run in `make test` so
that they work, and judge no time. What profiles showed, and what was done about it, is in [notes.md](notes.md).

## Targets

| demanded | measured | beside it, in the same run | met | measured by |
|---|---|---|---|---|
";

/// The page, from the figures.
#[must_use]
pub fn page(written: &Written) -> String {
    let mut text = HEAD.to_owned();
    for Row { demanded, benchmark, found } in rows(written) {
        let (measured, beside, met) = match found {
            Some(Found { measured, beside, is_met }) => {
                (measured, beside, if is_met { "yes" } else { "**no**" })
            }
            None => ("not yet".to_owned(), "–".to_owned(), "–"),
        };
        // Writing to a String cannot fail; so everywhere here.
        let _ =
            writeln!(text, "| {demanded} | {measured} | {beside} | {met} | [{benchmark}]({benchmark}.md) |");
    }
    text += "\n## Benchmarks\n\n";
    for (name, asks) in BENCHMARKS {
        let place = match written.of(name) {
            Some(figures) => format!("[{name}]({name}.md), {}", machine(figures)),
            None => format!("{name}, not yet run"),
        };
        let _ = writeln!(text, "- `bench {name}`: {asks} ({place})");
    }
    for (name, _) in BENCHMARKS.iter().filter(|(name, _)| written.of(name).is_some()) {
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
            first,
        ),
        row("agent from nothing, 10,000 Services × 2 endpoints, nftables: ≤ 2 s", "cold", cold),
        row("agent started again with nothing to do: 0 kernel writes", "cold", restart),
        row("agent's memory at 10,000 Services × 10 endpoints: ≤ 64 MiB", "cold", memory),
        row(
            "cost of a change at 10,000 over that at 100 Services, nftables: ≤ 1.2",
            "change",
            ratio_nftables,
        ),
        row(
            "new connections a second at 10,000 over those at 10 Services, nftables: ≥ 0.95",
            "connections",
            connections,
        ),
        row("durable endpoint writes a second on SQLite, clients that batch: ≥ 5,000", "writes", sqlite),
        row("the same on three members of etcd: ≥ 2,000", "writes", etcd),
        row("announcing node vanishes, L2, defaults: traffic back within 1 s (p99)", "failover", layer2),
        row("the same, tuned: within 250 ms (p99)", "failover", layer2_tuned),
        row("announcing node cut off, BGP with BFD: route gone within 1 s (p99)", "bgp", bgp),
    ]
}

fn at(mode: &str, services: u32, endpoints: u8) -> [(&'static str, Value); 3] {
    [("mode", json!(mode)), ("services", json!(services)), ("endpoints", json!(endpoints))]
}

fn first(written: &Value) -> Option<Found> {
    let fields = at("nftables", 10_000, 10);
    let point = point(written, &fields)?;
    let (first, write) = (summary(point, "firstMs", "")?, summary(point, "writeMs", "")?);
    Some(Found {
        measured: format!("p99 {} ms, median {} ms", short(first.p99), short(first.median)),
        beside: format!(
            "of that the durable write alone: median {} ms ({} of it)",
            short(write.median),
            short(write.median / first.median)
        ),
        is_met: first.p99 <= 20.0,
    })
}

fn cold(written: &Value) -> Option<Found> {
    let fields = at("nftables", 10_000, 2);
    let point = point(written, &fields)?;
    let (cold, bound) = (summary(point, "coldMs", "")?, summary(point, "boundMs", "")?);
    Some(Found {
        measured: format!("median {} ms, max {} ms", short(cold.median), short(cold.max)),
        beside: format!(
            "`nft -f` of the same rules {} ms: {} times as long",
            short(bound.median),
            short(cold.median / bound.median)
        ),
        is_met: cold.max <= 2_000.0,
    })
}

fn restart(written: &Value) -> Option<Found> {
    let points: Vec<_> = super::figures::points(written, &[]).collect();
    let writes: Vec<f64> = points.iter().filter_map(|point| sum(point, "restartWrites")).collect();
    let total: f64 = writes.iter().sum();
    (!writes.is_empty()).then(|| Found {
        measured: format!("{total} at all of {} sizes", writes.len()),
        beside: "a monitor of the kernel's own events listens".to_owned(),
        is_met: total == 0.0,
    })
}

fn memory(written: &Value) -> Option<Found> {
    let fields = at("nftables", 10_000, 10);
    let point = point(written, &fields)?;
    let [after, peak, again] = ["residentKib", "peakKib", "restartResidentKib"]
        .map(|list| Some(summary(point, list, "")?.max / 1024.0));
    let (after, peak, again) = (after?, peak?, again?);
    Some(Found {
        measured: format!("{} MiB; started again {} MiB", short(after), short(again)),
        beside: format!("peak {} MiB", short(peak)),
        is_met: after.max(again) <= 64.0,
    })
}

fn ratio_nftables(written: &Value) -> Option<Found> {
    let (many, few) = (at("nftables", 10_000, 10), at("nftables", 100, 10));
    let (many, few) = (point(written, &many)?, point(written, &few)?);
    let of =
        |pointer| Some((summary(many, "costs", pointer)?.median, summary(few, "costs", pointer)?.median));
    let ((control, control_few), (agent, agent_few)) = (of("/controlUs")?, of("/agentUs")?);
    let ratio = (control + agent) / (control_few + agent_few);
    Some(Found {
        measured: short(ratio),
        beside: format!(
            "processor time of control {} and {} µs, of the agent {} and {} µs",
            short(control),
            short(control_few),
            short(agent),
            short(agent_few)
        ),
        is_met: ratio <= 1.2,
    })
}

fn connections(written: &Value) -> Option<Found> {
    let rate = |contestant: &str, services: u32| {
        let fields = [("contestant", json!(contestant)), ("services", json!(services))];
        Some(summary(point(written, &fields)?, "rounds", "/perSecond")?.median)
    };
    let (many, few) = (rate("tidegate-nftables", 10_000)?, rate("tidegate-nftables", 10)?);
    let beside = ["direct", "haproxy", "nginx"].iter().filter_map(|rival| {
        let rival_rate = rate(rival, 0)?;
        Some(format!("{rival} {} a second: {} times as many", short(rival_rate), short(many / rival_rate)))
    });
    Some(Found {
        measured: format!("{} ({} a second)", short(many / few), short(many)),
        beside: beside.collect::<Vec<_>>().join("; "),
        is_met: many / few >= 0.95,
    })
}

fn sqlite(written: &Value) -> Option<Found> {
    writes(written, "sqlite", 5_000.0)
}

fn etcd(written: &Value) -> Option<Found> {
    writes(written, "etcd", 2_000.0)
}

/// The best rate of a store, at the number of clients and objects a request that gives it.
fn writes(written: &Value, store: &str, demanded: f64) -> Option<Found> {
    let best = |store: &str| {
        let fields = [("store", json!(store))];
        super::figures::points(written, &fields)
            .filter_map(|point| Some((summary(point, "perSecond", "")?.median, point)))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map(|(rate, point)| (rate, point["clients"].clone(), point["objects"].clone()))
    };
    let ((rate, clients, objects), (disk, _, _)) = (best(store)?, best("disk")?);
    Some(Found {
        measured: format!("{} ({clients} clients, {objects} objects a request)", short(rate)),
        beside: format!(
            "`fdatasync` of 4 KiB alone {} a second: {} times as many",
            short(disk),
            short(rate / disk)
        ),
        is_met: rate >= demanded,
    })
}

fn layer2(written: &Value) -> Option<Found> {
    failover(written, "tidegate-default", "keepalived-default", 1_000.0)
}

fn layer2_tuned(written: &Value) -> Option<Found> {
    failover(written, "tidegate-tuned", "keepalived-fast", 250.0)
}

fn failover(written: &Value, own: &str, rival: &str, demanded_ms: f64) -> Option<Found> {
    let silence = |contestant: &str| {
        let fields = [("contestant", json!(contestant)), ("failure", json!("node-vanishes"))];
        summary(point(written, &fields)?, "runs", "/silenceMs")
    };
    let (own, other) = (silence(own)?, silence(rival)?);
    Some(Found {
        measured: format!("p99 {} ms, median {} ms", short(own.p99), short(own.median)),
        beside: format!(
            "{rival}: median {} ms, {} times as long",
            short(other.median),
            short(own.median / other.median)
        ),
        is_met: own.p99 <= demanded_ms,
    })
}

fn bgp(written: &Value) -> Option<Found> {
    let gone = |contestant: &str, router: &str| {
        let fields = [("contestant", json!(contestant))];
        summary(point(written, &fields)?, "failedMs", router)
    };
    let (frr, bird) = (gone("tidegate", "/frr")?, gone("tidegate", "/bird")?);
    let rival = gone("gobgp", "/frr")?;
    Some(Found {
        measured: format!("p99 {} ms in FRR, {} ms in BIRD", short(frr.p99), short(bird.p99)),
        beside: format!(
            "GoBGP without BFD, FRR: median {} ms, {} times as long",
            short(rival.median),
            short(frr.median / rival.median)
        ),
        is_met: frr.p99.max(bird.p99) <= 1_000.0,
    })
}
