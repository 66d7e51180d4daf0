//! Extraction of the results of the targets for HTTP.

use serde_json::{Value, json};

use super::{
    figures::{point, ratio_in_a_round, summary},
    found::TargetResult,
};
use crate::{pages::page::short, statistics::figures::Summary};

/// CPU time of HTTP/1.1 requests relative to the lower of HAProxy and nginx.
pub(super) fn http1(written: &Value) -> Option<TargetResult> {
    cost(written, "http1")
}

/// CPU time of HTTP/2 requests with TLS relative to the lower of HAProxy and nginx.
pub(super) fn http2(written: &Value) -> Option<TargetResult> {
    cost(written, "http2")
}

fn series<'a>(written: &'a Value, name: &str, load: &str) -> Option<&'a Value> {
    point(written, &[("contestant", json!(name)), ("load", json!(load))])
}

fn cost(written: &Value, load: &str) -> Option<TargetResult> {
    let cost = |name: &str| Some(summary(series(written, name, load)?, "rounds", "/processorUs")?.median);
    let (haproxy, nginx) = (cost("haproxy")?, cost("nginx")?);
    let rival = if haproxy < nginx { "haproxy" } else { "nginx" };
    let (own, other) = (series(written, "tidegate", load)?, series(written, rival, load)?);
    let ratio = ratio_in_a_round(own, other, "rounds", "/processorUs")?;
    Some(TargetResult {
        measured: format!("{} ({} µs)", short(ratio), short(cost("tidegate")?)),
        beside: format!("haproxy {} µs, nginx {} µs", short(haproxy), short(nginx)),
        is_met: ratio <= 1.1,
    })
}

/// Requests per second with many routes relative to few.
pub(super) fn routes(written: &Value) -> Option<TargetResult> {
    let (many, few) = (series(written, "tidegateMany", "http1")?, series(written, "tidegate", "http1")?);
    let rate = |series: &Value| Some(summary(series, "rounds", "/perSecond")?.median);
    let ratio = ratio_in_a_round(many, few, "rounds", "/perSecond")?;
    Some(TargetResult {
        measured: format!("{} ({} and {} per second)", short(ratio), short(rate(many)?), short(rate(few)?)),
        beside: "–".to_owned(),
        is_met: is_full_size(written) && ratio >= 0.95,
    })
}

/// Time until a changed route decides requests.
pub(super) fn change(written: &Value) -> Option<TargetResult> {
    let times = written.get("changesMs")?.as_array()?;
    let summary = Summary::of(times.iter().filter_map(Value::as_f64))?;
    Some(TargetResult {
        measured: format!("p99 {} ms, median {} ms", short(summary.p99), short(summary.median)),
        beside: "–".to_owned(),
        is_met: is_full_size(written) && summary.p99 <= 50.0,
    })
}

/// Returns true if the benchmark ran with the numbers of the targets.
fn is_full_size(written: &Value) -> bool {
    written["routes"]["few"] == 10 && written["routes"]["many"] == 10_000
}
