//! Extraction of the results of the targets for DNS.

use serde_json::{Value, json};

use super::{
    figures::{point, ratio_in_a_round, summary},
    found::TargetResult,
};
use crate::{pages::page::short, statistics::figures::Summary};

/// CPU time of answers with one address relative to Knot DNS.
pub(super) fn services(written: &Value) -> Option<TargetResult> {
    cost(written, "service", "knot", &|ratio| ratio <= 1.0)
}

/// CPU time of cached answers relative to Unbound.
pub(super) fn cached(written: &Value) -> Option<TargetResult> {
    cost(written, "cached", "unbound", &|ratio| ratio < 1.0)
}

fn cost(written: &Value, kind: &str, rival: &str, is_met: &dyn Fn(f64) -> bool) -> Option<TargetResult> {
    let series = |name: &str| point(written, &[("contestant", json!(name)), ("kind", json!(kind))]);
    let (own, other) = (series("tidegate")?, series(rival)?);
    let cost = |series: &Value| Some(summary(series, "rounds", "/processorUs")?.median);
    let ratio = ratio_in_a_round(own, other, "rounds", "/processorUs")?;
    Some(TargetResult {
        measured: format!("{} ({} µs)", short(ratio), short(cost(own)?)),
        beside: format!("{rival} {} µs", short(cost(other)?)),
        is_met: is_met(ratio),
    })
}

/// Time until a change is in an answer.
pub(super) fn change(written: &Value) -> Option<TargetResult> {
    let times = written.get("changesMs")?.as_array()?;
    let summary = Summary::of(times.iter().filter_map(Value::as_f64))?;
    Some(TargetResult {
        measured: format!("p99 {} ms, median {} ms", short(summary.p99), short(summary.median)),
        beside: "–".to_owned(),
        is_met: is_full_size(written) && summary.p99 <= 20.0,
    })
}

/// Memory with all Services.
pub(super) fn memory(written: &Value) -> Option<TargetResult> {
    let mib = written.get("residentKib")?.as_f64()? / 1024.0;
    let peer = point(written, &[("contestant", json!("knot")), ("kind", json!("service"))])?;
    Some(TargetResult {
        measured: format!("{} MiB", short(mib)),
        beside: format!("knot with the records only {} MiB", short(peer["residentKib"].as_f64()? / 1024.0)),
        is_met: is_full_size(written) && mib <= 48.0,
    })
}

/// Returns true if the benchmark ran with the numbers of the targets.
fn is_full_size(written: &Value) -> bool {
    written["names"]["services"] == 10_000 && written["names"]["endpoints"] == 10
}
