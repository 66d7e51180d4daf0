//! Extraction of the result of each performance target from the stored results.

use lab::chaos::soak::{Growth, SoakOutcome};
use serde_json::{Value, json};

use super::figures::{point, points, ratio_in_a_round, sum, summary};
use crate::pages::page::short;

/// Result of one performance target.
pub(super) struct TargetResult {
    pub(super) measured: String,
    /// Other values of the same run with which `measured` is compared, such as a baseline and the ratio to
    /// it.
    pub(super) beside: String,
    pub(super) is_met: bool,
}

fn at(mode: &str, services: u32, endpoints: u8) -> [(&'static str, Value); 3] {
    [("mode", json!(mode)), ("services", json!(services)), ("endpoints", json!(endpoints))]
}

pub(super) fn first(written: &Value) -> Option<TargetResult> {
    let fields = at("nftables", 10_000, 10);
    let point = point(written, &fields)?;
    let (first, write) = (summary(point, "firstMs", "")?, summary(point, "writeMs", "")?);
    Some(TargetResult {
        measured: format!("p99 {} ms, median {} ms", short(first.p99), short(first.median)),
        beside: format!(
            "durable write alone: median {} ms ({} of it)",
            short(write.median),
            short(write.median / first.median)
        ),
        is_met: first.p99 <= 20.0,
    })
}

pub(super) fn cold(written: &Value) -> Option<TargetResult> {
    let fields = at("nftables", 10_000, 2);
    let point = point(written, &fields)?;
    let (cold, bound) = (summary(point, "coldMs", "")?, summary(point, "boundMs", "")?);
    Some(TargetResult {
        measured: format!("median {} ms, max {} ms", short(cold.median), short(cold.max)),
        beside: format!(
            "`nft -f` of the same rules {} ms: {} times that",
            short(bound.median),
            short(cold.median / bound.median)
        ),
        is_met: cold.max <= 2_000.0,
    })
}

pub(super) fn restart(written: &Value) -> Option<TargetResult> {
    let points: Vec<_> = points(written, &[]).collect();
    let writes: Vec<f64> = points.iter().filter_map(|point| sum(point, "restartWrites")).collect();
    let total: f64 = writes.iter().sum();
    (!writes.is_empty()).then(|| TargetResult {
        measured: format!("{total} over {} sizes", writes.len()),
        beside: "observed by a monitor of kernel events".to_owned(),
        is_met: total == 0.0,
    })
}

pub(super) fn memory(written: &Value) -> Option<TargetResult> {
    let fields = at("nftables", 10_000, 10);
    let point = point(written, &fields)?;
    let [after, peak, again] = ["residentKib", "peakKib", "restartResidentKib"]
        .map(|list| Some(summary(point, list, "")?.max / 1024.0));
    let (after, peak, again) = (after?, peak?, again?);
    Some(TargetResult {
        measured: format!("{} MiB; after a restart {} MiB", short(after), short(again)),
        beside: format!("peak {} MiB", short(peak)),
        is_met: after.max(again) <= 64.0,
    })
}

pub(super) fn ratio(written: &Value) -> Option<TargetResult> {
    costs_ratio(written, "costs")
}

pub(super) fn service_ratio(written: &Value) -> Option<TargetResult> {
    costs_ratio(written, "serviceCosts")
}

fn costs_ratio(written: &Value, costs: &str) -> Option<TargetResult> {
    let (many, few) = (at("nftables", 10_000, 10), at("nftables", 100, 10));
    let (many, few) = (point(written, &many)?, point(written, &few)?);
    let of = |pointer| Some((summary(many, costs, pointer)?.median, summary(few, costs, pointer)?.median));
    let ((control, control_few), (agent, agent_few)) = (of("/controlUs")?, of("/agentUs")?);
    let ratios = [control / control_few, agent / agent_few];
    Some(TargetResult {
        measured: format!("control {}, agent with kernel {}", short(ratios[0]), short(ratios[1])),
        beside: format!(
            "control {} and {} µs, agent {} and {} µs",
            short(control),
            short(control_few),
            short(agent),
            short(agent_few)
        ),
        is_met: ratios.into_iter().all(|ratio| ratio <= 1.2),
    })
}

pub(super) fn ipvs_ratio(written: &Value) -> Option<TargetResult> {
    let fields = [("mode", json!("ipvs"))];
    let of = |point: &Value| {
        Some((point["services"].as_u64()?, summary(point, "costs", "/kernelMessages")?.median))
    };
    let all: Vec<_> = points(written, &fields).filter_map(of).collect();
    let ((few_services, few), (many_services, many)) = (*all.first()?, *all.last()?);
    Some(TargetResult {
        measured: format!("{} ({} Services)", short(many / few), many_services),
        beside: format!("{} messages, {} with {few_services} Services; in a guest", short(many), short(few)),
        is_met: many_services > few_services && many / few <= 1.2,
    })
}

pub(super) fn nftables_rate(written: &Value) -> Option<TargetResult> {
    connections(written, "tidegate-nftables")
}

pub(super) fn ipvs_rate(written: &Value) -> Option<TargetResult> {
    connections(written, "tidegate-ipvs")
}

fn connections(written: &Value, own: &str) -> Option<TargetResult> {
    let is_guest = point(written, &[("contestant", json!(own))])?.get("isGuest")?.clone();
    let series = |contestant: &str, services: u32| {
        let fields =
            [("contestant", json!(contestant)), ("services", json!(services)), ("isGuest", is_guest.clone())];
        point(written, &fields)
    };
    let rate = |series: &Value| Some(summary(series, "rounds", "/perSecond")?.median);
    let many = series(own, 10_000)?;
    let ratio = |other: &Value| ratio_in_a_round(many, other, "rounds", "/perSecond");
    let beside = ["direct", "haproxy", "nginx"].iter().filter_map(|name| {
        let rival = series(name, 0)?;
        Some(format!("{name} {} per second: {} times that", short(rate(rival)?), short(ratio(rival)?)))
    });
    let over_few = ratio(series(own, 10)?)?;
    Some(TargetResult {
        measured: if is_guest == true {
            format!("{} (in a guest)", short(over_few))
        } else {
            format!("{} ({} a second)", short(over_few), short(rate(many)?))
        },
        beside: beside.collect::<Vec<_>>().join("; "),
        is_met: over_few >= 0.95,
    })
}

fn fleet(told: &'static str) -> [(&'static str, Value); 3] {
    [("told", json!(told)), ("count", json!(1_000)), ("perSecond", json!(100))]
}

pub(super) fn fanout(written: &Value) -> Option<TargetResult> {
    let (agents, sockets) = (fleet("agents"), fleet("sockets"));
    let agents = point(written, &agents)?;
    let last = summary(agents, "lastMs", "")?;
    let bound = point(written, &sockets).and_then(|sockets| summary(sockets, "lastMs", ""));
    Some(TargetResult {
        measured: format!("p99 {} ms, median {} ms", short(last.p99), short(last.median)),
        beside: bound.map_or("–".to_owned(), |bound| {
            let ratio = short(last.p99 / bound.p99);
            format!("baseline sender of the same bytes: p99 {} ms, {ratio} times that", short(bound.p99))
        }),
        is_met: last.p99 <= 1_000.0 && agents["lost"] == 0 && agents["services"] == 10_000,
    })
}

pub(super) fn fanout_memory(written: &Value) -> Option<TargetResult> {
    let agents = fleet("agents");
    let agents = point(written, &agents)?;
    let most = |list: &str| summary(agents, list, "").map(|summary| summary.max / 1024.0);
    let (changes, herd) = (most("peakKib")?, most("herdPeakKib")?);
    Some(TargetResult {
        measured: format!("{} MiB", short(changes.max(herd))),
        beside: format!("{} MiB without a reconnect", short(changes)),
        is_met: changes.max(herd) <= 512.0,
    })
}

/// Minimum duration in seconds of a soak test that can meet the target.
const SOAK_SECS: f64 = 30.0 * 60.0;
const SOAK_PER_SECOND: f64 = 50.0;

pub(super) fn soak(written: &Value) -> Option<TargetResult> {
    let outcome: SoakOutcome = serde_json::from_value(points(written, &[]).next()?.clone()).ok()?;
    let (secs, growth) = (outcome.took.as_secs_f64(), outcome.growth());
    let (per_second, wrong) = (outcome.requests as f64 / secs, outcome.faults_found().len());
    let most = growth.iter().map(Growth::percent).max_by(f64::total_cmp)?;
    let has_kept = outcome.is_growth_judged && growth.iter().all(|growth| growth.is_met() == Some(true));
    Some(TargetResult {
        measured: format!(
            "{:.0} minutes with {} as the store, {} changes per second, {} faults: {wrong} problems, {} \
             connections lost without an excuse, heap in use of {} processes {most:+.1} % at most",
            secs / 60.0,
            outcome.store,
            short(per_second),
            outcome.faults.values().sum::<u64>(),
            outcome.fates.lost,
            growth.len()
        ),
        beside: format!(
            "{} connections lost with an excusing fault, {} successful",
            outcome.fates.excused.values().sum::<u64>(),
            outcome.fates.answered
        ),
        is_met: secs >= SOAK_SECS && per_second >= SOAK_PER_SECOND && wrong == 0 && has_kept,
    })
}

pub(super) fn sqlite(written: &Value) -> Option<TargetResult> {
    writes(written, "sqlite", 5_000.0)
}

pub(super) fn etcd(written: &Value) -> Option<TargetResult> {
    writes(written, "etcd", 2_000.0)
}

/// Returns the best write rate of a store over all numbers of clients and objects per request, compared with
/// the rate that the target demands.
fn writes(written: &Value, store: &str, demanded: f64) -> Option<TargetResult> {
    let best = |store: &str| {
        let fields = [("store", json!(store))];
        points(written, &fields)
            .filter_map(|point| Some((summary(point, "perSecond", "")?.median, point)))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map(|(rate, point)| (rate, point["clients"].clone(), point["objects"].clone()))
    };
    let ((rate, clients, objects), (disk, _, _)) = (best(store)?, best("disk")?);
    Some(TargetResult {
        measured: format!("{} ({clients} clients, {objects} objects per request)", short(rate)),
        beside: format!(
            "`fdatasync` of 4 KiB alone {} per second: {} times that",
            short(disk),
            short(rate / disk)
        ),
        is_met: rate >= demanded,
    })
}

pub(super) fn layer2(written: &Value) -> Option<TargetResult> {
    failover(written, "tidegate-default", "keepalived-default", 1_000.0)
}

pub(super) fn layer2_tuned(written: &Value) -> Option<TargetResult> {
    failover(written, "tidegate-tuned", "keepalived-fast", 250.0)
}

fn failover(written: &Value, own: &str, rival: &str, demanded_ms: f64) -> Option<TargetResult> {
    let silence = |contestant: &str| {
        let fields = [("contestant", json!(contestant)), ("failure", json!("node-vanishes"))];
        summary(point(written, &fields)?, "runs", "/silenceMs")
    };
    let (own, other) = (silence(own)?, silence(rival)?);
    Some(TargetResult {
        measured: format!("p99 {} ms, median {} ms", short(own.p99), short(own.median)),
        beside: format!(
            "{rival}: median {} ms, {} times that",
            short(other.median),
            short(own.median / other.median)
        ),
        is_met: own.p99 <= demanded_ms,
    })
}

pub(super) fn bgp(written: &Value) -> Option<TargetResult> {
    let gone = |contestant: &str, router: &str| {
        let fields = [("contestant", json!(contestant))];
        summary(point(written, &fields)?, "failedMs", router)
    };
    let (frr, bird) = (gone("tidegate", "/frr")?, gone("tidegate", "/bird")?);
    let rival = gone("gobgp", "/frr")?;
    Some(TargetResult {
        measured: format!("p99 {} ms in FRR, {} ms in BIRD", short(frr.p99), short(bird.p99)),
        beside: format!(
            "GoBGP without BFD, FRR: median {} ms, {} times that",
            short(rival.median),
            short(frr.median / rival.median)
        ),
        is_met: frr.p99.max(bird.p99) <= 1_000.0,
    })
}
