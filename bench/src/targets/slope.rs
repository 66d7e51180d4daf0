//! Check if the cost of a change grows with the number of Services: slopes of straight lines fitted to all
//! measurements.

use serde_json::{Value, json};

use super::{figures::points, found::TargetResult};
use crate::statistics::fit::Line;

/// Kinds of change, each with the JSON field of its costs and its label on the page.
const SORTS: [(&str, &str); 2] = [("costs", "endpoints"), ("serviceCosts", "a Service")];
/// Number of Services up to which the target applies.
const SERVICES: f64 = 50_000.0;

pub(super) fn nftables(written: &Value) -> Option<TargetResult> {
    let quantities =
        [("/controlUs", "control", "µs"), ("/agentUs", "agent", "µs"), ("/feedBytes", "feed", "bytes")];
    found(written, "nftables", &quantities)
}

/// Returns the result of the target for ipvs mode, or `None` if measurements are missing. Uses counters only,
/// because times measured in the guest VM are not meaningful.
pub(super) fn ipvs(written: &Value) -> Option<TargetResult> {
    found(written, "ipvs", &[("/kernelMessages", "kernel", "messages")])
}

fn found(written: &Value, mode: &str, quantities: &[(&str, &str, &str)]) -> Option<TargetResult> {
    let fields = [("mode", json!(mode))];
    let most = points(written, &fields).filter_map(|point| point["services"].as_f64()).reduce(f64::max)?;
    let (mut measured, mut is_met) = (Vec::new(), most >= SERVICES);
    for (list, sort) in SORTS {
        let mut slopes = Vec::new();
        for (pointer, name, unit) in quantities {
            let line = line(written, &fields, list, pointer)?;
            is_met &= line.trend() != "grows";
            // Turns a negative zero into zero.
            let slope = (line.slope * 1e3 * 100.0).round() / 100.0 + 0.0;
            slopes.push(format!("{name} {slope:.2} ± {:.2} {unit}", line.slope_margin * 1e3));
        }
        measured.push(format!("{sort}: {}", slopes.join(", ")));
    }
    Some(TargetResult {
        measured: measured.join("; "),
        beside: format!("95 %, up to {most} Services"),
        is_met,
    })
}

fn line(written: &Value, fields: &[(&str, Value)], list: &str, pointer: &str) -> Option<Line> {
    let groups = points(written, fields).filter_map(|point| {
        let services = point["services"].as_f64()?;
        let costs = point.get(list)?.as_array()?;
        Some(costs.iter().filter_map(move |cost| Some((services, cost.pointer(pointer)?.as_f64()?))))
    });
    Line::through(&groups.flatten().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(most: u32, each: f64) -> Value {
        let point = |services: u32| {
            let costs: Vec<_> = [-1.0, 0.0, 1.0]
                .iter()
                .map(|noise| json!({"kernelMessages": 3.0 + 0.1 * noise + each * f64::from(services)}))
                .collect();
            json!({"mode": "ipvs", "services": services, "costs": costs, "serviceCosts": costs})
        };
        json!({"points": [point(100), point(1_000), point(most)]})
    }

    #[test]
    fn a_cost_that_follows_the_change_is_met_and_one_that_follows_the_services_is_not() {
        let found = ipvs(&written(50_000, 0.0)).unwrap();
        assert!(
            found.is_met && found.measured.starts_with("endpoints: kernel 0.00 ± "),
            "{}",
            found.measured
        );
        assert!(!ipvs(&written(50_000, 1e-4)).unwrap().is_met);
        assert!(
            !ipvs(&written(10_000, 0.0)).unwrap().is_met,
            "the largest number of Services is below \
                                                               that of the target"
        );
        assert!(nftables(&written(50_000, 0.0)).is_none());
    }
}
